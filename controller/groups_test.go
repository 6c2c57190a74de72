package controller_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/settings"
)

func withGroups(c *controller.Config) { c.FeatureGates[settings.GateGroups] = true }

// group creates a NodeFeatureGroup in a namespace.
func (w *world) group(namespace, name, rules string) *nfdv1alpha1.NodeFeatureGroup {
	w.Helper()
	g := &nfdv1alpha1.NodeFeatureGroup{}
	w.apply(g, fmt.Sprintf("{metadata: {namespace: %s, name: %s}, spec: {featureGroupRules: %s}}", namespace, name, rules))
	return g
}

// members waits until a group has the given members.
func (w *world) members(g *nfdv1alpha1.NodeFeatureGroup, want ...string) {
	w.Helper()
	becomes(w, g, "members "+strings.Join(want, ", "), func(g *nfdv1alpha1.NodeFeatureGroup) bool {
		var got []string
		for _, n := range g.Status.Nodes {
			got = append(got, n.Name)
		}
		return g.Status.Count != nil && int(*g.Status.Count) == len(want) && cmp.Equal(got, want) && g.Status.ObservedGeneration == g.Generation
	})
}

func TestGroupsListTheirNodes(t *testing.T) {
	w := newWorld(t)
	other := testkit.Namespace(t, w)
	for i, gpu := range []string{"a100", "h100", ""} {
		name := fmt.Sprintf("n%d", i)
		w.node(name)
		w.publish(w.namespace, "vendor-"+name, name, M{"gpu": gpu}, nil) // no worker has published the name of the node
	}
	one := `[{name: kind, vars: {fast: "yes"}, matchFeatures: [{feature: test.attr, matchExpressions: {gpu: {op: In, value: [h100]}}}]}]`
	mine, theirs := w.group(w.namespace, "fast", one), w.group(other, "fast", one)
	chain := w.group(other, "chain", `[{name: never, varsTemplate: "{{range .test.attr}}kind={{.Value}}\n{{end}}",
	    matchFeatures: [{feature: test.attr, matchExpressions: {gpu: {op: In, value: [a100]}}}, {feature: test.attr, matchExpressions: {no: {op: Exists}}}]},
	  {name: tmpl, varsTemplate: "{{range .test.attr}}kind={{.Value}}\n{{end}}", matchFeatures: [{feature: test.attr, matchExpressions: {gpu: {op: InRegexp, value: ["^a"]}}}]},
	  {name: by-var, matchFeatures: [{feature: rule.matched, matchExpressions: {kind: {op: In, value: [a100]}}}]}]`)
	w.node("n3") // no NodeFeature is about it
	everywhere := w.group(other, "everywhere", `[{name: all}]`)
	w.start(withGroups)
	w.members(everywhere, "n0", "n1", "n2", "n3")
	w.members(mine, "n1")
	w.members(theirs, "n1")
	w.members(chain, "n0")

	f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "vendor-n2"}}
	change(w, f, func(f *nfdv1alpha1.NodeFeature) { f.Spec.Features.Attributes["test.attr"].Elements["gpu"] = "h100" })
	w.members(theirs, "n1", "n2")
	if err := w.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); err != nil {
		t.Fatal(err)
	}
	w.members(theirs, "n2")
}

func TestABrokenGroupSaysSo(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.publish(w.namespace, "n1", "n1", M{"a": "1"}, nil)
	g := w.group(w.namespace, "broken", `[{name: bad, matchFeatures: [{feature: test.attr, matchExpressions: {a: {op: InRegexp, value: ["("]}}}]},
	  {name: good, matchFeatures: [{feature: test.attr, matchExpressions: {a: {op: Exists}}}]}]`)
	w.start(withGroups)
	w.members(g, "n1")
	c := meta.FindStatusCondition(g.Status.Conditions, nfdv1alpha1.ConditionAccepted)
	if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "spec.featureGroupRules[0].matchFeatures[0]") {
		t.Errorf("condition is %+v", c)
	}
}

func TestOrphansAreCollected(t *testing.T) {
	w := newWorld(t)
	w.node("stays")
	gone := w.node("gone")
	kept := w.publish(w.namespace, "stays", "stays", M{"a": "1"}, nil)
	deleted := w.publish(w.namespace, "gone", "gone", M{"a": "1"}, nil)
	precedes := w.publish(w.namespace, "to-come", "to-come", M{"a": "1"}, nil)
	nameless := w.publish(w.namespace, "nameless", "x", nil, nil)
	change(w, nameless, func(f *nfdv1alpha1.NodeFeature) { f.Labels = nil })
	left := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.namespace, Name: "long-gone", Labels: M{nfdv1alpha1.NodeNameLabel: "long-gone"},
		Annotations: M{nfdv1alpha1.WorkerVersionAnnotation: "v1"}, // a worker has run there, even if this manager has not seen it
	}}
	testkit.Create(t, w, left)
	w.start(func(c *controller.Config) { c.GcInterval, c.GcGracePeriod = time.Minute, 500*time.Millisecond })
	w.event("nameless", "NoNodeName", nfdv1alpha1.NodeNameLabel)
	absent := func(f *nfdv1alpha1.NodeFeature) {
		t.Helper()
		testkit.Eventually(t, "removal of "+f.Name, func(ctx context.Context) error {
			err := w.Get(ctx, client.ObjectKeyFromObject(f), &nfdv1alpha1.NodeFeature{})
			if err == nil {
				return errors.New("still there")
			}
			return client.IgnoreNotFound(err)
		})
	}
	absent(left)
	if err := w.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	absent(deleted)
	for _, f := range []*nfdv1alpha1.NodeFeature{kept, precedes, nameless} {
		if err := w.Get(t.Context(), client.ObjectKeyFromObject(f), f); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
}

func TestMassDeletionOfOrphansIsHeld(t *testing.T) {
	w := newWorld(t)
	for i := range 6 {
		f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: fmt.Sprintf("gone%d", i), Labels: M{nfdv1alpha1.NodeNameLabel: fmt.Sprintf("gone%d", i)},
			Annotations: M{nfdv1alpha1.WorkerVersionAnnotation: "v1"},
		}}
		testkit.Create(t, w, f)
	}
	w.start(func(c *controller.Config) {
		c.GcInterval, c.GcGracePeriod = time.Minute, 0
		c.RemovalBudget.Nodes, c.RemovalBudget.Share, c.RemovalBudget.Hold = 2, 0, 5*time.Second
	})
	var counts []int
	testkit.Eventually(t, "all deletions", func(ctx context.Context) error {
		var list nfdv1alpha1.NodeFeatureList
		if err := w.List(ctx, &list, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		if n := len(list.Items); len(counts) == 0 || counts[len(counts)-1] != n {
			counts = append(counts, n)
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("%d left", len(list.Items))
		}
		return nil
	})
	if !slices.Contains(counts, 4) {
		t.Errorf("counts were %v: nothing was held once two had gone", counts)
	}
}

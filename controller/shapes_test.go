package controller_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/controller/shape"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/settings"
)

func withShapes(c *controller.Config) {
	c.FeaturesReady, c.NodeShapeLabels = true, settings.DefaultNodeShapeLabels
}

// joinsPool creates a Node of a NodePool and what its worker publishes.
func (w *world) joinsPool(name, pool string, attributes map[string]string, edit ...func(*corev1.Node)) (*corev1.Node, *nfdv1alpha1.NodeFeature) {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: M{
		assayv1alpha1.NodePoolLabel: pool, corev1.LabelInstanceTypeStable: "c7.large", corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
	}}}
	for _, e := range edit {
		e(n)
	}
	testkit.Create(w, w, n)
	w.boots(name, "boot-1")
	return n, w.examines(name, "boot-1", attributes)
}

func (w *world) leaves(objects ...client.Object) {
	w.Helper()
	for _, o := range objects {
		if err := w.Delete(w.Context(), o); err != nil {
			w.Fatal(err)
		}
	}
}

// shape waits until the only shape of a NodePool has these labels and this number of nodes, and returns it.
func (w *world) shape(pool string, nodes int32, labels map[string]string) *assayv1alpha1.NodeShape {
	w.Helper()
	full := M{}
	for name, value := range labels {
		full[feature+name] = value
	}
	var found *assayv1alpha1.NodeShape
	testkit.Eventually(w, "shape of "+pool, func(ctx context.Context) error {
		var list assayv1alpha1.NodeShapeList
		if err := w.List(ctx, &list); err != nil {
			return err
		}
		found = nil
		for i := range list.Items {
			if list.Items[i].Status.Key[assayv1alpha1.NodePoolLabel] == pool {
				found = &list.Items[i]
			}
		}
		if found == nil || found.Status.Nodes == nil || *found.Status.Nodes != nodes || !maps.Equal(found.Status.Labels, full) {
			return fmt.Errorf("want %d nodes and the labels %v, found %+v", nodes, full, found)
		}
		return nil
	})
	w.Cleanup(func() { _ = client.IgnoreNotFound(w.WithWatch.Delete(context.WithoutCancel(w.Context()), found)) })
	return found
}

// TestAShapeIsKeptWithoutNodesAndCorrectedByANode follows a node group from its first node to zero nodes, over a restart, to a node that
// contradicts it.
func TestAShapeIsKeptWithoutNodesAndCorrectedByANode(t *testing.T) {
	w := newWorld(t)
	w.rule("copy", copies)
	m := w.start(withShapes)
	n1, f1 := w.joinsPool("n1", "grow", M{"a": "1", "b": "1"})
	first := w.shape("grow", 1, M{"a": "1", "b": "1"})
	if want := "grow-c7-large-amd64-linux-"; !strings.HasPrefix(first.Name, want) {
		t.Errorf("the name is %s, want %s…", first.Name, want)
	}
	n2, f2 := w.joinsPool("n2", "grow", M{"a": "1", "b": "2"})
	s := w.shape("grow", 2, M{"a": "1"})
	if !meta.IsStatusConditionTrue(s.Status.Conditions, assayv1alpha1.ConditionContradicted) || !strings.Contains(w.event(s.Name, shape.ReasonNodeDiffers), "Node n2 ") {
		t.Errorf("n2 contradicts n1, but the status is %+v", s.Status)
	}
	w.leaves(n1, n2, f1, f2)
	w.shape("grow", 0, M{"a": "1"})
	m.stop()

	// Another process promises the same, and writes nothing while nothing changes.
	m = w.start(withShapes)
	w.joinsPool("n3", "other", M{"c": "1"})
	w.shape("other", 1, M{"c": "1"})
	if again := w.shape("grow", 0, M{"a": "1"}); again.UID != first.UID || len(m.requests("PATCH", again.Name)) > 0 {
		t.Errorf("the shape was written again: %q", m.requests("nodeshapes"))
	}
	// Karpenter sets what the shape promises when a node registers, with the record of it. The node does not have the feature.
	pre := func(n *corev1.Node) {
		n.Labels[feature+"a"] = "1"
		n.Annotations = M{nfdv1alpha1.FeatureLabelsAnnotation: "a"}
	}
	w.joinsPool("n4", "grow", M{"d": "1"}, pre)
	w.ready("n4", corev1.ConditionTrue, "FeaturesApplied")
	w.labels("n4", M{"a": "", "d": "1"})
	s = w.shape("grow", 1, M{"d": "1"})
	if c := meta.FindStatusCondition(s.Status.Conditions, assayv1alpha1.ConditionContradicted); !strings.Contains(c.Message, feature+"a (node n4)") {
		t.Errorf("the condition is %+v", c)
	}

	// A shape that an administrator deletes is created again from the nodes that exist.
	w.leaves(s)
	if again := w.shape("grow", 1, M{"d": "1"}); again.UID == s.UID || len(again.Status.Differences) > 0 {
		t.Errorf("the shape is %+v", again.Status)
	}
}

// TestAnOldShapeIsForgotten: after 90 days without nodes.
func TestAnOldShapeIsForgotten(t *testing.T) {
	w := newWorld(t)
	old, young := &assayv1alpha1.NodeShape{}, &assayv1alpha1.NodeShape{}
	for o, days := range map[*assayv1alpha1.NodeShape]int{old: 91, young: 89} {
		o.Name = fmt.Sprintf("days-%d", days)
		testkit.Create(w, w, o)
		before := o.DeepCopy()
		seen := metav1.NewTime(time.Now().AddDate(0, 0, -days))
		o.Status = assayv1alpha1.NodeShapeStatus{Nodes: new(int32), LastSeen: &seen, FirstSeen: &seen, Labels: M{"a": "1"}}
		if err := w.Status().Patch(t.Context(), o, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	w.start(withShapes)
	testkit.Eventually(t, "the shape is deleted", func(ctx context.Context) error {
		err := w.Get(ctx, client.ObjectKeyFromObject(old), old)
		if err == nil {
			return errors.New("the shape exists")
		}
		return client.IgnoreNotFound(err)
	})
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(young), young); err != nil {
		t.Error(err)
	}
}

// TestAPoolThatOverwritesTheRecordOfANode: when Karpenter registers a Node, it sets the labels, taints and annotations of the NodePool,
// so that the record of the pool replaces that of the controller. What the rules do not give is held, like all removals of keys whose rule is
// unknown, and then removed.
func TestAPoolThatOverwritesTheRecordOfANode(t *testing.T) {
	w := newWorld(t)
	r := w.rule("pool", `{rules: [{name: pool, labels: {same: "1", other: "1", more: "1"},
	  taints: [{key: vendor.io/same, effect: NoSchedule}, {key: vendor.io/more, effect: NoSchedule}]}]}`)
	w.node("registered")
	w.publish(w.namespace, "registered", "registered", M{"a": "1"}, nil)
	w.start(func(c *controller.Config) { c.EnableTaints, c.RemovalBudget.Hold = true, 5*time.Second })
	n := w.labels("registered", M{"same": "1", "other": "1", "more": "1"})

	pool := []corev1.Taint{{Key: "vendor.io/same", Effect: corev1.TaintEffectNoSchedule}, {Key: "vendor.io/wrong", Effect: corev1.TaintEffectNoSchedule}}
	change(w, n, func(n *corev1.Node) {
		for name, value := range (M{"same": "1", "other": "2", "wrong": "1"}) {
			n.Labels[feature+name] = value
		}
		n.Labels["example.com/team"] = "ml"
		n.Annotations[nfdv1alpha1.FeatureLabelsAnnotation] = "other,same,wrong"
		n.Annotations[nfdv1alpha1.TaintsAnnotation] = "vendor.io/same:NoSchedule,vendor.io/wrong:NoSchedule"
		n.Spec.Taints = append(n.Spec.Taints, pool[1], corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule})
	})
	w.event("registered", "RemovalHeld", feature+"wrong", "vendor.io/wrong") // it goes with the hold
	becomes(w, n, "what the rules say, all of it in the record", func(n *corev1.Node) bool {
		return holds(n.Labels, M{"same": "1", "other": "1", "more": "1", "wrong": "", "example.com/team": "ml"}) &&
			n.Annotations[nfdv1alpha1.FeatureLabelsAnnotation] == "more,other,same" &&
			n.Annotations[nfdv1alpha1.TaintsAnnotation] == "vendor.io/more:NoSchedule,vendor.io/same:NoSchedule" &&
			taintKeys(n) == "dedicated vendor.io/more vendor.io/same"
	})
	if err := w.Delete(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	becomes(w, n, "nothing of rules", func(n *corev1.Node) bool {
		return holds(n.Labels, M{"same": "", "other": "", "more": "", "example.com/team": "ml"}) && taintKeys(n) == "dedicated"
	})
}

// taintKeys returns the keys of the taints of a Node, sorted.
func taintKeys(n *corev1.Node) string {
	var keys []string
	for _, t := range n.Spec.Taints {
		keys = append(keys, t.Key)
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

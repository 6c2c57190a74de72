package controller_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/internal/testkit"
)

// TestTwoInstancesSideBySide runs the default instance and one with a name, a namespace, a ServiceAccount and a policy of its own. Each gives a
// label and a taint to the node by features that only it reads, and keeps those of the other: at rest, after a restart of both, and when the
// features of one of them go.
func TestTwoInstancesSideBySide(t *testing.T) {
	w := newWorld(t)
	tenant := testkit.Namespace(t, w)
	policy, binding := w.writePolicy(charts.PolicySettings{Namespace: tenant, Manager: "blue"})
	policy.Name, binding.Name, binding.Spec.PolicyName = policy.Name+"-blue", binding.Name+"-blue", policy.Name+"-blue"
	testkit.Create(t, w, policy)
	testkit.Create(t, w, binding)
	n := w.node("n1")
	w.publish(w.namespace, "n1", "n1", M{"green": "1"}, nil)
	blues := w.publish(tenant, "n1", "n1", M{"blue": "1"}, nil)
	for _, color := range []string{"green", "blue"} {
		w.rule(color, strings.ReplaceAll(`{rules: [{name: r, labels: {COLOR: "1"}, taints: [{key: vendor.io/COLOR, effect: PreferNoSchedule}],
		  matchFeatures: [{feature: test.attr, matchExpressions: {COLOR: {op: Exists}}}]}]}`, "COLOR", color))
	}
	reads := func(c *controller.Config, namespace string) {
		c.EnableTaints, c.Namespace, c.FeatureSources = true, namespace, regexp.MustCompile("^"+namespace+"/")
	}
	start := func() (stop func()) {
		green := w.start(func(c *controller.Config) { reads(c, w.namespace) })
		blue := w.startAs(tenant, "blue", &traffic{}, func(c *controller.Config) {
			reads(c, tenant)
			c.Instance = "blue"
		})
		return func() { green.stop(); blue.stop() }
	}
	has := func(want ...string) func(*corev1.Node) bool {
		return func(n *corev1.Node) bool {
			var got []string
			for _, t := range n.Spec.Taints {
				if color, ours := strings.CutPrefix(t.Key, "vendor.io/"); ours && n.Labels[feature+color] == "1" {
					got = append(got, color)
				}
			}
			slices.Sort(got)
			return slices.Equal(got, want)
		}
	}
	stop := start()
	n = becomes(w, n, "the keys of both instances", has("blue", "green"))
	for annotation, want := range map[string]string{
		nfdv1alpha1.TaintsAnnotation: "vendor.io/green:PreferNoSchedule", nfdv1alpha1.FeatureLabelsAnnotation: "green",
		"blue." + nfdv1alpha1.TaintsAnnotation: "vendor.io/blue:PreferNoSchedule", "blue." + nfdv1alpha1.FeatureLabelsAnnotation: "blue",
	} {
		if got := n.Annotations[annotation]; got != want {
			t.Errorf("the annotation %s is %q, want %q", annotation, got, want)
		}
	}
	stop()
	before := passes()
	stop = start()
	w.waitForPasses(before, 2) // of both
	if n = becomes(w, n, "a Node", func(*corev1.Node) bool { return true }); !has("blue", "green")(n) {
		t.Errorf("after a restart of both the node has the labels %v and the taints %v", n.Labels, n.Spec.Taints)
	}
	change(w, blues, func(f *nfdv1alpha1.NodeFeature) {
		f.Spec.Features.Attributes["test.attr"] = nfdv1alpha1.AttributeFeatureSet{Elements: M{"other": "1"}}
	})
	becomes(w, n, "the keys of the default instance alone", has("green"))
	stop()
}

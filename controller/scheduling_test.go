package controller_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/settings"
)

// TestSchedulersHearOfChangedFeatures: a scheduler only watches Nodes. Without this write, a pod that waits for a feature would
// wait for minutes longer.
func TestSchedulersHearOfChangedFeatures(t *testing.T) {
	w := newWorld(t)
	w.node("notified")
	f := w.publish(w.namespace, "notified", "notified", map[string]string{"a": "1"}, nil)
	request := &assayv1alpha1.NodeFeatureRequest{}
	w.apply(request, `
metadata: {name: r, namespace: `+w.namespace+`}
spec: {required: {matchFeatures: [{feature: test.attr, matchExpressions: {a: {op: In, value: ["2"]}}}]}}`)
	scheduling := func(c *controller.Config) { c.FeatureGates[settings.GateScheduling] = true }
	m := w.start(scheduling)
	const key = assayv1alpha1.FeaturesGenerationAnnotation
	n := becomes(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "notified"}}, "the annotation is written", func(n *corev1.Node) bool {
		return n.Annotations[key] != ""
	})
	before := n.Annotations[key]
	satisfiable := func(status metav1.ConditionStatus) func(*assayv1alpha1.NodeFeatureRequest) bool {
		return func(r *assayv1alpha1.NodeFeatureRequest) bool {
			return meta.IsStatusConditionPresentAndEqual(r.Status.Conditions, assayv1alpha1.ConditionSatisfiable, status)
		}
	}
	becomes(w, request, "no node has it", satisfiable(metav1.ConditionFalse))
	m.stop()
	m = w.start(scheduling)
	change(w, f, func(f *nfdv1alpha1.NodeFeature) { f.Spec.Features.Attributes["test.attr"].Elements["a"] = "2" })
	becomes(w, n, "the annotation changes", func(n *corev1.Node) bool { return n.Annotations[key] != before })
	becomes(w, request, "the node has it", satisfiable(metav1.ConditionTrue))
	m.stop()
	w.start(func(c *controller.Config) { c.FeatureGates[settings.GateScheduling] = false })
	becomes(w, n, "the annotation goes with the feature gate", func(n *corev1.Node) bool {
		_, there := n.Annotations[key]
		return !there
	})
}

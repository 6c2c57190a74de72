package node

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/plan"
)

// TestAFailedNodeGetsAnAnnotationAndATaintOnly plans for a node that a rule fails and that has a label and a taint to be removed.
func TestAFailedNodeGetsAnAnnotationAndATaintOnly(t *testing.T) {
	o := outcomeOf(t, nfdv1alpha1.Rule{
		Labels:  map[string]string{"new": "1"},
		Actions: []nfdv1alpha1.Action{{Op: "fail", Args: nfdv1alpha1.JSON{Raw: []byte(`{"msg": "broken"}`)}}},
	})
	if o.Failed == nil {
		t.Fatal("the rule does not fail the node")
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{"vendor.io/old": "1"},
		Annotations: map[string]string{
			nfdv1alpha1.FeatureLabelsAnnotation: "vendor.io/old", nfdv1alpha1.TaintsAnnotation: "vendor.io/old:NoSchedule",
		},
	}}
	node.Spec.Taints = []corev1.Taint{{Key: "vendor.io/old", Effect: corev1.TaintEffectNoSchedule}}
	for name, tc := range map[string]struct {
		taint *corev1.Taint
		want  []string
	}{
		"without a taint": {nil, []string{assayv1alpha1.FailedAnnotation}},
		"with a taint": {
			&corev1.Taint{Key: "vendor.io/failed", Effect: corev1.TaintEffectNoSchedule}, []string{assayv1alpha1.FailedAnnotation, "vendor.io/failed:NoSchedule"},
		},
	} {
		r := &Reconciler{clock: clocktesting.NewFakePassiveClock(time.Now()), taint: tc.taint, policy: plan.Policy{Taints: true}}
		if got := stepKeys(r.plan(node, o, "")); !slices.Equal(got, tc.want) {
			t.Errorf("%s: the plan changes %v, want %v", name, got, tc.want)
		}
	}
	fine := outcomeOf(t, nfdv1alpha1.Rule{Labels: map[string]string{"vendor.io/new": "1"}})
	r := &Reconciler{clock: clocktesting.NewFakePassiveClock(time.Now()), policy: plan.Policy{Taints: true}}
	if got := stepKeys(r.plan(node, fine, "")); !slices.Equal(got, []string{"vendor.io/new", "vendor.io/old", "vendor.io/old:NoSchedule"}) {
		t.Errorf("a node that no rule fails: the plan changes %v", got)
	}
}

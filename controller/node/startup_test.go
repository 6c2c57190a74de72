package node

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/plan"
)

// TestTheStartupTaintIsRemovedOnceTheNodeIsReady checks when pods may come: if the condition is on the Node, or after the timeout, and
// never in the write that first says that the node is ready.
func TestTheStartupTaintIsRemovedOnceTheNodeIsReady(t *testing.T) {
	const key, timeout = "example.com/pending", 10 * time.Minute
	now := time.Now()
	ready := func(status corev1.ConditionStatus) *corev1.NodeCondition {
		return &corev1.NodeCondition{Type: assayv1alpha1.FeaturesReadyCondition, Status: status, Reason: "R", Message: "m"}
	}
	for name, tc := range map[string]struct {
		has, becomes *corev1.NodeCondition
		untainted    bool
		age          time.Duration
		removed      bool
		late         bool
		again        time.Duration
	}{
		"ready":                   {has: ready("True"), becomes: ready("True"), removed: true},
		"becomes ready":           {becomes: ready("True"), age: time.Minute},
		"becomes ready too late":  {becomes: ready("True"), age: timeout},
		"is not ready any more":   {has: ready("True"), becomes: ready("False"), age: time.Minute, again: timeout - time.Minute},
		"not ready":               {has: ready("False"), becomes: ready("False"), age: time.Minute, again: timeout - time.Minute},
		"not ready after so long": {has: ready("False"), becomes: ready("False"), age: timeout, removed: true, late: true},
		"unknown after so long":   {age: timeout, removed: true, late: true},
		"a clock that is behind":  {age: -5 * time.Minute, again: timeout + 5*time.Minute},
		"without the taint":       {has: ready("True"), becomes: ready("True"), untainted: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{clock: clocktesting.NewFakePassiveClock(now), startup: Startup{Key: key, FailOpenAfter: timeout}}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-tc.age))}}
			if !tc.untainted {
				node.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}, {Key: key, Effect: corev1.TaintEffectNoExecute}}
			}
			if tc.has != nil {
				node.Status.Conditions = []corev1.NodeCondition{*tc.has}
				node.Annotations = map[string]string{assayv1alpha1.NodeConditionsAnnotation: assayv1alpha1.FeaturesReadyCondition}
			}
			p, late, again := r.open(node, plan.Compute(plan.StateOf(node), plan.Desired{}, plan.Policy{}).WithReady(tc.becomes))
			removed := 0
			for _, s := range p.Steps {
				if s.Op == plan.Remove && slices.Contains([]string{key + ":NoSchedule", key + ":NoExecute"}, s.Key) {
					removed++
				}
			}
			if want := map[bool]int{true: 2}[tc.removed]; removed != want || late != tc.late || again != tc.again {
				t.Errorf("%d taints are removed, late: %t, again after %s; want %d, %t, %s", removed, late, again, want, tc.late, tc.again)
			}
		})
	}
}

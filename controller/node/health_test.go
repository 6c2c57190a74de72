package node

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/internal/sim/apiserver"
)

// TestACommonCauseHitsOneNodeInTwentyAnHour lets another agent say of all nodes of a fleet at once that they are broken, as after an update of
// the kernel: one node in twenty is hit in each hour, and the others once an administrator has confirmed it.
func TestACommonCauseHitsOneNodeInTwentyAnHour(t *testing.T) {
	const nodes, unknown, share = 1000, 100, 50
	w := newPasses(t, func(r *Reconciler) {
		r.limits.health = budget.NewBreaker(budget.Budget{Nodes: 1, Share: 0.05, Window: time.Hour, Hold: budget.Forever}, r.clock)
	})
	name := func(i int) string { return fmt.Sprintf("n%03d", i) }
	put := func(name string) *corev1.Node {
		t.Helper()
		var node corev1.Node
		if err := w.Get(t.Context(), client.ObjectKey{Name: name}, &node); err != nil {
			t.Fatal(err)
		}
		w.cache.Put(node.DeepCopy())
		return &node
	}
	says := func(i int, status string) {
		t.Helper()
		w.do(http.MethodPatch, "/api/v1/nodes/"+name(i)+"/status", apiserver.Object{"status": apiserver.Object{"conditions": []any{
			apiserver.Object{"type": "HardwareGood", "status": status, "reason": "Probed"},
		}}})
		put(name(i))
	}
	for i := range nodes + unknown { // nothing is known of the last ones: they are not part of the share
		w.do(http.MethodPost, "/api/v1/nodes", apiserver.Object{"metadata": apiserver.Object{"name": name(i)}})
		if i < nodes {
			says(i, "True")
		} else {
			put(name(i))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = w.r.inputs.Start(ctx) }()
	defer func() { cancel(); <-stopped }()
	if err := w.r.inputs.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.rule("broken", nfdv1alpha1.Rule{
		Taints:         []corev1.Taint{{Key: "v.io/degraded", Effect: corev1.TaintEffectNoSchedule}},
		NodeConditions: []nfdv1alpha1.NodeCondition{{Type: "v.io/Degraded", Status: "True"}},
		MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: "kubernetes.condition", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{
			"type": {Op: nfdv1alpha1.MatchIn, Value: []string{"HardwareGood"}}, "status": {Op: nfdv1alpha1.MatchIn, Value: []string{"False"}},
		}}},
	})
	// pass reconciles all nodes, and returns how many are tainted and how many have the condition.
	pass := func() (tainted, marked int, again time.Duration) {
		t.Helper()
		for i := range nodes + unknown {
			result, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: name(i)}})
			if err != nil {
				t.Fatal(err)
			}
			node := put(name(i))
			if len(node.Spec.Taints) > 0 {
				tainted++
			} else {
				again = max(again, result.RequeueAfter)
			}
			if slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == "v.io/Degraded" }) {
				marked++
			}
		}
		return tainted, marked, again
	}
	want := func(when string, want int) {
		t.Helper()
		tainted, marked, again := pass()
		if tainted != want || marked != want {
			t.Fatalf("%s: %d nodes are tainted and %d have the condition, want %d", when, tainted, marked, want)
		}
		if summary := w.r.stats.Summary("broken"); want > 0 && (summary.Waiting != nodes-want || len(summary.WaitingNodes) != min(5, nodes-want)) {
			t.Errorf("%s: %d nodes wait, the first are %v", when, summary.Waiting, summary.WaitingNodes)
		}
		if want > 0 && want < nodes && (again <= 0 || again > time.Hour) {
			t.Errorf("%s: the nodes that wait are reconciled again after %s", when, again)
		}
	}
	want("healthy", 0)
	for i := range nodes {
		says(i, "False")
	}
	want("at once", share)
	for range 2 {
		w.clock.Step(25 * time.Minute)
		want("within the hour", share)
	}
	w.clock.Step(11 * time.Minute)
	want("in the next hour", 2*share)
	if released := w.r.limits.health.Confirm(); len(released) != nodes-2*share {
		t.Errorf("%d nodes were confirmed", len(released))
	}
	want("confirmed", nodes)
	if held, _ := w.r.limits.health.Held(); held != 0 {
		t.Errorf("%d nodes are held after the confirmation", held)
	}
}

package node

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// Startup is the taint that keeps pods away from a new node until its features are known. The kubelet or a provisioner adds it; the
// controller removes it.
type Startup struct {
	// Key is the key of the taint; empty: there is none.
	Key string
	// FailOpenAfter is how long after the creation of its Node the taint is removed in any case: a gate that does not open is an outage.
	FailOpenAfter time.Duration
}

// on reports whether a node has the taint.
func (s Startup) on(node *corev1.Node) bool {
	return s.Key != "" && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == s.Key })
}

// open removes the start-up taint of a node that is ready, or that has waited too long: late. The time is when to look again.
//
// The condition must be on the Node, not in this very plan: what pods need is written before they may come.
func (r *Reconciler) open(node *corev1.Node, p *plan.Plan) (out *plan.Plan, late bool, again time.Duration) {
	if !r.startup.on(node) {
		return p, false, 0
	}
	ready, changes := plan.StateOf(node).Ready(), false
	for _, s := range p.Steps {
		if s.Kind == keys.Condition && s.Mark {
			if s.Turns(corev1.ConditionTrue) {
				return p, false, 0 // the write triggers the next pass
			}
			changes = true
		}
	}
	if ready != nil && ready.Status == corev1.ConditionTrue && !changes {
		return p.WithoutTaint(r.startup.Key), false, 0
	}
	if left := r.startup.FailOpenAfter - r.clock.Since(node.CreationTimestamp.Time); left > 0 {
		return p, false, left
	}
	return p.WithoutTaint(r.startup.Key), true, 0
}

// failedOpen reports that a node is open although it is not known to be ready.
func (r *Reconciler) failedOpen(node *corev1.Node) {
	r.metrics.failedOpen.Inc()
	why := "its worker has not published features"
	if ready := plan.StateOf(node).Ready(); ready != nil && ready.Message != "" {
		why = ready.Reason + ": " + ready.Message
	}
	r.events.Eventf(node, corev1.EventTypeWarning, "StartupTaintTimeout",
		"Removed the taint %s although the node is not ready %s after its creation: %s", r.startup.Key, r.startup.FailOpenAfter, why)
}

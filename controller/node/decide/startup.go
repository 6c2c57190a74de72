package decide

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// open removes the start-up taint of a node that is ready, or that has waited too long: late. The time is when to look again.
//
// The condition must be on the Node, not in this very plan: what pods need is written before they may come.
func (p *Pass) open(in *plan.Plan) (out *plan.Plan, late bool, again time.Duration) {
	startup := p.Settings.Startup
	if !startup.on(p.Node) {
		return in, false, 0
	}
	ready, changes := plan.StateOf(p.Node).Ready(), false
	for _, s := range in.Steps {
		if s.Kind == keys.Condition && s.Mark {
			if s.Turns(corev1.ConditionTrue) {
				return in, false, 0 // the write triggers the next pass
			}
			changes = true
		}
	}
	if ready != nil && ready.Status == corev1.ConditionTrue && !changes {
		return in.WithoutTaint(startup.Key), false, 0
	}
	if left := startup.FailOpenAfter - p.Now.Sub(p.Node.CreationTimestamp.Time); left > 0 {
		return in, false, left
	}
	return in.WithoutTaint(startup.Key), true, 0
}

// sayLate reports that a node is open although it is not known to be ready.
func (p *Pass) sayLate(late bool) []Event {
	if !late {
		return nil
	}
	why := "its worker has not published features"
	if ready := plan.StateOf(p.Node).Ready(); ready != nil && ready.Message != "" {
		why = ready.Reason + ": " + ready.Message
	}
	return []Event{{
		Type: corev1.EventTypeWarning, Reason: "StartupTaintTimeout",
		Message: fmt.Sprintf("Removed the taint %s although the node is not ready %s after its creation: %s",
			p.Settings.Startup.Key, p.Settings.Startup.FailOpenAfter, why),
	}}
}

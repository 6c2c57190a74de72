package decide

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
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
	if left := startup.FailOpenAfter - p.Age; left > 0 {
		return in, false, left
	}
	return in.WithoutTaint(startup.Key), true, 0
}

// lateEvents reports that a plan opens a node although it is not known to be ready.
func (p *Pass) lateEvents(in *plan.Plan, late bool) []Event {
	if !late {
		return nil
	}
	return []Event{{
		Type: corev1.EventTypeWarning, Reason: "StartupTaintTimeout",
		Message: fmt.Sprintf("Removed the taint %s although the node is not ready %s after its creation: %s",
			p.Settings.Startup.Key, p.Settings.Startup.FailOpenAfter, p.whyUnready(in)),
	}}
}

// whyUnready returns why a node is not ready: what its condition says after the plan, or why it has none.
func (p *Pass) whyUnready(in *plan.Plan) string {
	for _, s := range in.Steps {
		if s.Kind == keys.Condition && s.Mark && s.Op != plan.Remove {
			_, reason, message := keys.ParseCondition(s.New)
			return reason + ": " + message
		}
	}
	if ready := plan.StateOf(p.Node).Ready(); ready != nil && ready.Message != "" {
		return ready.Reason + ": " + ready.Message
	}
	if p.Features.Worker != nil {
		return "its worker does not publish the boot ID (feature " + nfdv1alpha1.BootFeature + "): it is not a worker of Assay, or cannot read it"
	}
	return "its worker has not published features"
}

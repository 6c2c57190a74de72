package decide

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/controller/loss"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/rules/plan"
)

// wanted returns the plan without holds.
func (p *Pass) wanted(generation string) *plan.Plan {
	taint, _ := p.wantedLoss()
	return p.Settings.Plan(p.Node, p.Rules, desired.Others{Loss: taint, Generation: generation, Now: metav1.NewTime(p.Now)})
}

// wantedLoss returns the taint of lost features that a node should have, nil for none, and the loss that is the reason, if it is known. A
// node is tainted because of a loss that has lasted for its grace, and keeps the taint while the loss lasts: the grace starts again when the
// controller restarts, and the taint of a node stays.
func (p *Pass) wantedLoss() (*corev1.Taint, *loss.Loss) {
	if p.Settings.LossTaint == nil {
		return nil, nil
	}
	v, have := p.Losses, p.Settings.LossOn(p.Node)
	if v.Unknown {
		return have, nil
	}
	if have != nil {
		if i := slices.IndexFunc(v.Lost, func(l loss.Loss) bool { return l.Value == have.Value }); i >= 0 {
			return have, &v.Lost[i]
		}
	}
	if len(v.Due) == 0 {
		return nil, nil
	}
	out := *p.Settings.LossTaint
	out.Value = v.Due[0].Value
	return &out, &v.Due[0]
}

// notifyEvery is the minimum interval between writes to a Node that only notify schedulers, in case a feature changes ten times a
// second.
const notifyEvery = 10 * time.Second

// generation returns the value of the annotation that notifies schedulers of changed features, and when to check again if the write has
// to wait; empty: no change.
//
// The scheduler retries a pod that the extender rejected when a Node changes, or else after five minutes. It does not watch
// NodeFeatures. The value is computed from the objects alone, so that a restart causes no write.
func (p *Pass) generation() (value string, again time.Duration) {
	if !p.Settings.NotifySchedulers {
		// The annotation was enabled before. Remove it before the first write only: another instance that still uses it would write
		// it again.
		if p.Memory.Written == "" {
			return plan.NoGeneration, 0
		}
		return "", 0
	}
	value, current := p.Features.Generation, p.Node.Annotations[assayv1alpha1.FeaturesGenerationAnnotation]
	if value == current {
		return value, 0
	}
	if wait := notifyEvery - p.Now.Sub(p.Memory.Notified); current != "" && wait > 0 && !p.Memory.Notified.IsZero() {
		return current, wait
	}
	p.Memory.Notified = p.Now
	return value, 0
}

// lossEvents reports the taint of lost features that a plan adds or removes.
func (p *Pass) lossEvents(of *plan.Plan) (out []Event) {
	for _, s := range of.Steps {
		if !p.lost(s) {
			continue
		}
		t := *p.Settings.LossTaint
		switch s.Op {
		case plan.Add, plan.Change:
			t.Value = s.New
			why := "its features are lost"
			if _, l := p.wantedLoss(); l != nil {
				why = "the node has lacked " + l.Lacks + " for " + l.Grace.String() + ", which " + l.Object + " requires for pod " + l.Pod
			}
			out = append(out, Event{
				Type: corev1.EventTypeWarning, Reason: "LossTaintAdded", Message: "Added the taint " + plan.FormatTaint(t) + ": " + why,
			})
		case plan.Remove:
			t.Value = s.Old
			out = append(out, Event{
				Type: corev1.EventTypeNormal, Reason: "LossTaintRemoved",
				Message: "Removed the taint " + plan.FormatTaint(t) + ": no pod on the node requires a feature that it has lost",
			})
		}
	}
	return out
}

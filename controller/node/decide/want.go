package decide

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/controller/loss"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// WantsOf returns what an outcome wants.
func WantsOf(o *rules.Outcome) Wants {
	w := Wants{
		Labels: o.Labels(), Annotations: o.Annotations(), ExtendedResources: o.ExtendedResources(), Conditions: o.NodeConditions(), Taints: o.Taints(),
	}
	if o.Failed != nil {
		w.Failed = &Failure{Rule: o.Failed.Ref.String(), Message: o.Failed.Message}
	}
	return w
}

// KeepFailure makes a rule that has failed a Node go on to do so: whether it still does is unknown.
func (w *Wants) KeepFailure(node *corev1.Node) {
	if rule, message, failed := strings.Cut(node.Annotations[assayv1alpha1.FailedAnnotation], ": "); failed {
		w.Failed = &Failure{Rule: rule, Message: message}
	}
}

// wanted converts what rules want to changes. A node that a fail action rejects keeps its outputs. Only an annotation is written, so that
// users of the Node see that its labels can be out of date, and a taint if the administrator has configured one.
func (p *Pass) wanted(generation string) *plan.Plan {
	s := p.Settings
	want := plan.Desired{Taints: p.Rules.Taints, Conditions: p.Rules.Conditions, Generation: generation, Now: metav1.NewTime(p.Now)}
	if !s.Disable.Labels {
		want.Labels = p.Rules.Labels
	}
	if !s.Disable.Annotations {
		want.Annotations = p.Rules.Annotations
	}
	if !s.Disable.ExtendedResources {
		want.ExtendedResources = p.Rules.ExtendedResources
	}
	policy := s.Policy
	if p.Rules.Failed == nil {
		if taint, _ := p.wantedLoss(); taint != nil {
			if !policy.Taints {
				want.Taints = nil
			}
			policy.Taints, want.Taints = true, append(slices.Clone(want.Taints), *taint)
		}
		return plan.Compute(plan.StateOf(p.Node), want, policy)
	}
	want.Failed = p.Rules.Failed.String()
	if s.FailTaint == nil {
		return plan.Compute(plan.StateOf(p.Node), want, policy).Without(func(s plan.Step) bool { return !s.Mark })
	}
	policy.Taints, want.Taints = true, []corev1.Taint{*s.FailTaint}
	return plan.Compute(plan.StateOf(p.Node), want, policy).Without(func(s plan.Step) bool {
		return !s.Mark && (s.Kind != keys.Taint || s.Op == plan.Remove)
	})
}

// wantedLoss returns the taint of lost features that a node should have, nil for none, and the loss that is the reason, if it is known. A
// node is tainted because of a loss that has lasted for its grace, and keeps the taint while the loss lasts: the grace starts again when the
// controller restarts, and the taint of a node stays.
func (p *Pass) wantedLoss() (*corev1.Taint, *loss.Loss) {
	if p.Settings.LossTaint == nil {
		return nil, nil
	}
	v, have := p.Losses, p.Settings.lossOn(p.Node)
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

// nudgeEvery is the minimum interval between writes to a Node that only notify schedulers, in case a feature changes ten times a
// second.
const nudgeEvery = 10 * time.Second

// nudge returns the value of the annotation that notifies schedulers of changed features, and when to check again if the write has
// to wait; empty: no change.
//
// The scheduler retries a pod that the extender rejected when a Node changes, or else after five minutes. It does not watch
// NodeFeatures. The value is computed from the objects alone, so that a restart causes no write.
func (p *Pass) nudge() (value string, again time.Duration) {
	if !p.Settings.Nudge {
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
	if wait := nudgeEvery - p.Now.Sub(p.Memory.Nudged); current != "" && wait > 0 && !p.Memory.Nudged.IsZero() {
		return current, wait
	}
	p.Memory.Nudged = p.Now
	return value, 0
}

// sayLoss reports the taint of lost features that a plan adds or removes.
func (p *Pass) sayLoss(of *plan.Plan) (out []Event) {
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

package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/keys"
)

// compareConditions plans the conditions that rules set. FeaturesReady stays as it is: see WithReady.
func (p *Plan) compareConditions(want map[string]string) {
	have := make(map[string]string, len(p.state.Conditions))
	for _, c := range p.state.Conditions {
		have[string(c.Type)] = FormatCondition(c)
	}
	p.compare(keys.Condition, p.policy.Record.Conditions(), have, want, equalText)
	if p.recordsReady() {
		p.own(keys.Condition, assayv1alpha1.FeaturesReadyCondition, true)
	}
}

// recordsReady reports whether the record on the Node lists FeaturesReady.
func (p *Plan) recordsReady() bool {
	return slices.Contains(p.policy.Record.Parse(p.state.Annotations[p.policy.Record.Conditions()]), assayv1alpha1.FeaturesReadyCondition)
}

// Ready returns the condition FeaturesReady of the Node; nil: it has none.
func (s State) Ready() *corev1.NodeCondition {
	return s.condition(assayv1alpha1.FeaturesReadyCondition)
}

func (s State) condition(kind string) *corev1.NodeCondition {
	if i := slices.IndexFunc(s.Conditions, func(c corev1.NodeCondition) bool { return string(c.Type) == kind }); i >= 0 {
		return &s.Conditions[i]
	}
	return nil
}

// WithReady returns the plan that also gives the Node the condition FeaturesReady; nil: that removes it.
func (p *Plan) WithReady(want *corev1.NodeCondition) *Plan {
	have, recorded := p.state.Ready(), p.recordsReady()
	s := Step{Kind: keys.Condition, Key: assayv1alpha1.FeaturesReadyCondition, Mark: true, ownedBefore: recorded}
	if have != nil {
		s.Old = FormatCondition(*have)
	}
	if want != nil {
		s.New = FormatCondition(*want)
	}
	switch {
	case want == nil && have != nil:
		s.Op = Remove
	case want == nil && recorded:
		s.Op = Forget
	case want == nil:
		return p
	case have == nil:
		s.Op = Add
	case s.Old != s.New:
		s.Op = Change
	case !recorded:
		s.Op = Adopt
	default:
		return p
	}
	out := p.with(slices.Concat(p.Steps, []Step{s}))
	slices.SortFunc(out.Steps, compareSteps)
	out.own(keys.Condition, s.Key, want != nil)
	return out
}

// Turns reports whether the step gives a condition this status.
func (s Step) Turns(to corev1.ConditionStatus) bool {
	status, _, _ := keys.ParseCondition(s.New)
	return s.Op != Remove && status == to
}

// FormatCondition formats what a condition says, in the form of keys.FormatCondition.
func FormatCondition(c corev1.NodeCondition) string {
	return keys.FormatCondition(string(c.Status), c.Reason, c.Message)
}

// patchCondition is one condition in a strategic merge patch, which merges the list by type.
type patchCondition struct {
	Directive          string                 `json:"$patch,omitempty"`
	Type               string                 `json:"type"`
	Status             corev1.ConditionStatus `json:"status,omitempty"`
	Reason             *string                `json:"reason,omitempty"`
	Message            *string                `json:"message,omitempty"`
	LastHeartbeatTime  *metav1.Time           `json:"lastHeartbeatTime,omitempty"`
	LastTransitionTime *metav1.Time           `json:"lastTransitionTime,omitempty"`
}

// patchCondition returns the change of a step. The times are written only with a change of what the condition says: a heartbeat
// would be one write for each node and condition, again and again.
func (p *Plan) patchCondition(s *Step) patchCondition {
	if s.Op == Remove {
		return patchCondition{Directive: "delete", Type: s.Key}
	}
	status, reason, message := keys.ParseCondition(s.New)
	out := patchCondition{Type: s.Key, Status: status, Reason: &reason, Message: &message}
	if p.now.IsZero() {
		return out
	}
	now := p.now
	out.LastHeartbeatTime = &now
	if have := p.state.condition(s.Key); have == nil || have.Status != status {
		out.LastTransitionTime = &now
	}
	return out
}

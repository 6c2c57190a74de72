// Package desired decides what Assay wants of a Node, and which objects are the reason, from objects and the record alone. The controller, and
// the programs that explain what it does, call it: what has to wait nevertheless, and why, only the controller knows; see package hold.
package desired

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// Settings are those of the administrator that decide what is desired.
type Settings struct {
	// Policy says what a plan may change.
	Policy plan.Policy
	// FailTaint is put on nodes that a fail action freezes; nil: none.
	FailTaint *corev1.Taint
	// LossTaint is put on nodes that no longer have what their pods require, without its value here; nil: none.
	LossTaint *corev1.Taint
	// Withholding excludes kinds of outputs. Taints are excluded by the Policy.
	Withholding rules.Withholding
}

// Excludes reports whether the settings exclude a kind of outputs: what the Node has of it is removed, and that needs no other evidence.
func (s *Settings) Excludes(kind keys.Kind) bool {
	switch kind {
	case keys.Label:
		return s.Withholding.Labels
	case keys.Annotation:
		return s.Withholding.Annotations
	case keys.Resource:
		return s.Withholding.ExtendedResources
	case keys.Condition:
		return false
	}
	return !s.Policy.Taints
}

// Outputs are what rules want a node to have. Values and names are complete.
type Outputs struct {
	Labels, Annotations, ExtendedResources, Conditions map[string]string
	Taints                                             []corev1.Taint
	// Failed is the rule that rejects the node, with its message; nil: none does.
	Failed *Failure
	// Suspended is set if the rules of an object are unknown because of a definition.
	Suspended bool `json:",omitzero"`
}

// Failure is a rule that rejects a node, and why.
type Failure struct{ Rule, Message string }

// String returns the text for the annotation and the Event of a failed node.
func (f Failure) String() string { return f.Rule + ": " + f.Message }

// Of returns the outputs of an outcome.
func Of(o *rules.Outcome) Outputs {
	w := Outputs{
		Labels: o.Labels(), Annotations: o.Annotations(), ExtendedResources: o.ExtendedResources(), Conditions: o.NodeConditions(), Taints: o.Taints(),
	}
	if o.Failed != nil {
		w.Failed = &Failure{Rule: o.Failed.Ref.String(), Message: o.Failed.Message}
	}
	return w
}

// KeepFailure makes a rule that has failed a Node go on to do so: whether it still does is unknown.
func (w *Outputs) KeepFailure(node *corev1.Node) {
	if rule, message, failed := strings.Cut(node.Annotations[assayv1alpha1.FailedAnnotation], ": "); failed {
		w.Failed = &Failure{Rule: rule, Message: message}
	}
}

// Others are what is wanted of a Node beside the outputs of rules.
type Others struct {
	// Loss is the taint of lost features; nil: none.
	Loss *corev1.Taint
	// Generation and Now are as in plan.Desired.
	Generation string
	Now        metav1.Time
}

// Plan returns the changes that give a Node what is wanted, before anything has to wait. A node that a fail action rejects keeps its outputs.
// Only an annotation is written, so that users of the Node see that its labels can be out of date, and a taint if the administrator has
// configured one.
func (s *Settings) Plan(node *corev1.Node, out Outputs, others Others) *plan.Plan {
	want := plan.Desired{Taints: out.Taints, Conditions: out.Conditions, Generation: others.Generation, Now: others.Now}
	if !s.Withholding.Labels {
		want.Labels = out.Labels
	}
	if !s.Withholding.Annotations {
		want.Annotations = out.Annotations
	}
	if !s.Withholding.ExtendedResources {
		want.ExtendedResources = out.ExtendedResources
	}
	policy := s.Policy
	if out.Failed == nil {
		if others.Loss != nil {
			if !policy.Taints {
				want.Taints = nil
			}
			policy.Taints, want.Taints = true, append(slices.Clone(want.Taints), *others.Loss)
		}
		return plan.Compute(plan.StateOf(node), want, policy)
	}
	want.Failed = out.Failed.String()
	if s.FailTaint == nil {
		return plan.Compute(plan.StateOf(node), want, policy).Without(func(s plan.Step) bool { return !s.Mark })
	}
	policy.Taints, want.Taints = true, []corev1.Taint{*s.FailTaint}
	return plan.Compute(plan.StateOf(node), want, policy).Without(func(s plan.Step) bool {
		return !s.Mark && (s.Kind != keys.Taint || s.Op == plan.Remove)
	})
}

// LossOn returns the taint of lost features that a node has and the controller owns, nil if there is none.
func (s *Settings) LossOn(node *corev1.Node) *corev1.Taint {
	if s.LossTaint == nil || !slices.ContainsFunc(s.Taints(node), func(t corev1.Taint) bool { return t.MatchTaint(s.LossTaint) }) {
		return nil
	}
	for i := range node.Spec.Taints {
		if t := &node.Spec.Taints[i]; t.MatchTaint(s.LossTaint) {
			return &corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}
		}
	}
	return nil
}

// Taints returns the taints that the controller owns according to the Node.
func (s *Settings) Taints(node *corev1.Node) []corev1.Taint {
	return plan.ParseTaints(node.Annotations[s.Policy.Record.Taints()])
}

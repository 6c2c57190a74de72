package decide

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// Settings are those of the administrator.
type Settings struct {
	// Policy says what a plan may change.
	Policy plan.Policy
	// FailTaint is put on nodes that a fail action freezes; nil: none.
	FailTaint *corev1.Taint
	// LossTaint is put on nodes that no longer have what their pods require, without its value here; nil: none.
	LossTaint *corev1.Taint
	Disable   Disable
	Startup   Startup
	// DryRun evaluates and reports, and writes nothing.
	DryRun bool
	// Ready writes the condition FeaturesReady.
	Ready bool
	// Requests removes labels of materialized requests from nodes that do not meet them.
	Requests bool
	// Nudge notifies schedulers of changed features by an annotation.
	Nudge bool
}

// Disable excludes kinds of outputs.
type Disable struct{ Labels, Annotations, ExtendedResources bool }

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

// switchedOff reports whether a step removes an output that the configuration disables: that needs no other evidence.
func (s *Settings) switchedOff(step plan.Step) bool {
	switch step.Kind {
	case keys.Label:
		return s.Disable.Labels
	case keys.Annotation:
		return s.Disable.Annotations
	case keys.Resource:
		return s.Disable.ExtendedResources
	case keys.Condition:
		return false
	}
	return !s.Policy.Taints
}

// takes reports whether a step takes a key from a node for another reason than that the configuration disables it.
func (s *Settings) takes(step plan.Step) bool { return step.Takes() && !s.switchedOff(step) }

// taintsLoss reports whether a step changes the taint of lost features.
func (s *Settings) taintsLoss(step plan.Step) bool {
	return s.LossTaint != nil && step.Kind == keys.Taint && step.Key == keys.TaintName(*s.LossTaint)
}

// lossOn returns the taint of lost features that a node has and the controller owns, nil if there is none.
func (s *Settings) lossOn(node *corev1.Node) *corev1.Taint {
	if s.LossTaint == nil || !slices.ContainsFunc(s.ours(node), func(t corev1.Taint) bool { return t.MatchTaint(s.LossTaint) }) {
		return nil
	}
	for i := range node.Spec.Taints {
		if t := &node.Spec.Taints[i]; t.MatchTaint(s.LossTaint) {
			return &corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}
		}
	}
	return nil
}

// ours returns the taints that the controller owns according to the Node.
func (s *Settings) ours(node *corev1.Node) []corev1.Taint {
	return plan.ParseTaints(node.Annotations[s.Policy.Record.Taints()])
}

// Evicts reports whether a step adds a taint that evicts running pods, or that of lost features: with another effect it closes nodes, and
// something else moves their pods.
func (s *Settings) Evicts(step plan.Step) bool {
	return step.Kind == keys.Taint && step.Op == plan.Add &&
		(s.taintsLoss(step) || strings.HasSuffix(step.Key, ":"+string(corev1.TaintEffectNoExecute)))
}

// Evicted reports whether a node has a taint that the controller owns and that is added at the pace of evictions.
func (s *Settings) Evicted(node *corev1.Node) bool {
	if s.lossOn(node) != nil {
		return true
	}
	ours := s.ours(node)
	return slices.ContainsFunc(node.Spec.Taints, func(have corev1.Taint) bool {
		return have.Effect == corev1.TaintEffectNoExecute && slices.ContainsFunc(ours, func(t corev1.Taint) bool { return have.MatchTaint(&t) })
	})
}

// beginsEviction reports whether a plan adds such a taint to a node that has none.
func (s *Settings) beginsEviction(p *plan.Plan, node *corev1.Node) bool {
	return slices.ContainsFunc(p.Steps, s.Evicts) && !s.Evicted(node)
}

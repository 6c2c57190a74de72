package decide

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
	"github.com/assay-project/assay/settings"
)

// Settings are those of the administrator.
type Settings struct {
	desired.Settings
	Startup Startup
	// Ready writes the condition FeaturesReady.
	Ready bool
	// Requests removes labels of materialized requests from nodes that do not meet them.
	Requests bool
	// NotifySchedulers notifies schedulers of changed features by an annotation.
	NotifySchedulers bool
}

// SettingsOf returns what decisions depend on of the settings.
func SettingsOf(s *settings.Settings) Settings {
	return Settings{
		Settings: s.Desired(), Startup: Startup{Key: s.StartupTaint, FailOpenAfter: s.FailOpenAfter}, Ready: s.FeaturesReady,
		Requests: s.Materialized().Total > 0, NotifySchedulers: s.FeatureGates[settings.GateScheduling],
	}
}

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

// takes reports whether a step takes a key from a node for another reason than that the configuration disables it.
func (s *Settings) takes(step plan.Step) bool { return step.Takes() && !s.Excludes(step.Kind) }

// taintsLoss reports whether a step changes the taint of lost features.
func (s *Settings) taintsLoss(step plan.Step) bool {
	return s.LossTaint != nil && step.Kind == keys.Taint && step.Key == keys.TaintName(*s.LossTaint)
}

// Evicts reports whether a step adds a taint that evicts running pods, or that of lost features: with another effect it closes nodes, and
// something else moves their pods.
func (s *Settings) Evicts(step plan.Step) bool {
	return step.Kind == keys.Taint && step.Op == plan.Add &&
		(s.taintsLoss(step) || strings.HasSuffix(step.Key, ":"+string(corev1.TaintEffectNoExecute)))
}

// Evicted reports whether a node has a taint that the controller owns and that is added at the pace of evictions.
func (s *Settings) Evicted(node *corev1.Node) bool {
	if s.LossOn(node) != nil {
		return true
	}
	ours := s.Taints(node)
	return slices.ContainsFunc(node.Spec.Taints, func(have corev1.Taint) bool {
		return have.Effect == corev1.TaintEffectNoExecute && slices.ContainsFunc(ours, func(t corev1.Taint) bool { return have.MatchTaint(&t) })
	})
}

// beginsEviction reports whether a plan adds such a taint to a node that has none.
func (s *Settings) beginsEviction(p *plan.Plan, node *corev1.Node) bool {
	return slices.ContainsFunc(p.Steps, s.Evicts) && !s.Evicted(node)
}

package decide

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// The reasons of the condition FeaturesReady.
const (
	ReadyApplied     = "FeaturesApplied"
	ReadyNoFeatures  = "NoFeatures"
	ReadyStaleBoot   = "StaleBoot"
	ReadySetsMissing = "FeatureSetsMissing"
	ReadyPending     = "RulesPending"
	ReadyRules       = "RulesUnknown"
	ReadyFailed      = "Failed"
)

// withReady returns a plan that also says whether the node is ready for pods that need features.
//
// A node is ready once the labels that follow from the features of this boot are written, and stays so until its next boot: a rule
// that changes later, or a feature that flaps, must not close a gate behind which pods run already. Unmet is the condition of a node
// that is not ready because of labels that it joined with, else nil.
func (p *Pass) withReady(d *Decision, in *plan.Plan, unmet *corev1.NodeCondition) *plan.Plan {
	switch {
	case p.Settings.Policy.Record.Instance != "":
		return in // there is one condition, and the controller without an instance writes it
	case !p.Settings.Ready:
		return in.WithReady(nil)
	}
	want, keep := p.judgeReady(d.Wanted, in)
	if unmet != nil && !keep && want != nil && (want.Status == corev1.ConditionTrue || want.Reason == ReadyPending) {
		want = unmet
	}
	if keep {
		return in
	}
	return in.WithReady(want)
}

// judgeReady returns the condition that the node should have, nil for none, or that it keeps what it has.
func (p *Pass) judgeReady(wanted, in *plan.Plan) (want *corev1.NodeCondition, keep bool) {
	have, worker := plan.StateOf(p.Node).Ready(), p.Features.Worker
	if worker == nil {
		return p.judgeNothing(have)
	}
	boot := worker.Boot
	if boot == "" && len(worker.Unread) > 0 { // which boot it has examined is among what is unknown
		if isReady := applied(p.Node.Status.NodeInfo.BootID); have != nil && have.Status == isReady.Status && have.Message == isReady.Message {
			return isReady, false
		}
		return sourcesUnread(worker.Unread), false
	}
	if boot == "" {
		return nil, false // not a worker of Assay, or it cannot read the boot ID
	}
	if now := p.Node.Status.NodeInfo.BootID; now != "" && now != boot {
		if missing := worker.MissingSets; missing != "" {
			return setsMissing(strings.Split(missing, ",")), false
		}
		return unready(ReadyStaleBoot, "The worker has not published features since the node rebooted: they are of boot %s, the node runs boot %s.", boot, now), false
	}
	if failed := p.Rules.Failed; failed != nil {
		return unready(ReadyFailed, "The action fail of rule %s keeps the node as it was: %s", failed.Rule, failed.Message), false
	}
	ready := applied(boot)
	if have != nil && have.Status == ready.Status && have.Message == ready.Message {
		return ready, false
	}
	if len(worker.Unread) > 0 {
		return sourcesUnread(worker.Unread), false
	}
	if waiting := p.Features.DevicesIncomplete; len(waiting) > 0 {
		return unready(assayv1alpha1.ReasonWaitingForDrivers, "DRA drivers that have published devices on this node have not published all of them since it booted: %s.",
			strings.Join(waiting, ", ")), false
	}
	if p.Rules.Suspended {
		return unready(ReadyRules, "The rules of an object are unknown, because the definition of its kind is not Assay's or was not when the object was "+
			"written: see the condition Accepted of the objects, and the Events of the Deployment of the controller."), false
	}
	if waiting := p.waiting(wanted, in); len(waiting) > 0 {
		return unready(ReadyPending, "Not written yet: %s.", hold.Some(waiting)), false
	}
	if p.incomplete {
		return nil, true
	}
	for _, s := range in.Steps {
		if s.Kind == keys.Taint && (s.Op == plan.Add || s.Op == plan.Change) {
			return nil, true // taints are a write of their own, and the pass after it says that the node is ready
		}
	}
	return ready, false
}

// judgeNothing is judgeReady of a node of which no features count. One that never had any may be without a worker on purpose, unless it
// has joined with the start-up taint.
func (p *Pass) judgeNothing(have *corev1.NodeCondition) (want *corev1.NodeCondition, keep bool) {
	f := &p.Features
	switch {
	case have != nil && f.Unknown && have.Status == corev1.ConditionTrue && have.Message == applied(p.Node.Status.NodeInfo.BootID).Message:
		return nil, true // it was ready before this process started, and has not booted since
	case len(f.MissingSets) > 0:
		return setsMissing(f.MissingSets), false
	case f.LeftOut != "" && f.Unknown && f.Held == 0: // the object is there, and too large
		return unreadable(f.LeftOut), false
	case have == nil && !p.Settings.Startup.on(p.Node):
		return nil, false
	case have != nil && f.Unknown:
		return nil, true
	case f.LeftOut != "":
		return unreadable(f.LeftOut), false
	}
	return unready(ReadyNoFeatures, "The node's worker has not published a NodeFeature. Check its pod on the node."), false
}

// waiting lists the steps of the wanted plan that a later pass will carry out. It leaves out keys that the API server rejects or that
// another client keeps changing: they are reported elsewhere, and may never be written. The taint of lost features is not for new pods.
func (p *Pass) waiting(wanted, in *plan.Plan) (out []string) {
	for _, s := range wanted.Steps {
		if s.Mark || in.Has(s) || p.Memory.refuses(s, p.Now) > 0 || p.contests(s) > 0 || p.key(s).Flaps > 0 || p.lost(s) {
			continue
		}
		text := name(s)
		if s.Op == plan.Remove {
			text = "removal of " + text
		}
		out = append(out, text)
	}
	return out
}

func applied(boot string) *corev1.NodeCondition {
	return &corev1.NodeCondition{
		Status: corev1.ConditionTrue, Reason: ReadyApplied, Message: "All rules are applied to the features of boot " + boot + ".",
	}
}

// setsMissing returns the condition of a node whose worker's object names sets that do not exist.
func setsMissing(sets []string) *corev1.NodeCondition {
	if slices.Contains(sets, assayv1alpha1.PrunedFeatureSets) {
		return unready(ReadySetsMissing, "The API server dropped spec.featureSets of the worker's object: apply the CustomResourceDefinition nodefeatures.%s of Assay, "+
			"unless that was done and the worker has not published since.", nfdv1alpha1.GroupName)
	}
	return unready(ReadySetsMissing, "The worker's object names NodeFeatureSets that do not exist: %s.", strings.Join(sets, ", "))
}

// sourcesUnread returns the condition of a node whose worker has not read all sources.
func sourcesUnread(unread []string) *corev1.NodeCondition {
	return unready(assayv1alpha1.ReasonSourcesUnread, "These sources of the worker have not been read since the node booted: %s.", strings.Join(unread, ", "))
}

func unreadable(why string) *corev1.NodeCondition {
	return unready(ReadyNoFeatures, "The worker's object cannot be read: %s.", why)
}

func unready(reason, format string, args ...any) *corev1.NodeCondition {
	return &corev1.NodeCondition{Status: corev1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

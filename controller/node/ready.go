package node

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/controller/hold"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// The reasons of the condition FeaturesReady.
const (
	readyApplied     = "FeaturesApplied"
	readyNoFeatures  = "NoFeatures"
	readyStaleBoot   = "StaleBoot"
	readySetsMissing = "FeatureSetsMissing"
	readyPending     = "RulesPending"
	readyDrivers     = "WaitingForDrivers"
	readyFailed      = "Failed"
)

// withReady returns a plan that also says whether the node is ready for pods that need features: p is what is carried out of a wish.
//
// A node is ready once the labels that follow from the features of this boot are written, and stays so until its next boot: a rule
// that changes later, or a feature that flaps, must not close a gate behind which pods run already. Unmet is the condition of a node
// that is not ready because of labels that it joined with, else nil.
func (r *Reconciler) withReady(j *judge, wish, p *plan.Plan, unmet *corev1.NodeCondition) *plan.Plan {
	switch {
	case r.policy.Record.Instance != "":
		return p // there is one condition, and the controller without an instance writes it
	case !r.ready:
		return p.WithReady(nil)
	}
	have := plan.StateOf(j.node).Ready()
	want, keep := r.judgeReady(j, have, wish, p)
	if unmet != nil && !keep && want != nil && (want.Status == corev1.ConditionTrue || want.Reason == readyPending) {
		want = unmet
	}
	if keep {
		return p
	}
	return p.WithReady(want)
}

// judgeReady returns the condition that the node should have, nil for none, or that it keeps what it has.
func (r *Reconciler) judgeReady(j *judge, have *corev1.NodeCondition, wish, p *plan.Plan) (want *corev1.NodeCondition, keep bool) {
	own := j.state.Own
	if own == nil {
		return r.judgeNothing(j, have)
	}
	boot := own.Spec.Features.Facts.Boot()
	if boot == "" {
		return nil, false // not a worker of Assay, or it does not examine the system
	}
	missing := own.Annotations[assayv1alpha1.MissingFeatureSetsAnnotation]
	if now := j.node.Status.NodeInfo.BootID; now != "" && now != boot {
		if missing != "" {
			return unready(readySetsMissing, "The worker's object names NodeFeatureSets that do not exist: %s.", missing), false
		}
		return unready(readyStaleBoot, "The worker has not published features since the node rebooted: they are of boot %s, the node runs boot %s.", boot, now), false
	}
	if j.outcome.Failed != nil {
		return unready(readyFailed, "The action fail of rule %s keeps the node as it was: %s", j.outcome.Failed.Ref, j.outcome.Failed.Message), false
	}
	ready := applied(boot)
	if have != nil && have.Status == ready.Status && have.Message == ready.Message {
		return ready, false
	}
	if waiting := j.state.Devices.Incomplete; len(waiting) > 0 {
		return unready(readyDrivers, "DRA drivers that have published devices on this node have not published all of them since it booted: %s.",
			strings.Join(waiting, ", ")), false
	}
	if waiting := r.waiting(j, wish, p); len(waiting) > 0 {
		return unready(readyPending, "Not written yet: %s.", hold.Some(waiting)), false
	}
	if j.incomplete {
		return nil, true
	}
	for _, s := range p.Steps {
		if s.Kind == keys.Taint && (s.Op == plan.Add || s.Op == plan.Change) {
			return nil, true // taints are a write of their own, and the pass after it says that the node is ready
		}
	}
	return ready, false
}

// judgeNothing is judgeReady of a node of which no features count. One that never had any may be without a worker on purpose, unless it
// has joined with the start-up taint.
func (r *Reconciler) judgeNothing(j *judge, have *corev1.NodeCondition) (want *corev1.NodeCondition, keep bool) {
	err := r.inputs.LeftOutOwn(j.state)
	var missing *featuresets.MissingError
	switch {
	case have != nil && j.blind && have.Status == corev1.ConditionTrue && have.Message == applied(j.node.Status.NodeInfo.BootID).Message:
		return nil, true // it was ready before this process started, and has not booted since
	case errors.As(err, &missing):
		return unready(readySetsMissing, "The worker's object names NodeFeatureSets that do not exist: %s.", strings.Join(missing.Sets, ", ")), false
	case have == nil && !r.startup.on(j.node):
		return nil, false
	case have != nil && j.blind:
		return nil, true
	case err != nil:
		return unready(readyNoFeatures, "The worker's object cannot be read: %v.", err), false
	}
	return unready(readyNoFeatures, "The node's worker has not published a NodeFeature. Check its pod on the node."), false
}

// waiting lists the steps of the desired plan that a later pass will carry out. It leaves out keys that the API server rejects or that
// another client keeps changing: they are reported elsewhere, and may never be written. The taint of lost features is not for new pods.
func (r *Reconciler) waiting(j *judge, wish, p *plan.Plan) (out []string) {
	now := r.clock.Now()
	for _, s := range wish.Steps {
		if s.Mark || p.Has(s) {
			continue
		}
		_, refused := j.known.refuses(s, now)
		_, contested := j.known.contests(s, now)
		_, flaps := r.changes.Held(j.node.Name, name(s))
		if refused || contested || flaps || j.lost(s) {
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
		Status: corev1.ConditionTrue, Reason: readyApplied, Message: "All rules are applied to the features of boot " + boot + ".",
	}
}

func unready(reason, format string, args ...any) *corev1.NodeCondition {
	return &corev1.NodeCondition{Status: corev1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

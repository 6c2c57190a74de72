package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/controller/node/decide"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/sim/apiserver"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/plan"
	"github.com/assay-project/assay/settings"
)

const startupTaint = "example.com/pending"

// withReady lets the controller write the condition FeaturesReady and remove the start-up taint.
func withReady(r *Reconciler) {
	r.settings.Ready, r.settings.Startup = true, decide.Startup{Key: startupTaint, FailOpenAfter: settings.DefaultFailOpenAfter}
}

// ofBoot returns the object of a worker that has examined a boot.
func ofBoot(boot string, elements M) *nodefeature.NodeFeature {
	features := map[string]facts.Feature{"test.attr": {Attributes: facts.NewAttributes(elements)}}
	if boot != "" {
		features[nfdv1alpha1.BootFeature] = facts.Feature{Attributes: facts.NewAttributes(M{nfdv1alpha1.BootElement: boot})}
	}
	return published("n", features)
}

// boots sets the boot that the kubelet reports.
func (w *passes) boots(id string) {
	w.Helper()
	w.change("/status", apiserver.Object{"status": apiserver.Object{"nodeInfo": apiserver.Object{"bootID": id}}})
}

// taint replaces the taints of the Node by taints NoSchedule with these keys.
func (w *passes) taint(keys ...string) {
	w.Helper()
	list := []any{}
	for _, key := range keys {
		list = append(list, apiserver.Object{"key": key, "effect": "NoSchedule"})
	}
	w.change("", apiserver.Object{"spec": apiserver.Object{"taints": list}})
}

// ready returns the condition FeaturesReady as status, reason and message; empty: the Node has none.
func (w *passes) ready() string {
	w.Helper()
	if c := plan.StateOf(w.node()).Ready(); c != nil {
		return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
	}
	return ""
}

// isReady checks the beginning of the condition FeaturesReady; empty: the Node must have none.
func (w *passes) isReady(when, want string) {
	w.Helper()
	if got := w.ready(); !strings.HasPrefix(got, want) || want == "" && got != "" {
		w.Errorf("%s the condition is %q, want %q", when, got, want)
	}
}

// tainted reports whether the Node has a taint with this key.
func (w *passes) tainted(key string) bool {
	w.Helper()
	return slices.ContainsFunc(w.node().Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// TestANodeIsReadyOnceTheFeaturesOfItsBootAreApplied follows a node from its creation over a reboot and a restart of the controller.
func TestANodeIsReadyOnceTheFeaturesOfItsBootAreApplied(t *testing.T) {
	w := newPasses(t, withReady)
	w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
	w.boots("b1")
	w.pass()
	w.isReady("without a worker and without the taint", "")
	w.taint(startupTaint)
	if again := w.pass(); again <= 0 || again > settings.DefaultFailOpenAfter {
		t.Errorf("again after %s", again)
	}
	w.isReady("without a worker", "False "+decide.ReadyNoFeatures)
	w.publish(ofBoot("b1", M{"link": "up"}))
	w.pass()
	w.hasLabels("with features", M{"up": "true"})
	w.isReady("with features", "True "+decide.ReadyApplied)
	if !w.tainted(startupTaint) {
		t.Error("the start-up taint is removed in the write that says that the node is ready")
	}
	w.pass()
	if w.tainted(startupTaint) {
		t.Error("the start-up taint stays on a ready node")
	}
	w.boots("b2")
	w.pass()
	w.isReady("after a reboot", "False "+decide.ReadyStaleBoot)
	old := ofBoot("b1", M{"link": "up"})
	old.Annotations = M{assayv1alpha1.MissingFeatureSetsAnnotation: "set-1"}
	w.publish(old)
	w.pass()
	w.isReady("while sets are missing", "False "+decide.ReadySetsMissing+": The worker's object names NodeFeatureSets that do not exist: set-1.")
	now := ofBoot("b2", M{"link": "up"})
	w.publish(now)
	w.pass()
	w.isReady("with features of the new boot", "True "+decide.ReadyApplied)

	// A process that has not seen the worker's object keeps a condition of this boot, and that of an earlier one until it knows more.
	w.unpublish(now)
	w.restart(withReady)
	w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
	w.pass()
	w.isReady("after a restart without the worker's object", "True "+decide.ReadyApplied)
	w.boots("b3")
	w.pass()
	w.isReady("after a restart and a reboot", "True "+decide.ReadyApplied+": All rules are applied to the features of boot b2.")
	w.clock.Step(settings.DefaultRemovalGracePeriod)
	w.pass()
	w.isReady("when the features no longer count", "False "+decide.ReadyNoFeatures)

	// A worker that does not examine the system cannot say whether its features are current.
	w.publish(ofBoot("", M{"link": "up"}))
	w.pass()
	w.isReady("with features of no boot", "")

	w.restart(func(r *Reconciler) { withReady(r); r.settings.Ready = false })
	w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
	w.publish(ofBoot("b3", M{"link": "up"}))
	w.pass()
	w.isReady("without the setting", "")
}

// TestFlappingEndsWithABoot: a node was ready while a label of its last boot was still held, because it had changed too often before.
func TestFlappingEndsWithABoot(t *testing.T) {
	w := newPasses(t, withReady)
	w.rule("r", nfdv1alpha1.Rule{
		LabelsTemplate: "{{range .test.attr}}link={{.Value}}\n{{end}}",
		MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: "test.attr", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{
			"link": {Op: nfdv1alpha1.MatchExists},
		}}},
	})
	w.boots("b1")
	for _, value := range []string{"a", "b", "c", "d"} {
		w.publish(ofBoot("b1", M{"link": value}))
		w.pass()
		w.clock.Step(time.Second)
	}
	w.hasLabels("while it flaps", M{"link": "c"})
	w.boots("b2")
	w.publish(ofBoot("b2", M{"link": "e"}))
	w.pass()
	w.hasLabels("after the boot", M{"link": "e"})
	w.isReady("after the boot", "True "+decide.ReadyApplied+": All rules are applied to the features of boot b2.")
	for _, value := range []string{"f", "g", "h"} {
		w.publish(ofBoot("b2", M{"link": value}))
		w.pass()
	}
	w.hasLabels("while it flaps again", M{"link": "g"})
}

// TestANodeWithOutputsThatWaitIsNotReady holds a removal, and then lets the node be ready although the API server rejects a key.
func TestANodeWithOutputsThatWaitIsNotReady(t *testing.T) {
	w := newPasses(t, withReady, func(r *Reconciler) {
		r.limits.breaker = budget.NewBreaker(budget.Budget{Window: time.Hour, Hold: time.Hour}, r.clock)
	})
	w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
	w.boots("b1")
	w.publish(ofBoot("b1", M{"link": "up"}))
	w.pass()
	w.isReady("with features", "True "+decide.ReadyApplied)
	w.publish(ofBoot("b1", M{"link": "down"}))
	w.pass()
	w.isReady("in the same boot", "True "+decide.ReadyApplied)
	w.boots("b2")
	w.publish(ofBoot("b2", M{"link": "down"}))
	w.pass()
	w.isReady("while a removal is held", "False "+decide.ReadyPending+": Not written yet: removal of label "+prefix+"up.")
	w.clock.Step(time.Hour)
	w.pass()
	w.isReady("after the hold time", "True "+decide.ReadyApplied)
}

// TestReadinessWaitsForTaints: taints are a write of their own, and the node is ready in the pass after it.
func TestReadinessWaitsForTaints(t *testing.T) {
	w := newPasses(t, withReady)
	w.rule("r", nfdv1alpha1.Rule{Taints: []corev1.Taint{{Key: prefix + "t", Effect: corev1.TaintEffectNoSchedule}}})
	w.boots("b1")
	w.publish(ofBoot("b1", nil))
	w.pass()
	w.isReady("in the pass that adds a taint", "")
	w.pass()
	w.isReady("in the next pass", "True "+decide.ReadyApplied)
}

// TestOneInstanceWritesTheCondition: a controller with an instance leaves the condition to the one without.
func TestOneInstanceWritesTheCondition(t *testing.T) {
	w := newPasses(t, withReady, func(r *Reconciler) { r.settings.Policy.Record.Instance = "blue" })
	w.rule("r", nfdv1alpha1.Rule{Labels: M{"label": "1"}})
	w.boots("b1")
	w.publish(ofBoot("b1", nil))
	w.pass()
	w.hasLabels("with an instance", M{"label": "1"})
	w.isReady("with an instance", "")
}

// TestAFailedNodeIsNotReady names the rule and its message.
func TestAFailedNodeIsNotReady(t *testing.T) {
	w := newPasses(t, withReady)
	w.rule("r", nfdv1alpha1.Rule{Actions: []nfdv1alpha1.Action{{Op: "fail", Args: nfdv1alpha1.JSON{Raw: []byte(`{"msg": "broken"}`)}}}})
	w.boots("b1")
	w.publish(ofBoot("b1", nil))
	w.pass()
	w.isReady("with a failure", "False "+decide.ReadyFailed+": The action fail of rule r/a keeps the node as it was: broken")
	if got := w.says("NodeRejected"); len(got) != 1 {
		t.Errorf("Events: %q", got)
	}
}

// TestAnUnreadableObjectOfTheWorkerIsTheReason tells missing feature sets from an object that cannot be read.
func TestAnUnreadableObjectOfTheWorkerIsTheReason(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		want   string
		events int
	}{
		"MissingSets": {&featuresets.MissingError{Sets: []string{"a", "b"}}, "False " + decide.ReadySetsMissing + ": The worker's object names NodeFeatureSets that do not exist: a, b.", 1},
		"Pruned": {&featuresets.MissingError{Sets: []string{"*"}}, "False " + decide.ReadySetsMissing +
			": The API server dropped spec.featureSets of the worker's object: apply the CustomResourceDefinition nodefeatures.nfd.k8s-sigs.io of Assay, " +
			"unless that was done and the worker has not published since.", 1},
		"TooLarge": {&featuresets.MissingError{Bytes: 2_000_000}, "False " + decide.ReadyNoFeatures +
			": The worker's object cannot be read: it has 2000000 bytes with the NodeFeatureSets that it names; at most 1572864 are read: publish less.", 0},
		"Invalid": {fmt.Errorf("unexpected end"), "False " + decide.ReadyNoFeatures + ": The worker's object cannot be read: unexpected end.", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPasses(t, withReady)
			w.rule("r", nfdv1alpha1.Rule{Labels: M{"label": "1"}})
			w.taint(startupTaint)
			broken := published("n", nil)
			broken.Spec.Features.Facts, broken.Spec.Features.Err = nil, tc.err
			w.publish(broken)
			w.pass()
			w.isReady("with such an object", tc.want)
			if got := w.says("FeatureSetsMissing"); len(got) != tc.events {
				t.Errorf("Events: %q, want %d", got, tc.events)
			}
		})
	}
}

// TestObjectsOverTheBudgetAreCountedInOneEvent leaves out two objects of other publishers.
func TestObjectsOverTheBudgetAreCountedInOneEvent(t *testing.T) {
	w := newPasses(t)
	w.rule("r", nfdv1alpha1.Rule{Labels: M{"label": "1"}})
	w.publish(link("up"))
	over := nodefeature.NewBudget(namespace).Fits(namespace, "other", "n", nodefeature.MaxMissingBytes+1)
	for _, name := range []string{"other-1", "other-2"} {
		f := published(name, nil)
		f.Spec.Features.Err = over
		w.publish(f)
	}
	w.pass()
	if got := w.says("TooManyNodeFeatures"); len(got) != 1 || !strings.Contains(got[0], "2 are left out") {
		t.Errorf("Events: %q", got)
	}
	if w.pass(); len(w.says("FeatureSetsMissing")) != 0 {
		t.Error("an object over the budget is reported as one with missing sets")
	}
}

// TestAGateThatDoesNotOpenIsOpenedLate removes the start-up taint of a node that is never ready, and says why.
func TestAGateThatDoesNotOpenIsOpenedLate(t *testing.T) {
	w := newPasses(t, withReady)
	w.rule("r", nfdv1alpha1.Rule{Labels: M{"label": "1"}})
	w.taint(startupTaint)
	w.pass()
	if !w.tainted(startupTaint) || len(w.says("StartupTaintTimeout")) != 0 {
		t.Fatal("the gate opens at once")
	}
	w.clock.Step(settings.DefaultFailOpenAfter)
	w.pass()
	if w.tainted(startupTaint) {
		t.Error("the gate stays closed")
	}
	if got := w.says("StartupTaintTimeout"); len(got) != 1 || !strings.Contains(got[0], decide.ReadyNoFeatures+": The node's worker has not published a NodeFeature") {
		t.Errorf("Events: %q", got)
	}
}

package node

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/controller/node/decide"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/sim/apiserver"
)

// TestOnlyUnexplainedRemovalsAreConfirmed runs passes while a NodeFeature exists that the cache lacks: they must not wait for it if they
// remove nothing, or if it is known why.
func TestOnlyUnexplainedRemovalsAreConfirmed(t *testing.T) {
	start := func(t *testing.T, change ...func(*Reconciler)) *passes {
		w := newPasses(t, change...)
		w.publish(link("up"))
		w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
		w.pass()
		w.store("hidden")
		return w
	}
	t.Run("Addition", func(t *testing.T) {
		w := start(t)
		w.rule("q", nfdv1alpha1.Rule{Labels: M{"new": "true"}})
		w.pass()
		w.hasLabels("an addition", M{"up": "true", "new": "true"})
	})
	t.Run("SeenGiven", func(t *testing.T) {
		w := start(t)
		w.publish(link("down"))
		w.pass()
		w.hasLabels("a label that this process has seen given", M{"up": ""})
	})
	t.Run("Disabled", func(t *testing.T) {
		w := start(t)
		w.r.settings.Withholding.Labels = true
		w.pass()
		w.hasLabels("a disabled output", M{"up": ""})
	})
	t.Run("Nothing", func(t *testing.T) {
		w := start(t)
		w.restart()
		w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
		if again := w.pass(); again != 0 {
			t.Errorf("a pass that changes nothing waits for %s", again)
		}
	})
	t.Run("NotReady", func(t *testing.T) {
		w := start(t)
		w.restart(withReady)
		w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
		w.taint(startupTaint)
		w.boots("b1")
		w.publish(ofBoot("b0", M{"link": "up"}))
		w.pass()
		w.isReady("with old features", "False "+decide.ReadyStaleBoot)
		w.publish(ofBoot("b1", M{"link": "up"}))
		if again := w.pass(); again != retryIncomplete {
			t.Errorf("again after %s, want %s", again, retryIncomplete)
		}
		w.isReady("while an object is missing", "False "+decide.ReadyStaleBoot)
		w.do("DELETE", featuresPath+"/hidden", nil)
		w.pass()
		w.isReady("after its deletion", "True "+decide.ReadyApplied)
	})
}

// TestThePaceIsForTaintsThatEvict: other changes, and dry runs, do not wait for it.
func TestThePaceIsForTaintsThatEvict(t *testing.T) {
	pace := func(r *Reconciler) {
		r.limits.gate = budget.NewGate(budget.Evictions{Every: time.Hour, Share: 1}, r.clock)
	}
	w := newPasses(t, pace)
	w.publish(link("up"))
	w.rule("r", nfdv1alpha1.Rule{Labels: M{"a": "1"}})
	if again := w.pass(); again != 0 || len(w.says("EvictionHeld")) != 0 {
		t.Errorf("a label waits for %s", again)
	}
	w.r.settings.Withholding.All = true
	w.rule("r", nfdv1alpha1.Rule{Taints: []corev1.Taint{{Key: prefix + "t", Effect: corev1.TaintEffectNoExecute}}})
	if again := w.pass(); again != 0 || len(w.says("EvictionHeld")) != 0 {
		t.Errorf("a dry run waits for %s", again)
	}
}

// TestReadinessAfterTheWorkersSetsAreLost restarts the controller while the object of a worker cannot be read.
func TestReadinessAfterTheWorkersSetsAreLost(t *testing.T) {
	for name, tc := range map[string]struct{ boot, want string }{
		"SameBoot": {"b1", "True " + decide.ReadyApplied}, "NextBoot": {"b2", "False " + decide.ReadySetsMissing},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPasses(t, withReady)
			rule := func() { w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}})) }
			rule()
			w.boots("b1")
			w.publish(ofBoot("b1", M{"link": "up"}))
			w.pass()
			w.isReady("at first", "True "+decide.ReadyApplied)
			w.boots(tc.boot)
			broken := published("n", nil)
			broken.Spec.Features.Facts, broken.Spec.Features.Err = nil, &featuresets.MissingError{Sets: []string{"a"}}
			w.cache.Put(broken)
			w.restart(withReady)
			rule()
			w.pass()
			w.isReady("after the restart", tc.want)
		})
	}
}

// TestARemovedTaintDoesNotDelayReadiness: only taints that are added could keep pods away that need them.
func TestARemovedTaintDoesNotDelayReadiness(t *testing.T) {
	w := newPasses(t, withReady)
	w.rule("r", nfdv1alpha1.Rule{Taints: []corev1.Taint{{Key: prefix + "t", Effect: corev1.TaintEffectNoSchedule}}})
	w.boots("b1")
	w.publish(ofBoot("b0", nil))
	w.pass()
	w.isReady("with old features", "False "+decide.ReadyStaleBoot)
	w.rule("r", nfdv1alpha1.Rule{Labels: M{"a": "1"}})
	w.publish(ofBoot("b1", nil))
	w.pass()
	w.isReady("in the pass that removes a taint", "True "+decide.ReadyApplied)
}

// TestAFrozenNodeKeepsUnmetLabels: a fail action prevents all writes but its own.
func TestAFrozenNodeKeepsUnmetLabels(t *testing.T) {
	const label = assayv1alpha1.RequestLabelNamespace + "/ml.amx"
	w := newPasses(t, func(r *Reconciler) { withReady(r); r.settings.Requests = true })
	w.rule("r", nfdv1alpha1.Rule{Actions: []nfdv1alpha1.Action{{Op: "fail", Args: nfdv1alpha1.JSON{Raw: []byte(`{"msg": "broken"}`)}}}})
	w.boots("b1")
	w.label(apiserver.Object{label: "true"})
	w.publish(ofBoot("b1", nil))
	w.pass()
	if w.node().Labels[label] == "" {
		t.Error("the label is removed")
	}
}

// TestLeftOutObjectsAreReportedByKind leaves out objects over the budget, and one with missing sets after them.
func TestLeftOutObjectsAreReportedByKind(t *testing.T) {
	w := newPasses(t)
	w.rule("r", nfdv1alpha1.Rule{Labels: M{"label": "1"}})
	w.publish(link("up"))
	over := nodefeature.NewBudget(namespace).Fits(namespace, "other", "n", nodefeature.MaxMissingBytes+1)
	for name, err := range map[string]error{
		"a": over, "b": over, "c": &featuresets.MissingError{Sets: []string{"s"}}, "d": over, "e": &featuresets.MissingError{Sets: []string{"s"}},
	} {
		f := published(name, nil)
		f.Spec.Features.Err = err
		w.publish(f)
	}
	w.pass()
	var missing, many int
	for len(w.events.Events) > 0 {
		switch e := <-w.events.Events; {
		case strings.Contains(e, "FeatureSetsMissing"):
			missing++
		case strings.Contains(e, "TooManyNodeFeatures") && strings.Contains(e, "3 are left out"):
			many++
		}
	}
	if missing != 2 || many != 1 {
		t.Errorf("%d Events about missing sets, %d about the budget; want 2 and 1", missing, many)
	}
}

// TestAPassAtTheLimitIsNotStuck: only a longer one is.
func TestAPassAtTheLimitIsNotStuck(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w := NewWatchdog(clock)
	defer w.begin("n")()
	clock.SetTime(clock.Now().Add(stuckAfter))
	if err := w.Check(nil); err != nil {
		t.Errorf("at the limit: %v", err)
	}
}

package node

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/internal/nodefeature"
)

// tookAway reports whether a pass was dropped because the cache holds other features than the API server, and how often that was counted.
func (w *passes) tookAway() (dropped bool, counted float64) {
	w.Helper()
	count := func() float64 {
		var m dto.Metric
		if err := w.r.metrics.inconsistent.Write(&m); err != nil {
			w.Fatal(err)
		}
		return m.GetCounter().GetValue()
	}
	before := count()
	_, err := w.try()
	if err != nil && !errors.Is(err, errInconsistent) {
		w.Fatal(err)
	}
	return err != nil, count() - before
}

// TestWrongFactsInMemoryTakeNothingAway lets the cache of the controller hold other features than the API server has in the same version of
// the object, as it did when values were overwritten by the next event of a watch.
func TestWrongFactsInMemoryTakeNothingAway(t *testing.T) {
	valued := ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}})
	copied := nfdv1alpha1.Rule{Labels: M{"copied": "{@test.attr.link}"}}
	for name, tc := range map[string]struct {
		rule    nfdv1alpha1.Rule
		cached  *nodefeature.NodeFeature
		restart bool
	}{
		"ARemoval":                   {valued, link("down"), false},
		"AFeatureIsMissing":          {valued, published("n", attributes("test.other", M{"x": "1"})), false},
		"ARemovalAfterARestart":      {valued, link("down"), true},
		"AnotherValueAfterARestart":  {copied, link("of-another-node"), true},
		"ALabelIsMissingAfterARest.": {copied, published("n", attributes("test.other", M{"x": "1"})), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPasses(t)
			w.publish(link("up"))
			w.rule("r", tc.rule)
			w.pass()
			want := w.node().Labels
			if tc.restart {
				w.restart()
				w.rule("r", tc.rule)
			}
			w.publishAs(link("up"), tc.cached)
			if dropped, counted := w.tookAway(); !dropped || counted != 1 {
				t.Errorf("the pass was dropped: %t, and counted %v times", dropped, counted)
			}
			w.pass() // with what was read
			w.pass()
			for key, value := range want {
				if got := w.node().Labels[key]; got != value {
					t.Errorf("label %s is %q, want %q", key, got, value)
				}
			}
			// Another version of the object counts again.
			w.publish(link("down"))
			if dropped, counted := w.tookAway(); dropped || counted != 0 {
				t.Errorf("a pass over another version was dropped: %t, and counted %v times", dropped, counted)
			}
			if got := w.node().Labels[prefix+"up"]; got != "" {
				t.Errorf("the label of a feature that is gone is %q", got)
			}
		})
	}
}

// TestAnotherVersionInTheCacheTakesNothingAway lets the cache lag behind: nothing is wrong, and the pass is repeated.
func TestAnotherVersionInTheCacheTakesNothingAway(t *testing.T) {
	w := newPasses(t)
	w.publish(link("up"))
	w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
	w.pass()
	late := link("down")
	w.publishAs(link("up"), late)
	late.ResourceVersion = "1"
	w.cache.Put(late)
	if _, err := w.try(); err == nil {
		t.Error("a pass with an old version is carried out")
	}
	w.hasLabels("with an old version", M{"up": "true"})
}

// TestWrongFactsAreLoggedWithoutMaskedValues logs the feature and both values of the first element that differs.
func TestWrongFactsAreLoggedWithoutMaskedValues(t *testing.T) {
	for element, want := range map[string]string{
		"card":        `"feature"="test.attr" "element"="card" "inMemory"="s3cret-2" "inTheAPIServer"="s3cret-1"`,
		"db-password": `"feature"="test.attr" "element"="db-password" "inMemory"="(masked)" "inTheAPIServer"="(masked)"`,
	} {
		w := newPasses(t)
		right, wrong := M{"link": "up", element: "s3cret-1"}, M{"link": "down", element: "s3cret-2"}
		w.publish(published("n", attributes("test.attr", right)))
		w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
		w.pass()
		w.publishAs(published("n", attributes("test.attr", right)), published("n", attributes("test.attr", wrong)))
		var lines []string
		log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
		if _, err := w.reconcile(logf.IntoContext(t.Context(), log)); !errors.Is(err, errInconsistent) {
			t.Fatal(err)
		}
		all := strings.Join(lines, "\n")
		if !strings.Contains(all, want) {
			t.Errorf("the log lacks %s:\n%s", want, all)
		}
		if element == "db-password" && strings.Contains(all, "s3cret") {
			t.Errorf("the log has a masked value:\n%s", all)
		}
	}
}

// TestARemovalBecauseOfFeaturesIsAnEvent names the key, its old value, the rule, the feature and its publisher.
func TestARemovalBecauseOfFeaturesIsAnEvent(t *testing.T) {
	w := newPasses(t)
	w.publish(link("up"))
	w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
	w.pass()
	w.publish(link("down"))
	w.pass()
	got := w.says("FeaturesLost")
	want := "label " + prefix + "up=true (rule r/a: test.attr of NodeFeature " + namespace + "/n)"
	if len(got) != 1 || !strings.Contains(got[0], want) {
		t.Errorf("Events %q, want one with %q", got, want)
	}
	w.clock.Step(time.Hour) // the label does not flap
	w.publish(link("up"))
	w.pass()
	w.publish(published("n", attributes("test.other", M{"x": "1"})))
	w.pass()
	if got := w.says("FeaturesLost"); len(got) != 1 || !strings.Contains(got[0], "rule r/a: no NodeFeature has test.attr") {
		t.Errorf("Events %q, want one about a feature that nothing publishes", got)
	}
	w.publish(link("up"))
	w.pass()
	w.rule("r", nfdv1alpha1.Rule{Labels: M{"other": "true"}})
	w.pass()
	if got := w.says("FeaturesLost"); len(got) != 0 {
		t.Errorf("an edit of the rule is reported as a change of features: %q", got)
	}
}

// TestAChangedValueIsNoLoss changes a value on a node while the budget allows no removal.
func TestAChangedValueIsNoLoss(t *testing.T) {
	w := newPasses(t, func(r *Reconciler) {
		r.limits.breaker = budget.NewBreaker(budget.Budget{Window: time.Hour, Hold: time.Hour}, r.clock)
	})
	copied := nfdv1alpha1.Rule{Labels: M{"copied": "{@test.attr.link}"}, Taints: []corev1.Taint{{Key: "v.io/link", Value: "{@test.attr.link}", Effect: corev1.TaintEffectNoSchedule}}}
	w.publish(link("one"))
	w.rule("r", copied)
	w.pass()
	w.publish(link("two"))
	if again := w.pass(); again != 0 {
		t.Errorf("a changed value is held for %s", again)
	}
	w.hasLabels("after the change", M{"copied": "two"})
	if !slices.ContainsFunc(w.node().Spec.Taints, func(x corev1.Taint) bool { return x.Key == "v.io/link" && x.Value == "two" }) {
		t.Errorf("taints %v", w.node().Spec.Taints)
	}
	w.publish(published("n", attributes("test.other", M{"x": "1"})))
	w.pass()
	w.hasLabels("after the loss of the feature, which is held", M{"copied": "two"})
}

package node

import (
	"strings"
	"testing"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/node/decide"
	"github.com/assay-project/assay/internal/sim/apiserver"
	"github.com/assay-project/assay/settings"
)

// TestUnmetLabelsOfRequests has another client set the label of a request that the node does not meet.
func TestUnmetLabelsOfRequests(t *testing.T) {
	const label = assayv1alpha1.RequestLabelNamespace + "/ml.amx"
	requests := func(r *Reconciler) { withReady(r); r.settings.Requests = true }
	start := func(t *testing.T, change func(*Reconciler)) *passes {
		w := newPasses(t, change)
		w.rule("r", nfdv1alpha1.Rule{Labels: M{"label": "1"}})
		w.boots("b1")
		w.label(apiserver.Object{label: "true", "example.com/other": "true"})
		return w
	}
	has := func(w *passes, when string, want bool) {
		w.Helper()
		if _, got := w.node().Labels[label]; got != want {
			w.Errorf("%s the node has the label: %t, want %t", when, got, want)
		}
		if w.node().Labels["example.com/other"] == "" {
			w.Errorf("%s another label is removed", when)
		}
	}
	t.Run("IsRemoved", func(t *testing.T) {
		w := start(t, requests)
		w.pass()
		has(w, "without features", true)
		w.publish(ofBoot("b1", nil))
		w.pass()
		has(w, "with features", false)
		if got := w.says("UnmetLabelRemoved"); len(got) != 1 || !strings.Contains(got[0], label) {
			t.Errorf("Events: %q", got)
		}
		w.isReady("with features", "True "+decide.ReadyApplied)
		w.pass()
		if got := w.says("UnmetLabelRemoved"); len(got) != 0 {
			t.Errorf("the Event is repeated: %q", got)
		}
	})
	t.Run("RequestsAreNotMaterialized", func(t *testing.T) {
		w := start(t, withReady)
		w.publish(ofBoot("b1", nil))
		w.pass()
		has(w, "without the setting", true)
	})
	t.Run("FeaturesOfAnEarlierBoot", func(t *testing.T) {
		w := start(t, requests)
		w.publish(ofBoot("b0", nil))
		w.pass()
		has(w, "with old features", true)
	})
	for _, taint := range []string{startupTaint, "karpenter.sh/unregistered"} {
		t.Run("JoiningWith/"+taint, func(t *testing.T) {
			w := start(t, requests)
			w.taint(taint)
			w.change("", apiserver.Object{"metadata": apiserver.Object{"annotations": apiserver.Object{nfdv1alpha1.FeatureLabelsAnnotation: label}}})
			w.publish(ofBoot("b1", nil))
			w.pass()
			has(w, "while the node joins", true)
			w.isReady("while the node joins", "False "+assayv1alpha1.ReasonLabelsUnmet)
			if got := w.says(assayv1alpha1.ReasonLabelsUnmet); len(got) != 1 {
				t.Errorf("Events: %q", got)
			}
			w.pass()
			has(w, "in the second pass", true)
			if got := w.says(assayv1alpha1.ReasonLabelsUnmet); len(got) != 0 {
				t.Errorf("the Event is repeated: %q", got)
			}
			if got := w.node().Annotations[nfdv1alpha1.FeatureLabelsAnnotation]; got != "label" {
				t.Errorf("the record lists %q, want the label of the rule alone", got)
			}
			w.clock.Step(settings.DefaultFailOpenAfter)
			w.pass()
			has(w, "after the timeout", false)
		})
	}
}

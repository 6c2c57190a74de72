package node

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/loss"
)

// TestTheTaintOfLostFeatures follows a loss from its grace to its end.
func TestTheTaintOfLostFeatures(t *testing.T) {
	const key = "example.com/lost"
	var tracker *loss.Tracker
	losses := func(r *Reconciler) {
		tracker = loss.NewTracker(r.clock)
		r.losses, r.settings.LossTaint = tracker, &corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}
	}
	w := newPasses(t, losses, func(r *Reconciler) { r.settings.Policy.Taints = false })
	value := func() string {
		w.Helper()
		for _, taint := range w.node().Spec.Taints {
			if taint.Key == key {
				return taint.Value
			}
		}
		return ""
	}
	w.publish(link("up"))
	w.rule("r", nfdv1alpha1.Rule{Taints: []corev1.Taint{{Key: prefix + "t", Effect: corev1.TaintEffectNoSchedule}}})
	lost := loss.Loss{Object: "NodeFeatureRequest ml/link", Value: "ml.link", Grace: time.Minute, Pod: "ml/p", Lacks: "test.attr", Had: true}
	tracker.Set("n", []loss.Loss{lost})
	w.pass()
	if value() != "" {
		t.Error("the node is tainted before the losses are known")
	}
	tracker.SetSynced()
	w.pass()
	if value() != "" {
		t.Error("the node is tainted in the grace of its loss")
	}
	w.clock.Step(time.Minute)
	tracker.Set("n", []loss.Loss{lost})
	w.store("hidden") // a NodeFeature that the cache lacks
	if _, err := w.try(); err == nil || value() != "" {
		t.Errorf("the node is tainted although a NodeFeature is missing: %q, %v", value(), err)
	}
	w.do("DELETE", featuresPath+"/hidden", nil)
	w.pass()
	if value() != "ml.link" {
		t.Errorf("after the grace the taint is %q", value())
	}
	if got := w.says("LossTaintAdded"); len(got) != 1 || !strings.Contains(got[0], "pod ml/p") || !strings.Contains(got[0], "test.attr") {
		t.Errorf("Events: %q", got)
	}
	if w.tainted(prefix + "t") {
		t.Error("a taint of a rule is added although rules must not add taints")
	}
	if w.pass(); len(w.says("LossTaintAdded")) != 0 {
		t.Error("the Event is repeated")
	}

	// Another process does not know the losses at first, and then has to wait for the grace again.
	w.restart(losses, func(r *Reconciler) { r.settings.Policy.Taints = false })
	w.rule("r")
	w.pass()
	if value() != "ml.link" {
		t.Error("a restart removes the taint")
	}
	second := loss.Loss{Object: "NodeFeatureRequest ml/other", Value: "ml.other", Pod: "ml/q", Lacks: "test.attr", Had: true}
	tracker.Set("n", []loss.Loss{lost, second})
	tracker.SetSynced()
	w.pass()
	if value() != "ml.link" {
		t.Errorf("the taint of a loss that lasts becomes %q", value())
	}
	tracker.Set("n", []loss.Loss{second})
	w.pass()
	if value() != "ml.other" {
		t.Errorf("the taint is %q, want the value of the other loss", value())
	}
	if got := w.says("LossTaintAdded"); len(got) != 1 || !strings.Contains(got[0], "ml.other") {
		t.Errorf("Events: %q", got)
	}
	tracker.SetUnknown("n")
	w.pass()
	if value() != "ml.other" {
		t.Error("the taint is removed while the losses are unknown")
	}
	tracker.Set("n", nil)
	w.pass()
	if value() != "" {
		t.Error("the taint stays after the loss")
	}
	if got := w.says("LossTaintRemoved"); len(got) != 1 || !strings.Contains(got[0], "ml.other") {
		t.Errorf("Events: %q", got)
	}
}

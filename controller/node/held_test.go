package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/controller/hold"
	"github.com/assay-project/assay/controller/node/decide"
	"github.com/assay-project/assay/internal/sim/apiserver"
	"github.com/assay-project/assay/rules/keys"
)

// holdOf returns the time until which the only Event of a reason says that a label of the node is held.
func (w *passes) holdOf(reason, label string) time.Time {
	w.Helper()
	got := w.says(reason)
	if len(got) != 1 {
		w.Fatalf("Events %q, want one %s", got, reason)
	}
	until, _, ok := hold.Read(got[0])
	if !ok || label != "" && !hold.Names(got[0], keys.Label, prefix+label) {
		w.Fatalf("the Event does not say until when, or does not name %s: %q", label, got[0])
	}
	return until
}

// near fails if two times differ by more than the precision of Events.
func (w *passes) near(got, want time.Time) {
	w.Helper()
	if got.Sub(want).Abs() > time.Second {
		w.Errorf("held until %s, want %s", got.UTC(), want.UTC())
	}
}

// TestAFlappingKeyIsAnEvent names the key and the time, once for each time.
func TestAFlappingKeyIsAnEvent(t *testing.T) {
	w := newPasses(t)
	w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
	for i := range flap.Limit {
		w.publish(link([]string{"up", "down"}[i%2]))
		w.pass()
	}
	if got := w.says(hold.Flapping); len(got) != 0 {
		t.Errorf("Events before the limit: %q", got)
	}
	w.publish(link("down"))
	w.pass()
	w.near(w.holdOf(hold.Flapping, "up"), w.clock.Now().Add(flap.Window))
	w.hasLabels("while it flaps", M{"up": "true"})
	w.clock.Step(10 * time.Second)
	w.pass()
	if got := w.says(hold.Flapping); len(got) != 0 {
		t.Errorf("the Event is repeated: %q", got)
	}
	w.clock.Step(flap.Window)
	w.pass()
	w.hasLabels("once it is stable", M{"up": ""})
}

// TestAContestedKeyIsNotReportedAsFlapping: another client changes it four times within a minute.
func TestAContestedKeyIsNotReportedAsFlapping(t *testing.T) {
	w := newPasses(t)
	w.publish(link("up"))
	w.rule("r", nfdv1alpha1.Rule{Labels: M{"a": "ours"}})
	w.pass()
	var first time.Time
	for i := range flap.CorrectionLimit + 1 {
		w.clock.Step(time.Second)
		if i == 0 {
			first = w.clock.Now()
		}
		w.label(apiserver.Object{prefix + "a": "theirs"})
		w.pass()
	}
	w.near(w.holdOf(hold.Contested, "a"), first.Add(flap.CorrectionWindow))
	w.hasLabels("while it is contested", M{"a": "theirs"})
	w.label(apiserver.Object{"unrelated": "x"})
	w.pass()
	if got := append(w.says(hold.Contested), w.says(hold.Flapping)...); len(got) != 0 {
		t.Errorf("another pass is reported again: %q", got)
	}
}

// TestADeletedWorkersObjectIsAnEvent says how long the features count that were published last.
func TestADeletedWorkersObjectIsAnEvent(t *testing.T) {
	w := newPasses(t)
	w.publish(link("up"))
	w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
	w.pass()
	w.unpublish(link("up"))
	w.pass()
	got := w.says(hold.Removal)
	if len(got) != 1 || !strings.Contains(got[0], "removalGracePeriod: NodeFeature "+namespace+"/n ") {
		t.Fatalf("Events %q", got)
	}
	until, _, _ := hold.Read(got[0])
	w.near(until, w.clock.Now().Add(10*time.Minute))
	w.clock.Step(time.Minute)
	w.pass()
	if got := w.says(hold.Removal); len(got) != 0 {
		t.Errorf("the Event is repeated: %q", got)
	}
	// Another process has never seen the object.
	w.restart()
	w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
	w.pass()
	w.near(w.holdOf(hold.Removal, ""), w.clock.Now().Add(10*time.Minute))
	w.hasLabels("held", M{"up": "true"})
}

// TestANodeWithoutAWorkerIsNoEvent: it may be without one on purpose.
func TestANodeWithoutAWorkerIsNoEvent(t *testing.T) {
	w := newPasses(t)
	w.rule("r", nfdv1alpha1.Rule{Labels: M{"a": "ours"}})
	w.pass()
	if got := w.says(hold.Removal); len(got) != 0 {
		t.Errorf("Events %q", got)
	}
}

// TestARejectedKeyIsAnEvent says what the API server says, and when the key is tried again.
func TestARejectedKeyIsAnEvent(t *testing.T) {
	w := newPasses(t)
	w.publish(link("up"))
	w.fail = func(body string) error {
		if strings.Contains(body, prefix+"bad") {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "n "+prefix+"bad", nil)
		}
		return nil
	}
	w.rule("r", nfdv1alpha1.Rule{Labels: M{"bad": "x", "good": "y"}})
	w.pass()
	w.near(w.holdOf(hold.Refused, "bad"), w.clock.Now().Add(decide.RefusalMemory))
	w.hasLabels("without it", M{"bad": "", "good": "y"})
}

// TestEachLostKeyIsNamed: a node loses more keys at once than one Event names, because a NodeFeature was deleted.
func TestEachLostKeyIsNamed(t *testing.T) {
	w := newPasses(t)
	w.publish(link("up"))
	vendor := published("vendor", attributes("vendor.card", M{"model": "x"}))
	vendor.Spec.Labels = M{"asked": "true"}
	w.publish(vendor)
	labels := M{}
	for i := range 3 * hold.MaxKeys {
		labels[fmt.Sprintf("l%02d", i)] = "{@vendor.card.model}"
	}
	w.rule("r", nfdv1alpha1.Rule{Labels: labels, MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: "vendor.card"}}})
	w.pass()
	w.unpublish(vendor)
	w.pass()
	got := w.says(hold.Lost)
	if len(got) != 4 {
		t.Fatalf("%d Events, want 4: %q", len(got), got)
	}
	all := strings.Join(got, "\n")
	for label := range labels {
		if want := "label " + prefix + label + "=x"; !strings.Contains(all, want) {
			t.Errorf("no Event has %q:\n%s", want, all)
		}
	}
	if want := "label " + prefix + "asked=true (no NodeFeature requests it; deleted: NodeFeature " + namespace + "/vendor)"; !strings.Contains(all, want) {
		t.Errorf("no Event has %q:\n%s", want, all)
	}
	for _, text := range got {
		if why := "=x (rule r/a: no NodeFeature has vendor.card; deleted: NodeFeature " + namespace + "/vendor)"; strings.Contains(text, "=x") && strings.Count(text, why) != 1 {
			t.Errorf("the reason of several keys is not there, or repeated: %q", text)
		}
		if strings.Count(text, "label ") > hold.MaxKeys {
			t.Errorf("an Event names too many keys: %q", text)
		}
	}
}

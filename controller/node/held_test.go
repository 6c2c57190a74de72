package node

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/controller/node/decide"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/internal/sim/apiserver"
	"github.com/assay-project/assay/rules/keys"
)

// holds returns the holds of a reason that are published about the node.
func (w *passes) holds(reason string) []hold.Hold {
	w.Helper()
	var e corev1.Event
	err := w.Get(w.Context(), client.ObjectKey{Namespace: hold.Namespace, Name: hold.EventName("", "n", reason)}, &e)
	if client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	return hold.Read(&e)
}

// holdOf returns the time until which the only hold of a reason lasts, which names a label of the node; empty: it names no keys.
func (w *passes) holdOf(reason, label string) time.Time {
	w.Helper()
	got := w.holds(reason)
	if len(got) != 1 || label == "" && len(got[0].Keys) > 0 || label != "" && !got[0].Has(keys.Label, prefix+label) {
		w.Fatalf("published %+v, want one hold %s of %q", got, reason, label)
	}
	return got[0].Until
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
	if got := w.holds(hold.Flapping); len(got) != 0 {
		t.Errorf("published before the limit: %+v", got)
	}
	w.publish(link("down"))
	w.pass()
	w.near(w.holdOf(hold.Flapping, "up"), w.clock.Now().Add(flap.Window))
	w.hasLabels("while it flaps", M{"up": "true"})
	w.clock.Step(10 * time.Second)
	w.pass()
	w.near(w.holdOf(hold.Flapping, "up"), w.clock.Now().Add(flap.Window-10*time.Second))
	w.clock.Step(flap.Window)
	w.pass()
	w.hasLabels("once it is stable", M{"up": ""})
}

// flapping returns the flapping keys of the rule object r, as its status shows them.
func (w *passes) flapping() []string { return w.r.stats.Summary("r").FlappingKeys }

// flaps changes the value of link until the key up of the rule object r, which a link that is up gives, is held. Link is down then, and the
// Node has the key.
func (w *passes) flaps() {
	w.Helper()
	for i := range flap.Limit + 1 {
		if got := w.flapping(); len(got) != 0 {
			w.Fatalf("after %d changes, %q is held", i, got)
		}
		w.publish(link([]string{"up", "down"}[i%2]))
		w.pass()
	}
	w.hasLabels("while it flaps", M{"up": "true"})
}

// TestAFlappingKeyIsInTheStatusOfItsRule until the time in the Event, also while the features give its old value again: the status must not
// change with each change of the feature.
func TestAFlappingKeyIsInTheStatusOfItsRule(t *testing.T) {
	w := newPasses(t)
	held := []string{"n: label " + prefix + "up"}
	has := func(when string, want []string) {
		t.Helper()
		if got := w.flapping(); !slices.Equal(got, want) {
			t.Errorf("%s: flapping are %q, want %q", when, got, want)
		}
	}
	w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
	w.rule("other", nfdv1alpha1.Rule{Labels: M{"other": "true"}})
	w.flaps()
	has("down", held)
	w.clock.Step(10 * time.Second)
	w.publish(link("up"))
	if again := w.pass(); again <= 0 || again > flap.Window {
		t.Errorf("the next pass is in %s, want one when the key is stable", again)
	}
	has("up again", held)
	w.publish(link("down"))
	w.pass()
	has("down again", held)
	if got := w.r.stats.Summary("other"); got.Flapping != 0 {
		t.Errorf("%q of another object flap", got.FlappingKeys)
	}
	w.publish(link("up"))
	w.clock.Step(w.pass())
	if w.pass(); len(w.flapping()) != 0 {
		t.Errorf("once it is stable: %q", w.flapping())
	}
}

// TestAKeyNoLongerFlaps once it is written for another reason, or because of a reason that ends flapping.
func TestAKeyNoLongerFlaps(t *testing.T) {
	for name, ends := range map[string]func(w *passes){
		"TheRuleChanges": func(w *passes) { w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"now": "true"}})) },
		"TheNodeBoots": func(w *passes) {
			w.change("/status", apiserver.Object{"status": apiserver.Object{"nodeInfo": apiserver.Object{"bootID": "second"}}})
		},
		"AnotherProcess": func(w *passes) {
			w.restart()
			w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
			w.publish(link("down"))
		},
		"TheNodeIsDeleted": func(w *passes) { w.do(http.MethodDelete, "/api/v1/nodes/n", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newPasses(t)
			w.change("/status", apiserver.Object{"status": apiserver.Object{"nodeInfo": apiserver.Object{"bootID": "first"}}})
			w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
			w.flaps()
			ends(w)
			w.pass()
			if got := w.flapping(); len(got) != 0 {
				t.Errorf("still flapping: %q", got)
			}
			if name != "TheNodeIsDeleted" {
				w.hasLabels("afterwards", M{"up": ""})
			}
		})
	}
}

// TestAContestedKeyIsNotReportedAsFlapping: another client changes it four times within a minute.
func TestAContestedKeyIsNotReportedAsFlapping(t *testing.T) {
	w := newPasses(t)
	w.publish(link("up"))
	w.rule("r", nfdv1alpha1.Rule{Labels: M{"a": "ours"}})
	w.pass()
	for range flap.CorrectionLimit + 1 {
		w.clock.Step(time.Second)
		w.label(apiserver.Object{prefix + "a": "theirs"})
		w.pass()
	}
	w.near(w.holdOf(hold.Contested, "a"), w.clock.Now().Add(flap.FirstPause-time.Second))
	w.hasLabels("while it is contested", M{"a": "theirs"})
	w.label(apiserver.Object{"unrelated": "x"})
	w.pass()
	if got := w.holds(hold.Flapping); len(got) != 0 {
		t.Errorf("published as flapping: %+v", got)
	}
	if got := w.flapping(); len(got) != 0 {
		t.Errorf("the status of the rule lists it: %q", got)
	}
}

// TestAnotherMasterIsNamedAndTheLabelComesBack: nfd-master removes the label and its entry in the record that both programs keep. Assay called
// its own repair flapping, and the label was missing until nothing changed for a minute.
func TestAnotherMasterIsNamedAndTheLabelComesBack(t *testing.T) {
	w := newPasses(t)
	w.publish(link("up"))
	w.rule("r", nfdv1alpha1.Rule{Labels: M{"a": "ours"}})
	w.pass()
	removed := func() {
		w.clock.Step(time.Second)
		w.do(http.MethodPatch, "/api/v1/nodes/n", apiserver.Object{"metadata": apiserver.Object{
			"labels": apiserver.Object{prefix + "a": nil}, "annotations": apiserver.Object{nfdv1alpha1.FeatureLabelsAnnotation: nil},
		}})
		w.clock.Step(w.pass())
	}
	for range 2 * flap.CorrectionLimit {
		removed()
		w.pass()
		w.hasLabels("afterwards", M{"a": "ours"})
	}
	masters := 0
	for _, e := range w.says("") {
		switch {
		case strings.Contains(e, hold.Flapping):
			t.Errorf("its own repair flaps: %q", e)
		case strings.Contains(e, hold.AnotherMaster+" another client removes what rules give"):
			masters++ // the model of the API server has no managedFields
		}
	}
	if masters != 1 {
		t.Errorf("%d Events about another master, want 1", masters)
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
	w.near(w.holdOf(hold.Removal, ""), w.clock.Now().Add(10*time.Minute))
	if why := w.holds(hold.Removal)[0].Why; !strings.HasPrefix(why, "removalGracePeriod: NodeFeature "+namespace+"/n ") {
		t.Errorf("because %q", why)
	}
	w.clock.Step(time.Minute)
	// Another process has never seen the object.
	w.restart()
	w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
	w.pass()
	w.near(w.holdOf(hold.Removal, "up"), w.clock.Now().Add(10*time.Minute))
	w.hasLabels("held", M{"up": "true"})
}

// TestANodeWithoutAWorkerIsNoEvent: it may be without one on purpose.
func TestANodeWithoutAWorkerIsNoEvent(t *testing.T) {
	w := newPasses(t)
	w.rule("r", nfdv1alpha1.Rule{Labels: M{"a": "ours"}})
	w.pass()
	if got := w.holds(hold.Removal); len(got) != 0 {
		t.Errorf("published: %+v", got)
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

package node

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/event"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/nodefeature"
)

// TestRejectedConfigurationsAreFewEvents: a worker's token can change the text as often as it likes, and as long as it likes.
func TestRejectedConfigurationsAreFewEvents(t *testing.T) {
	w := newPasses(t)
	w.rule("r", nfdv1alpha1.Rule{Labels: M{"l": "1"}})
	var last *nodefeature.NodeFeature
	publish := func(name, text string) []string {
		t.Helper()
		f := published(name, attributes("test.attr", M{"a": "1"}))
		f.Annotations = M{assayv1alpha1.InvalidConfigurationAnnotation: text}
		if name == "n" && last != nil && !changedFeatures.Update(event.UpdateEvent{ObjectOld: last, ObjectNew: f}) && text != "same" {
			t.Errorf("no pass follows from %q", text)
		}
		if name == "n" {
			last = f
		}
		w.publish(f)
		w.pass()
		return w.says(reasonInvalidConfiguration)
	}
	if got := publish("vendor", "forged"); got != nil {
		t.Errorf("another publisher has Events written: %q", got)
	}
	if got := publish("n", "same"); len(got) != 1 || !strings.HasSuffix(got[0], "The worker keeps its previous configuration: same") {
		t.Errorf("Events %q, want one", got)
	}
	if got := publish("n", "same"); got != nil {
		t.Errorf("the same again: %q", got)
	}
	for _, text := range []string{"second", "", "third"} {
		if got := publish("n", text); got != nil {
			t.Errorf("within five minutes: %q", got)
		}
	}
	w.clock.Step(workerReportInterval)
	w.pass()
	if got := w.says(reasonInvalidConfiguration); len(got) != 1 || !strings.HasSuffix(got[0], ": third") {
		t.Errorf("after five minutes %q, want the last text", got)
	}
	w.clock.Step(time.Hour)
	if got := publish("n", strings.Repeat("x", 1<<20)+"\n\x1b[31mred"); len(got) != 1 || len(got[0]) > 1100 || strings.ContainsAny(got[0], "\x1b\n") {
		t.Errorf("a large text: %d Events, the first of %d bytes", len(got), len(strings.Join(got, "")))
	}
}

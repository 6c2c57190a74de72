package sim

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

// A key whose NodeFeature the first list of a process lacked was removed without a list from the API server if the first pass held
// the removal, here because the worker's NodeFeature was missing too (found by seed 367).
func TestAKeyIsKeptWhoseNodeFeatureAListLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(&tape{}, logr.Discard())
		defer w.end()
		w.editRule(1)
		w.do("vendor", http.MethodPost, featuresPath, object{
			"metadata": object{"name": "vendor-n0", "labels": object{"nfd.node.kubernetes.io/node-name": "n0"}},
			"spec":     object{"features": object{"attributes": object{"test.attr": object{"elements": object{"v": "1"}}}}},
		})
		w.boot()
		w.drain(time.Minute)
		labeled := func() bool { return w.keysOf(w.server.Get("nodes", "", "n0"))["label "+prefix+"r1"] != "" }
		if !labeled() {
			t.Fatalf("the label is missing: %v", w.story)
		}
		w.deleteFeature("n0") // the first pass holds everything
		w.omitted = "vendor-n0"
		w.stop(w.programs[0])
		w.boot()
		w.drain(time.Minute)
		w.publish("n0")
		w.drain(quiet)
		if len(w.short) == 0 {
			t.Fatal("the list was complete")
		}
		if !labeled() || len(w.violations) > 0 {
			t.Errorf("the label was removed: %v", w.violations)
		}
	})
}

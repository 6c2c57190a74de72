package sim

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

// A key whose NodeFeature the first list of a process lacked was removed without a list from the API server if the first pass held
// the removal, here because the worker's NodeFeature was missing too (found by seed 367).
func TestAKeyIsKeptWhoseNodeFeatureAListLacks(t *testing.T) {
	testIncompleteList(t, func(w *world) { w.deleteFeature("n0") }) // the first pass holds everything
}

// It was removed too if its rule had been edited: the edit explained the removal (found by seed 247).
func TestAKeyOfAnEditedRuleIsKeptWhoseNodeFeatureAListLacks(t *testing.T) {
	testIncompleteList(t, func(w *world) {
		w.do("user", http.MethodPatch, rulesPath+"/"+ruleName(1), object{"spec": object{"rules": []any{w.rule(1, 2, "0")}}})
	})
}

// bootWithVendor boots the programs after a vendor has published a NodeFeature for n0.
func (w *world) bootWithVendor() {
	w.do("vendor", http.MethodPost, featuresPath, object{
		"metadata": object{"name": "vendor-n0", "labels": object{"nfd.node.kubernetes.io/node-name": "n0"}},
		"spec":     object{"features": object{"attributes": object{"test.attr": object{"elements": object{"v": "1"}}}}},
	})
	w.boot()
	w.drain(time.Minute)
}

// testIncompleteList replaces the process by one whose first list lacks a NodeFeature, after something else has changed.
func testIncompleteList(t *testing.T, change func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(&tape{}, logr.Discard())
		defer w.end()
		w.editRule(1)
		w.bootWithVendor()
		labeled := func() bool { return w.keysOf(w.server.Get("nodes", "", "n0"))["label "+prefix+"r1"] != "" }
		if !labeled() {
			t.Fatalf("the label is missing: %v", w.story)
		}
		change(w)
		w.omitted = "nodefeatures vendor-n0"
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

// A key that the process had seen given by one rule was removed when that rule stopped to match, although another rule gives it from a
// NodeFeature that the first list lacked (found by seed 63678).
func TestAKeyThatAnotherRuleGivesIsKeptWhoseNodeFeatureAListLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(&tape{}, logr.Discard())
		defer w.end()
		w.editRule(1)
		for i, fact := range []string{"a0", "v"} {
			w.do("user", http.MethodPatch, rulesPath+"/"+ruleName(i), object{"spec": object{"rules": []any{object{
				"name": "rule", "labels": object{"shared": "1"},
				"matchFeatures": []any{object{"feature": "test.attr", "matchExpressions": object{fact: object{"op": "In", "value": []any{"1"}}}}},
			}}}})
		}
		set := func(value string) {
			w.facts["n0"]["a0"] = value
			w.publish("n0")
		}
		set("1")
		w.bootWithVendor()
		w.omitted = "nodefeatures vendor-n0"
		w.stop(w.programs[0])
		w.boot()
		w.drain(time.Minute)
		set("0")
		w.drain(quiet)
		if len(w.short) == 0 {
			t.Fatal("the list was complete")
		}
		if w.keysOf(w.server.Get("nodes", "", "n0"))["label "+prefix+"shared"] != "1" || len(w.violations) > 0 {
			t.Errorf("the label was removed: %v", w.violations)
		}
	})
}

// A value that a NodeFeature requests, which the first list of a process lacked, was replaced by that of another NodeFeature in the pass after
// the one that held the change: the process had seen the key given by then, with the other value (found by seed 957).
func TestAValueIsKeptWhoseNodeFeatureAListLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(&tape{}, logr.Discard())
		defer w.end()
		request := func(where, name, value string) {
			w.do("vendor", http.MethodPost, strings.Replace(featuresPath, namespace, where, 1), object{
				"metadata": object{"name": name, "labels": object{"nfd.node.kubernetes.io/node-name": "n0"}},
				"spec":     object{"labels": object{"vendor": value}},
			})
		}
		request(vendors, "a-n0", "last")
		w.boot()
		w.drain(time.Minute)
		w.omitted = "nodefeatures a-n0"
		w.stop(w.programs[0])
		w.boot()
		w.drain(time.Minute)
		request(namespace, "vendor-n0", "first")
		w.drain(time.Minute)
		for _, value := range []string{"1", "2"} { // more passes
			w.facts["n0"]["a0"] = value
			w.publish("n0")
			w.drain(quiet)
		}
		if len(w.short) == 0 {
			t.Fatal("the list was complete")
		}
		if got := w.keysOf(w.server.Get("nodes", "", "n0"))["label "+prefix+"vendor"]; got != "last" || len(w.violations) > 0 {
			t.Errorf("the label is %q: %v", got, w.violations)
		}
	})
}

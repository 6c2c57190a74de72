package sim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/sim/apiserver"
	"github.com/assay-project/assay/internal/worker/start"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/settings"
)

// startupTaint is the key of the taint with which some nodes join.
const startupTaint = "example.com/starting"

// startupKey is the key of that taint among the keys of a Node.
var startupKey = string(keys.Taint) + " " + startupTaint + ":NoSchedule"

// bootOf returns the boot that a node runs.
func (w *world) bootOf(name string) string { return fmt.Sprintf("%s-%d", name, w.boots[name]) }

// reboot starts a host again, and its worker. What publishes for the other nodes may be late.
func (w *world) reboot(name string) {
	if w.server.Get("nodes", "", name) == nil {
		return
	}
	w.boots[name]++
	w.tell("host %s boots: %s", name, w.bootOf(name))
	w.do("kubelet", http.MethodPatch, nodesPath+"/"+name+"/status", object{"status": object{"nodeInfo": object{"bootID": w.bootOf(name)}}})
	w.withdrawDevices("kubelet", name)
	switch {
	case w.employs(name):
		w.dismiss(name)
		if w.n(2) == 0 {
			w.hire(name)
			return
		}
		// A source hangs, and the worker publishes without it.
		w.hireWith(name, map[string]time.Duration{one(w.tape, sources...): one(w.tape, 2*time.Minute, 20*time.Minute) + odd})
		w.drain(start.Patience + time.Duration(w.n(60))*time.Second)
	case w.n(2) == 0:
		w.publish(name)
	}
}

// readyOf returns the status and the message of a Node's condition FeaturesReady.
func readyOf(o object) (status, message string) {
	conditions, _ := below(o, "status")["conditions"].([]any)
	for _, c := range conditions {
		if c := c.(object); c["type"] == string(assayv1alpha1.FeaturesReadyCondition) {
			return fmt.Sprint(c["status"]), fmt.Sprint(c["message"])
		}
	}
	return "", ""
}

// gate checks what the controller does with the condition and the start-up taint of a Node.
func (c *checker) gate(change apiserver.Change) {
	name := change.Key
	before, _ := readyOf(change.Old)
	after, message := readyOf(change.New)
	_, had := c.w.keysOf(change.Old)[startupKey]
	_, has := c.w.keysOf(change.New)[startupKey]
	if before != after || had != has {
		c.turns[name]++
	}
	if after == "True" {
		c.boots[name] = bootIn(change.New)
	}
	if after != "" && !c.record(change.New)[string(keys.Condition)+" "+assayv1alpha1.FeaturesReadyCondition] {
		c.w.violate("%s has the condition FeaturesReady, and the record does not hold it", name)
	}
	switch {
	case has && !had:
		c.w.violate("%s: %s adds the start-up taint", name, change.By)
	case had && !has && before != "True":
		if age := c.ageOf(change); age < settings.DefaultFailOpenAfter-time.Second { // times in the API have no fractions of a second
			c.w.violate("%s: the start-up taint is removed after %s although the node is not ready", name, age)
		}
	}
	switch {
	case before == "True" && after != "True" && c.boots[name] == bootIn(change.New) && !c.mayClose(name):
		c.w.violate("%s is ready and no longer said to be, without a boot and without a loss of its NodeFeature", name)
	case before != "True" && after == "True":
		if now := fmt.Sprint(below(below(change.New, "status"), "nodeInfo")["bootID"]); !strings.Contains(message, now) {
			c.w.violate("%s runs boot %s and is ready with %q", name, now, message)
		}
		have := c.w.keysOf(change.New)
		if !c.justified(change, name, func(_ map[string]string, _, features []object) bool { return len(c.unread(name, features)) == 0 }, false) {
			c.w.violate("%s is ready, and its worker has not read all sources since it booted", name)
		}
		if !c.contested[name] && !c.w.short[change.By+" nodefeaturerules"] && !c.justified(change, name, func(want map[string]string, _, _ []object) bool {
			for k := range want {
				if _, is := have[k]; !is {
					return false
				}
			}
			return true
		}, false) {
			c.w.violate("%s is ready and lacks keys: it has %v", name, have)
		}
	}
}

// ageOf returns how long before a change its object was created, whatever the clock of the API server said.
func (c *checker) ageOf(change apiserver.Change) (age time.Duration) {
	for _, earlier := range c.w.server.Since(0) {
		if earlier.Resource == change.Resource && earlier.Key == change.Key && earlier.Type == apiserver.Added && earlier.Revision <= change.Revision {
			age = change.Time.Sub(earlier.Time)
		}
	}
	return age
}

// join has a node join whose worker never publishes, and then something else happen: it opens when it is old enough (gate checks that it does
// not open before).
func (w *world) join(then func()) {
	const name = "late"
	w.tell("node %s joins without a worker", name)
	w.do("kubelet", http.MethodPost, nodesPath, object{
		"metadata": object{"name": name}, "spec": object{"taints": []any{object{"key": startupTaint, "effect": "NoSchedule"}}},
	})
	then()
	for from := time.Now(); time.Since(from) < settings.DefaultFailOpenAfter+2*time.Minute && len(w.violations) == 0; {
		w.drain(time.Minute) // an item of a queue that is due is released at the end of a wait
	}
	if _, closed := w.keysOf(w.server.Get("nodes", "", name))[startupKey]; closed {
		w.violate("%s has the start-up taint after %s", name, settings.DefaultFailOpenAfter+2*time.Minute)
	}
}

// mayClose reports whether a node may become unready: it has no NodeFeature, or has had none or has booted lately.
func (c *checker) mayClose(name string) bool {
	if c.w.server.Get("nodefeatures", namespace, name) == nil {
		return true
	}
	return slices.ContainsFunc(c.w.server.Since(0), func(change apiserver.Change) bool {
		if time.Since(change.Time) > settings.DefaultRemovalGracePeriod+patience {
			return false
		}
		switch change.Resource.Name {
		case "nodes":
			return change.Key == name && change.Type == apiserver.Modified && bootIn(change.Old) != bootIn(change.New)
		case "nodefeatures":
			return change.Key == namespace+"/"+name && change.Type == apiserver.Added
		}
		return false
	})
}

// TestAStartupTaintStaysAlthoughAClockIsAnHourOff: with the clock of the controller an hour ahead of that of the API server, it was removed at
// once, and with an hour behind an hour late.
func TestAStartupTaintStaysAlthoughAClockIsAnHourOff(t *testing.T) {
	for name, ahead := range map[string]struct{ before, after time.Duration }{
		"ControllerAhead": {-time.Hour, -time.Hour}, "ServerAhead": {time.Hour, time.Hour}, "ServerJumps": {0, time.Hour}, "ServerJumpsBack": {time.Hour, 0},
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/restarts=%t", name, restarts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(&tape{}, logr.Discard())
					defer w.end()
					w.server.SetClock(ahead.before)
					w.boot()
					w.drain(time.Minute)
					w.join(func() {
						w.drain(2 * time.Minute)
						w.server.SetClock(ahead.after)
						if restarts {
							w.crash(w.programs[0])
							w.drain(time.Minute)
							w.expireLease()
							w.boot()
						}
					})
					if len(w.violations) > 0 {
						t.Error(w.violations)
					}
				})
			})
		}
	}
}

func bootIn(o object) any { return below(below(o, "status"), "nodeInfo")["bootID"] }

// The check expected that a node becomes unready within 30 minutes of the loss of its NodeFeature, although there was no leader (found by
// seeds 10005 and 11335).
func TestANodeMayBecomeUnreadyLongAfterTheLossOfItsNodeFeature(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(&tape{}, logr.Discard())
		defer w.end()
		w.boot()
		w.drain(time.Minute)
		w.deleteFeature("n0")
		w.crash(w.programs[0])
		w.drain(2 * quiet)
		w.expireLease()
		w.boot()
		w.drain(quiet)
		if ready, _ := readyOf(w.server.Get("nodes", "", "n0")); ready != "False" || len(w.violations) > 0 {
			t.Errorf("ready is %q, violations: %v", ready, w.violations)
		}
	})
}

package sim

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/internal/sim/apiserver"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/settings"
)

// evictions is a pace at which a small fleet has to wait for taints that evict pods.
var evictions = settings.NoExecuteBudget{Every: 2 * time.Minute, Share: 0.4}

// eviction is when a process gave a node a taint that evicts pods.
type eviction struct {
	node             string
	allowed, written time.Time // allowed is the earliest time at which it can have been allowed
}

// again is how long the controller may write such a taint again without asking for permission, if the cache does not show it.
const again = time.Minute

// evicts reports whether a key is a taint that evicts pods.
func evicts(k string) bool {
	return strings.HasPrefix(k, string(keys.Taint)+" ") && strings.HasSuffix(k, ":"+string(corev1.TaintEffectNoExecute))
}

// bears reports whether a Node has such a taint of the controller.
func (c *checker) bears(o object) bool {
	return slices.ContainsFunc(c.w.owned(o, keys.Taint), func(t string) bool { return evicts(string(keys.Taint) + " " + t) })
}

// full reports whether as many nodes have such taints as may be, leaving out one of them.
func (c *checker) full(nodes []object, name string) bool {
	count := 0
	for _, o := range nodes {
		if below(o, "metadata")["name"] != name && c.bears(o) {
			count++
		}
	}
	return count >= max(1, int(evictions.Share*float64(len(nodes))))
}

// pace checks that taints that evict pods come one after another, and that not too many nodes have them at a time.
func (c *checker) pace(change apiserver.Change) {
	name, p := change.Key, c.w.running(change.By)
	if c.bears(change.Old) || !c.bears(change.New) || p == nil {
		return
	}
	c.turns[name]++
	// The process asked for permission in this pass, or in an earlier one if it failed to write the taint.
	pass := p.queues.released[[2]string{"node", "/" + name}]
	last, before := c.evicted[p.name]
	if before && last.node == name && pass.Sub(last.written) < again {
		return // it lost the taint in the meantime
	}
	c.evicted[p.name] = eviction{name, pass, time.Now()}
	if !before {
		last.allowed = p.queues.leads.Add(again)
	}
	if wait := evictions.Every - again; time.Since(last.allowed) < wait {
		c.w.violate("%s gets a taint that evicts pods %s after another node, or after %s began to lead, and %s is the minimum", name, time.Since(last.allowed), p.name, wait)
	}
	if c.w.short[p.name+" nodes"] {
		return // it may not know the nodes that have one
	}
	if !slices.ContainsFunc(c.w.server.Versions("nodes", max(p.floor["nodes"], 1)), func(nodes []object) bool { return !c.full(nodes, name) }) {
		c.w.violate("%s gets a taint that evicts pods, and too many nodes have one", name)
	}
}

// A process that took over from another one could allow a node at once: it counted the pace from its start, not from when it began to
// lead.
func TestATakeoverKeepsThePaceOfEvictions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(&tape{}, logr.Discard())
		defer w.end()
		for w.nodes < 5 { // two of which may have the taint
			w.addNode(nodeName(w.nodes))
			w.nodes++
		}
		w.replicas = 2
		for range w.replicas {
			w.boot()
		}
		w.drain(time.Hour)
		w.do("user", http.MethodPatch, rulesPath+"/"+ruleName(0), object{"spec": object{"rules": []any{w.rule(0, 10, "0")}}})
		for _, node := range w.names() {
			w.facts[node]["a0"] = "1"
			w.publish(node)
		}
		w.drain(time.Second)
		if !w.check.full(w.server.List("nodes")[:2], "") {
			t.Fatal("no node has the taint")
		}
		w.stop(w.running(w.holder))
		w.drain(time.Hour)
		if !w.check.full(w.server.List("nodes"), "") || len(w.violations) > 0 {
			t.Error(w.violations)
		}
	})
}

// The check required the pace also of a node that lost the taint and got it again within a minute (found by seeds 15531 and 18977).
func TestANodeMayGetItsEvictingTaintAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(&tape{}, logr.Discard())
		defer w.end()
		w.boot()
		w.drain(time.Hour)
		w.do("user", http.MethodPatch, rulesPath+"/"+ruleName(0), object{"spec": object{"rules": []any{w.rule(0, 10, "0")}}})
		for _, value := range []string{"1", "0", "1"} {
			w.facts["n0"]["a0"] = value
			w.publish("n0")
			w.drain(time.Second)
			if got := w.check.bears(w.server.Get("nodes", "", "n0")); got != (value == "1") {
				t.Fatalf("a0 is %s, has the taint: %t", value, got)
			}
		}
		if len(w.violations) > 0 {
			t.Error(w.violations)
		}
	})
}

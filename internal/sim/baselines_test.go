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

	"github.com/assay-project/assay/internal/sim/apiserver"
)

const (
	baselinesPath = "/apis/assay.dev/v1alpha1/nodebaselines"
	groupsPath    = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/" + namespace + "/nodefeaturegroups"
)

// allowed are the values of a0 that the baseline requires.
var allowed = []string{"0", "1"}

// declare creates a baseline of all nodes: which values an attribute may have, and that it is equal on all of them. It also creates a group of
// the nodes with one of the values.
func (w *world) declare() {
	w.do("user", http.MethodPost, baselinesPath, object{"metadata": object{"name": "fleet"}, "spec": object{
		"require": []any{object{"name": "allowed", "matchFeatures": []any{
			object{"feature": "test.attr", "matchExpressions": object{"a0": object{"op": "In", "value": []any{allowed[0], allowed[1]}}}},
		}}},
		"uniform": []any{object{"name": "equal", "value": "{@test.attr.a0}"}},
	}})
	group := required(allowed[1])
	group["name"] = "fast"
	w.do("user", http.MethodPost, groupsPath, object{"metadata": object{"name": "fast"}, "spec": object{"featureGroupRules": []any{group}}})
}

// deviation is a node that fails a check.
type deviation struct{ node, check, message string }

// deviationsIn returns the deviations in the status of a baseline.
func deviationsIn(baseline object) (out []deviation) {
	list, _ := below(baseline, "status")["deviations"].([]any)
	for _, d := range list {
		d := d.(object)
		out = append(out, deviation{fmt.Sprint(d["node"]), fmt.Sprint(d["check"]), fmt.Sprint(d["message"])})
	}
	return out
}

// baseline checks a write of the status of a baseline: each deviation follows from what the worker of this very Node has published in the boot
// that the Node was in.
func (c *checker) baseline(change apiserver.Change) {
	if change.Resource.Name != "nodebaselines" || change.Type != apiserver.Modified {
		return
	}
	p := c.w.running(change.By)
	if p == nil {
		return // it has crashed since
	}
	nodes := c.w.server.Versions("nodes", max(p.floor["nodes"], 1))
	features := c.w.server.Versions("nodefeatures", 1) // the input of a node may lag behind its object
	for _, d := range deviationsIn(change.New) {
		completed := slices.ContainsFunc(nodes, func(list []object) bool {
			at := slices.IndexFunc(list, func(o object) bool { return below(o, "metadata")["name"] == d.node })
			return at >= 0 && slices.ContainsFunc(features, func(all []object) bool {
				own := ownOf(list[at], all)
				return own != nil && c.bootOf(own, list[at]) && !slices.Contains(c.unread(d.node, all), "test") && fails(d, c.w.elementsOf(own))
			})
		})
		if !completed {
			c.w.violate("NodeBaseline %s: %s deviates (%s: %s), which follows from nothing that its worker has published in this boot", change.Key, d.node, d.check, d.message)
		}
	}
}

// ownOf returns the NodeFeature of the worker of a Node; nil: there is none that counts.
func ownOf(node object, features []object) object {
	meta := below(node, "metadata")
	for _, f := range features {
		m := below(f, "metadata")
		if m["namespace"] != namespace || m["name"] != meta["name"] || nodeOf(f) != meta["name"] {
			continue
		}
		owners, _ := m["ownerReferences"].([]any)
		if slices.ContainsFunc(owners, func(o any) bool { return o.(object)["kind"] == "Node" && o.(object)["uid"] != meta["uid"] }) {
			return nil
		}
		return f
	}
	return nil
}

// bootOf reports whether a NodeFeature is of the boot of a Node, or of no boot.
func (c *checker) bootOf(feature, node object) bool {
	boot, _ := below(below(below(c.w.resolved(feature), "attributes"), "system.boot"), "elements")["id"].(string)
	return boot == "" || boot == bootIn(node)
}

// fails reports whether a node with these facts can have a deviation.
func fails(d deviation, facts map[string]string) bool {
	value, has := facts["a0"]
	if d.check == "allowed" {
		return !has || !slices.Contains(allowed, value)
	}
	if !has {
		value = "absent"
	}
	return strings.HasPrefix(d.message, value+"; ")
}

// settledBaselines checks that the status is what a plain evaluation says about what the API server stores.
func (c *checker) settledBaselines() {
	baseline := c.w.server.Get("nodebaselines", "", "fleet")
	if baseline == nil {
		return
	}
	var want []string
	known, unknown := map[string]string{}, 0
	nodes, features := c.w.server.List("nodes"), c.w.server.List("nodefeatures")
	for _, o := range nodes {
		own := ownOf(o, features)
		ready, _ := readyOf(o)
		if own == nil || !c.bootOf(own, o) || ready != "" && ready != "True" {
			unknown++
			continue
		}
		value, has := c.w.elementsOf(own)["a0"]
		if !has {
			value = "absent"
		}
		known[below(o, "metadata")["name"].(string)] = value
	}
	most := ""
	for _, value := range known {
		n := 0
		for _, other := range known {
			if other == value {
				n++
			}
		}
		if 2*n > len(known) {
			most = value
		}
	}
	deviating := map[string]bool{}
	for name, value := range known {
		if !slices.Contains(allowed, value) {
			want, deviating[name] = append(want, "allowed "+name), true
		}
		if most != "" && value != most {
			want, deviating[name] = append(want, "equal "+name), true
		}
	}
	var got []string
	for _, d := range deviationsIn(baseline) {
		got = append(got, d.check+" "+d.node)
	}
	slices.Sort(want)
	slices.Sort(got)
	status := below(baseline, "status")
	numbers := fmt.Sprint(status["nodes"], status["conforming"], status["deviating"], status["unknown"])
	if w := fmt.Sprint(len(nodes), len(known)-len(deviating), len(deviating), unknown); numbers != w || !slices.Equal(got, want) {
		c.w.violate("NodeBaseline fleet has the numbers %s and the deviations %v at the end, want %s and %v", numbers, got, w, want)
	}
}

// TestANodeThatHasBootedDeviatesByNothing: what a node was before does not count, until its worker has published again.
func TestANodeThatHasBootedDeviatesByNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(&tape{}, logr.Discard())
		defer w.end()
		w.declare()
		settle := func() { // an item of a queue that is due is released at the end of a wait
			w.drain(time.Minute)
			w.drain(time.Second)
		}
		w.facts["n0"]["a0"] = "2"
		w.publish("n0")
		w.boot()
		settle()
		deviates := func() bool {
			return slices.ContainsFunc(deviationsIn(w.server.Get("nodebaselines", "", "fleet")), func(d deviation) bool { return d.node == "n0" && d.check == "allowed" })
		}
		if !deviates() {
			t.Fatalf("the node does not deviate: %v", w.server.Get("nodebaselines", "", "fleet"))
		}
		w.boots["n0"]++
		w.do("kubelet", http.MethodPatch, nodesPath+"/n0/status", object{"status": object{"nodeInfo": object{"bootID": w.bootOf("n0")}}})
		settle()
		if status := below(w.server.Get("nodebaselines", "", "fleet"), "status"); deviates() || fmt.Sprint(status["unknown"]) != "1" {
			t.Errorf("after a boot the status is %v", status)
		}
		w.publish("n0")
		settle()
		if !deviates() || len(w.violations) > 0 {
			t.Errorf("the worker has published, and the node does not deviate: %v; %v", below(w.server.Get("nodebaselines", "", "fleet"), "status"), w.violations)
		}
	})
}

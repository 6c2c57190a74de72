package sim

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/assay-project/assay/internal/sim/apiserver"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/settings"
)

const (
	slicesPath = "/apis/resource.k8s.io/v1/resourceslices"
	taintsPath = "/apis/resource.k8s.io/v1/devicetaintrules"
	draDriver  = "gpu.example.com"
	// devicesRule is the name of the rule that reads devices.
	devicesRule = "devices"
)

// devicesKey is the label with the number of a node's devices that no taint keeps pods away from.
const devicesKey = string(keys.Label) + " " + prefix + "gpus"

// readDevices creates the rule that reads devices.
func (w *world) readDevices() {
	w.do("user", http.MethodPost, rulesPath, object{"metadata": object{"name": devicesRule}, "spec": object{"rules": []any{object{
		"name": "gpus", "labelsTemplate": `{{ $n := 0 }}{{ range .dra.device }}{{ if not (hasKey . "unschedulable") }}{{ $n = add1 $n }}{{ end }}{{ end }}gpus={{ $n }}`,
		"matchFeatures": []any{object{"feature": "dra.device", "matchExpressions": object{"device.name": object{"op": "Exists"}}}},
	}}}})
}

func sliceName(node string, i int) string { return fmt.Sprintf("%s-slice-%d", node, i) }

// sliceNode returns the node whose driver publishes a slice.
func sliceNode(slice object) string {
	return fmt.Sprint(below(below(slice, "spec"), "pool")["name"])
}

// spread reports whether the devices in the pool of a node name their nodes, as in the pool of a fabric: some are of another node.
func spread(node string) bool { return node == nodeName(1) }

// taintDevices creates a DeviceTaintRule for the devices of a node, with an effect or None, or deletes it.
func (w *world) taintDevices(node string) {
	if w.server.Get("devicetaintrules", "", node) != nil {
		w.tell("the DeviceTaintRule %s is deleted", node)
		w.do("user", http.MethodDelete, taintsPath+"/"+node, nil)
		return
	}
	effect := one(w.tape, "NoSchedule", "NoExecute", "None")
	w.tell("a DeviceTaintRule taints the devices of %s: %s", node, effect)
	w.do("user", http.MethodPost, taintsPath, object{"metadata": object{"name": node}, "spec": object{
		"deviceSelector": object{"driver": draDriver, "pool": node}, "taint": object{"key": "example.com/broken", "effect": effect},
	}})
}

// tainted reports whether a DeviceTaintRule, nil for none, keeps pods away from the devices that it selects.
func tainted(rule object) bool {
	return rule != nil && below(below(rule, "spec"), "taint")["effect"] != "None"
}

// publishDevices publishes a new generation of the pool of a node: in one slice or two, one after the other, with up to three devices.
func (w *world) publishDevices(node string) {
	o := w.server.Get("nodes", "", node)
	if o == nil {
		return
	}
	w.pools[node]++
	total, left := 1+w.n(2), w.n(4)
	w.tell("the driver of %s publishes %d devices in %d slices", node, left, total)
	for i := range total {
		count := left
		if i+1 < total {
			count = left / 2
		}
		left -= count
		list := []any{}
		for range count {
			list = append(list, object{"name": fmt.Sprintf("gpu-%d-%d", i, len(list))})
		}
		if spread(node) {
			for _, device := range list {
				device.(object)["nodeName"] = node
			}
			list = append(list, object{"name": fmt.Sprintf("far-%d", i), "nodeName": "elsewhere"})
		}
		name := sliceName(node, i)
		slice := object{
			"metadata": object{"name": name, "ownerReferences": []any{object{"apiVersion": "v1", "kind": "Node", "name": node, "uid": below(o, "metadata")["uid"]}}},
			"spec": object{
				"driver": draDriver, "devices": list,
				"pool": object{"name": node, "generation": w.pools[node], "resourceSliceCount": int64(total)},
			},
		}
		if spread(node) {
			below(slice, "spec")["perDeviceNodeSelection"] = true
		} else {
			below(slice, "spec")["nodeName"] = node
		}
		if w.server.Get("resourceslices", "", name) == nil {
			w.do("driver", http.MethodPost, slicesPath, slice)
		} else {
			w.do("driver", http.MethodPut, slicesPath+"/"+name, slice)
		}
	}
	if name := sliceName(node, total); total == 1 && w.server.Get("resourceslices", "", name) != nil {
		w.do("driver", http.MethodDelete, slicesPath+"/"+name, nil)
	}
}

// withdrawDevices deletes the slices of a node, as the kubelet does while a driver restarts.
func (w *world) withdrawDevices(by, node string) {
	for i := range 2 {
		if w.server.Get("resourceslices", "", sliceName(node, i)) != nil {
			w.tell("%s deletes slice %s", by, sliceName(node, i))
			w.do(by, http.MethodDelete, slicesPath+"/"+sliceName(node, i), nil)
		}
	}
}

// loseSlice deletes one slice of a node.
func (w *world) loseSlice(node string) {
	if name := sliceName(node, w.n(2)); w.server.Get("resourceslices", "", name) != nil {
		w.tell("slice %s is deleted", name)
		w.do("user", http.MethodDelete, slicesPath+"/"+name, nil)
	}
}

// settleDevices ends what drivers do: those of some nodes publish, the others stay away.
func (w *world) settleDevices() {
	for _, node := range w.names() {
		if w.n(3) > 0 {
			w.publishDevices(node)
		} else {
			w.withdrawDevices("kubelet", node)
		}
	}
}

// pooled is what a node's pool was from a revision on, until the next one.
type pooled struct {
	revision int64
	ended    time.Time // zero: it has not
	complete bool
	devices  int
}

// poolOf returns the states of a node's pool since the Node was created, from what the API server has stored.
func (c *checker) poolOf(node string) []pooled {
	stored := map[string]object{}
	out := []pooled{{}}
	add := func(change apiserver.Change, next pooled) {
		last := &out[len(out)-1]
		if last.complete == next.complete && last.devices == next.devices {
			return
		}
		last.ended, next.revision = change.Time, change.Revision
		out = append(out, next)
	}
	for _, change := range c.w.server.Since(0) {
		switch change.Resource.Name {
		case "nodes":
			if change.Key == node && change.Type == apiserver.Added {
				out = []pooled{{revision: change.Revision}}
			}
		case "resourceslices":
			if change.New != nil && sliceNode(change.New) != node || change.New == nil && sliceNode(change.Old) != node {
				continue
			}
			stored[change.Key] = change.New
			if change.Type == apiserver.Deleted {
				delete(stored, change.Key)
			}
			add(change, poolIn(stored))
		}
	}
	return out
}

// poolIn returns what slices of one pool say.
func poolIn(stored map[string]object) (p pooled) {
	newest, total, have := int64(0), int64(0), int64(0)
	for _, s := range stored {
		pool := below(below(s, "spec"), "pool")
		if g := number(pool["generation"]); g > newest {
			newest, total, have, p.devices = g, number(pool["resourceSliceCount"]), 0, 0
		}
		if number(pool["generation"]) == newest {
			devices, _ := below(s, "spec")["devices"].([]any)
			have++
			for _, d := range devices {
				if of := d.(object)["nodeName"]; of == nil || of == sliceNode(s) {
					p.devices++
				}
			}
		}
	}
	if p.complete = have > 0 && have == total; !p.complete {
		p.devices = 0
	}
	return p
}

func number(v any) int64 {
	n, err := strconv.ParseInt(fmt.Sprint(v), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// devicesOf returns the value of the label of a node now, or "" if it must have none.
func (c *checker) devicesOf(node string) string {
	states := c.poolOf(node)
	switch n := states[len(states)-1].devices; {
	case n == 0:
		return ""
	case tainted(c.w.server.Get("devicetaintrules", "", node)):
		return "0"
	default:
		return fmt.Sprint(n)
	}
}

// mayBeTainted reports whether a process may believe that the devices of a node are tainted, or that they are not.
func (c *checker) mayBeTainted(p *program, node string, want bool) bool {
	from, before := max(p.began, p.floor["devicetaintrules"]), object(nil)
	for _, change := range c.w.server.Since(0) {
		if change.Resource.Name != "devicetaintrules" || change.Key != node {
			continue
		}
		if change.Revision > from && tainted(before) == want {
			return true
		}
		if before = change.New; change.Type == apiserver.Deleted {
			before = nil
		}
	}
	return tainted(before) == want
}

// devices checks a change of the number of a node's devices. It may go only if the process may have read a complete pool without devices, or
// a pool that has been incomplete or gone for the grace period. It may be written if a complete pool has had that number of devices.
func (c *checker) devices(change apiserver.Change, value string, has, removed bool) {
	p := c.w.running(change.By)
	if p == nil || !has && !removed {
		return // it has crashed since, or another client has changed the label
	}
	from := max(p.began, p.floor["resourceslices"])
	states := c.poolOf(change.Key)
	var known time.Time // until when the pool was complete before
	none := false       // it had no devices then
	for i, s := range states {
		current := s.ended.IsZero() || states[i+1].revision > from
		switch {
		case has && s.complete && (current || time.Since(s.ended) < settings.DefaultRemovalGracePeriod+patience) &&
			(value == "0" && s.devices > 0 && c.mayBeTainted(p, change.Key, true) || fmt.Sprint(s.devices) == value && c.mayBeTainted(p, change.Key, false)):
			return
		case has || !current:
		case s.complete && s.devices == 0:
			return
		case !s.complete && (none || time.Since(known) >= settings.DefaultRemovalGracePeriod):
			// The last complete pool may have had no devices, and the process been unable to write the node until now (found by seed 902).
			return
		}
		if s.complete {
			known, none = s.ended, s.devices == 0
		}
	}
	if has {
		c.w.violate("%s: the label with %s devices is written, and no complete pool had them, or a DeviceTaintRule taints them", change.Key, value)
		return
	}
	c.w.violate("%s: the number of devices is taken away while the last complete pool explains it", change.Key)
}

// TestABaselineReadsDevicesAfterTheGracePeriod: in a fleet in which nothing changes, nodes stayed unknown after each start of the controller if a
// NodeBaseline reads devices, because what was left of the grace period was kept in a state that only an event renewed. If only a baseline
// reads them, a node without devices was never evaluated again.
func TestABaselineReadsDevicesAfterTheGracePeriod(t *testing.T) {
	for name, rule := range map[string]bool{"ARuleReadsThem": true, "OnlyTheBaselineReadsThem": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(&tape{devices: true}, logr.Discard())
				defer w.end()
				if !rule {
					w.do("user", http.MethodDelete, rulesPath+"/devices", nil)
				}
				w.publishDevices("n0") // n1 has none
				w.do("user", http.MethodPost, baselinesPath, object{"metadata": object{"name": "devices"}, "spec": object{"require": []any{object{
					"name": "none", "conditions": []any{object{"op": "eq", "args": object{"values": []any{"{@dra.device.len()}", 7}}}},
				}}}})
				w.boot()
				settle := func(d time.Duration) string {
					w.drain(d)
					w.drain(time.Minute) // changes of nodes are batched
					w.drain(time.Second) // an item of a queue that is due is released at the end of a wait
					s := below(w.server.Get("nodebaselines", "", "devices"), "status")
					return fmt.Sprintf("%v deviate, %v unknown", s["deviating"], s["unknown"])
				}
				if got := settle(time.Minute); got != "0 deviate, 2 unknown" {
					t.Errorf("after the start: %s, want 2 unknown: a driver may be away", got)
				}
				if got := settle(settings.DefaultRemovalGracePeriod); got != "2 deviate, 0 unknown" {
					t.Errorf("after the grace period: %s, want 2 that deviate", got)
				}
			})
		})
	}
}

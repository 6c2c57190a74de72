// Package resourceslice converts ResourceSlices, in which DRA drivers publish devices, to features, and reads DeviceClasses.
package resourceslice

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/facts"
)

// ErrNotServed is why no node has devices in a cluster without ResourceSlices.
var ErrNotServed = errors.New("the cluster does not serve ResourceSlices of " + resourcev1.SchemeGroupVersion.String() + ", which Kubernetes 1.34 and newer have")

// Slice is what rules read of a ResourceSlice.
type Slice struct {
	// Slice has no devices.
	facts.Slice
	// Parts are its devices by the node that they belong to. Devices that several nodes reach are not features of one, and in no part.
	Parts []Part
}

// Part is the devices of one node in a slice.
type Part struct {
	Node    string
	Devices *facts.Instances
}

// Equal reports whether two slices have the same devices, of the same Interner.
func (s *Slice) Equal(o *Slice) bool { return s.Slice == o.Slice && slices.Equal(s.Parts, o.Parts) }

// Of returns the slice with the devices of a part.
func (s *Slice) Of(p Part) facts.Slice {
	out := s.Slice
	out.Devices = p.Devices
	return out
}

// Read returns what rules read of a ResourceSlice.
func Read(s *resourcev1.ResourceSlice, in *facts.Interner) Slice {
	out := Slice{Slice: facts.Slice{
		Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name, Generation: s.Spec.Pool.Generation, Total: s.Spec.Pool.ResourceSliceCount,
	}}
	one := ptr.Deref(s.Spec.NodeName, "")
	out.Spread = one == ""
	byNode := map[string][]map[string]string{}
	if !out.Spread {
		byNode[one] = nil
	}
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		if node := cmp.Or(one, ptr.Deref(d.NodeName, "")); node != "" {
			byNode[node] = append(byNode[node], attributesOf(s.Spec.Driver, d))
		}
	}
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		out.Parts = append(out.Parts, Part{node, in.Instances(facts.NewInstances(byNode[node]))})
	}
	return out
}

// attributesOf returns the elements of a device. Those of DRA are C identifiers, or have a domain and a slash: they cannot have the
// names of the others, which contain a dot and no slash, except for "shared", "taints" and "unschedulable", which then win.
func attributesOf(driver string, d *resourcev1.Device) map[string]string {
	out := make(map[string]string, len(d.Attributes)+len(d.Capacity)+3)
	own := func(name resourcev1.QualifiedName) string { return strings.TrimPrefix(string(name), driver+"/") }
	for name, value := range d.Attributes {
		out[own(name)] = text(value)
	}
	for name, capacity := range d.Capacity {
		out["capacity."+own(name)] = number(capacity.Value)
	}
	out["device.name"] = d.Name
	if ptr.Deref(d.AllowMultipleAllocations, false) {
		out["shared"] = "true"
	}
	if ptr.Deref(d.BindsToNode, false) {
		out["binding.node"] = "true"
	}
	for name, list := range map[string][]string{"binding.conditions": d.BindingConditions, "binding.failure_conditions": d.BindingFailureConditions} {
		if len(list) > 0 {
			out[name] = strings.Join(list, ",")
		}
	}
	taints := make([]string, 0, len(d.Taints))
	for i := range d.Taints {
		taints = append(taints, taintOf(&d.Taints[i]))
	}
	facts.SetTaints(out, taints)
	return out
}

// number returns a quantity as a decimal without an exponent: an integer if it is whole.
func number(q resource.Quantity) string {
	text := q.AsDec().String() // q is a copy
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// text returns the value of an attribute; the values of a list are joined by commas.
func text(a resourcev1.DeviceAttribute) string {
	switch {
	case a.StringValue != nil:
		return *a.StringValue
	case a.VersionValue != nil:
		return *a.VersionValue
	case a.IntValue != nil:
		return strconv.FormatInt(*a.IntValue, 10)
	case a.BoolValue != nil:
		return strconv.FormatBool(*a.BoolValue)
	}
	list := slices.Concat(a.StringValues, a.VersionValues)
	for _, i := range a.IntValues {
		list = append(list, strconv.FormatInt(i, 10))
	}
	for _, b := range a.BoolValues {
		list = append(list, strconv.FormatBool(b))
	}
	return strings.Join(list, ",")
}

func taintOf(t *resourcev1.DeviceTaint) string {
	return facts.TaintText(t.Key, t.Value, string(t.Effect))
}

// TaintRule returns what rules read of a DeviceTaintRule. One without a selector selects nothing, and ok is false; an empty selector selects
// all devices.
func TaintRule(r *resourcev1.DeviceTaintRule) (rule facts.TaintRule, ok bool) {
	s := r.Spec.DeviceSelector
	if s == nil {
		return rule, false
	}
	return facts.TaintRule{Driver: s.Driver, Pool: s.Pool, Device: s.Device, Taint: taintOf(&r.Spec.Taint)}, true
}

// TaintRules returns what rules read of DeviceTaintRules.
func TaintRules(list []resourcev1.DeviceTaintRule) (out []facts.TaintRule) {
	for i := range list {
		if rule, ok := TaintRule(&list[i]); ok {
			out = append(out, rule)
		}
	}
	return out
}

// Facts returns the device features of each node that ResourceSlices describe, with the taints of DeviceTaintRules, as one list of the API
// has them: nothing is held.
func Facts(list []resourcev1.ResourceSlice, taints []resourcev1.DeviceTaintRule, counts func(driver string) bool) map[string]*facts.Facts {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b resourcev1.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
	// Those of several nodes can be in it for each of them, the newest first.
	list = slices.CompactFunc(list, func(a, b resourcev1.ResourceSlice) bool { return a.Name == b.Name })
	byNode, spread := map[string][]facts.Slice{}, Spreads{}
	for i := range list {
		s := Read(&list[i], nodefeature.Interner())
		if !counts(s.Driver) {
			continue
		}
		spread.Add(&s)
		for _, p := range s.Parts {
			byNode[p.Node] = append(byNode[p.Node], s.Of(p))
		}
	}
	out, rules := map[string]*facts.Facts{}, TaintRules(taints)
	for node, list := range byNode {
		out[node] = facts.FromPools(facts.Pools(spread.Complete(list)), rules, nodefeature.Interner())
	}
	return out
}

// Claimed returns the extended resources that DeviceClasses claim (KEP-5004), with the names of the classes.
func Claimed(list []resourcev1.DeviceClass) map[string]string {
	out := map[string]string{}
	for i := range list {
		if name := list[i].Spec.ExtendedResourceName; name != nil {
			out[*name] = list[i].Name
		}
	}
	return out
}

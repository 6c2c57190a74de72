// Package resourceslice converts ResourceSlices, in which DRA drivers publish devices, to features, and reads DeviceClasses.
package resourceslice

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/facts"
)

// ErrNotServed is why no node has devices in a cluster without ResourceSlices.
var ErrNotServed = errors.New("the cluster does not serve ResourceSlices of " + resourcev1.SchemeGroupVersion.String() + ", which Kubernetes 1.34 and newer have")

// Of returns what rules read of a ResourceSlice, and the node that it describes; empty: it describes devices that several nodes reach,
// which are not features of one.
func Of(s *resourcev1.ResourceSlice, in *facts.Interner) (slice facts.Slice, node string) {
	if s.Spec.NodeName == nil || *s.Spec.NodeName == "" {
		return facts.Slice{}, ""
	}
	list := make([]map[string]string, 0, len(s.Spec.Devices))
	for i := range s.Spec.Devices {
		list = append(list, attributesOf(s.Spec.Driver, &s.Spec.Devices[i]))
	}
	devices := facts.NewInstances(list)
	return facts.Slice{
		Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name, Generation: s.Spec.Pool.Generation, Total: s.Spec.Pool.ResourceSliceCount,
		Devices: in.Instances(devices),
	}, *s.Spec.NodeName
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
	if d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations {
		out["shared"] = "true"
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
	slices.SortFunc(list, func(a, b resourcev1.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
	byNode := map[string][]facts.Slice{}
	for i := range list {
		if slice, node := Of(&list[i], nodefeature.Interner()); node != "" && counts(slice.Driver) {
			byNode[node] = append(byNode[node], slice)
		}
	}
	out, rules := map[string]*facts.Facts{}, TaintRules(taints)
	for node, list := range byNode {
		out[node] = facts.FromPools(facts.Pools(list), rules, nodefeature.Interner())
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

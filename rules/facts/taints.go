package facts

import (
	"slices"
	"strings"
)

// Elements of a device that say how it is tainted.
const (
	taintsElement = "taints"
	// unschedulableElement is "true" if a taint keeps new pods away. The effect None does not.
	unschedulableElement = "unschedulable"
)

// TaintRule is the part of a DeviceTaintRule that rules read: a taint of all devices that it selects.
type TaintRule struct {
	// Driver, Pool and Device are the names that a device must have; nil: any.
	Driver, Pool, Device *string
	// Taint is the text of the taint.
	Taint string
}

// Equal reports whether two rules taint the same devices in the same way.
func (r TaintRule) Equal(o TaintRule) bool {
	same := func(a, b *string) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
	return r.Taint == o.Taint && same(r.Driver, o.Driver) && same(r.Pool, o.Pool) && same(r.Device, o.Device)
}

// TaintText returns a taint as the element of a device has it.
func TaintText(key, value, effect string) string { return key + "=" + value + ":" + effect }

// SetTaints sets the elements of a device that say how it is tainted. It sorts the list.
func SetTaints(attributes map[string]string, taints []string) {
	if len(taints) == 0 {
		return
	}
	slices.Sort(taints)
	attributes[taintsElement] = strings.Join(slices.Compact(taints), ",")
	if slices.ContainsFunc(taints, func(t string) bool { return strings.HasSuffix(t, ":NoSchedule") || strings.HasSuffix(t, ":NoExecute") }) {
		attributes[unschedulableElement] = "true"
	}
}

// TaintRulesOf returns the rules that may select a device of a pool.
func TaintRulesOf(rules []TaintRule, driver, pool string) (out []TaintRule) {
	for _, r := range rules {
		if isAny(r.Driver, driver) && isAny(r.Pool, pool) {
			out = append(out, r)
		}
	}
	return out
}

// addTaints adds the taints of rules to a device of their pool.
func addTaints(attributes map[string]string, rules []TaintRule) {
	var added []string
	for _, r := range rules {
		if isAny(r.Device, attributes["device.name"]) {
			added = append(added, r.Taint)
		}
	}
	if len(added) > 0 && attributes[taintsElement] != "" {
		added = append(added, strings.Split(attributes[taintsElement], ",")...) // keys, values and effects contain no commas
	}
	SetTaints(attributes, added)
}

func isAny(want *string, name string) bool { return want == nil || *want == name }

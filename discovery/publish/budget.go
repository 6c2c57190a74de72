package publish

import (
	"maps"
	"slices"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// DefaultMaxBytes is the maximum size of the JSON of a NodeFeature's spec. A large server has about 130 kB; the API server and etcd
// reject objects of 1.5 MiB, and become slow well before that.
const DefaultMaxBytes = 256 << 10

// dropOrder lists the features that are dropped first if a node exceeds the budget: large and rarely used ones first. Features that
// are not listed are dropped last, largest first; those that describe the publication never are. A feature is dropped as a whole, since a
// rule that counts devices would be wrong for an incomplete list. Labels are only dropped beyond half of the budget, which is more than a Node can hold.
var dropOrder = []string{
	"network.virtual",
	"kernel.enabledmodule",
	"kernel.loadedmodule",
	"kernel.config",
	"storage.device",
	"storage.block",
	"usb.device",
	"network.device",
	"local.feature",
	"local.label",
	"pci.device",
}

// fit drops features until the JSON of the spec has at most max bytes, and returns their sorted names. It does not modify the given
// spec.
func fit(spec nfdv1alpha1.NodeFeatureSpec, max int) (nfdv1alpha1.NodeFeatureSpec, []string) {
	if max < 0 {
		return spec, nil
	}
	sizes := map[string]int{}
	total := sizeOf(spec.Labels, textSize)
	add := func(name string, size int) {
		size += textSize(name) + len(`:{"elements":},`)
		sizes[name] += size
		total += size
	}
	for name, set := range spec.Features.Flags {
		add(name, sizeOf(set.Elements, flagSize))
	}
	for name, set := range spec.Features.Attributes {
		add(name, sizeOf(set.Elements, textSize))
	}
	for name, set := range spec.Features.Instances {
		add(name, instancesSize(set.Elements))
	}
	if total <= max {
		return spec, nil
	}
	labels, left := fitLabels(spec.Labels, max/2)
	if left {
		total += sizeOf(labels, textSize) - sizeOf(spec.Labels, textSize)
	}
	f := nfdv1alpha1.Features{
		Flags:      maps.Clone(spec.Features.Flags),
		Attributes: maps.Clone(spec.Features.Attributes),
		Instances:  maps.Clone(spec.Features.Instances),
	}
	var dropped []string
	for _, name := range candidates(sizes) {
		if total <= max {
			break
		}
		delete(f.Flags, name)
		delete(f.Attributes, name)
		delete(f.Instances, name)
		dropped = append(dropped, name)
		total -= sizes[name]
	}
	if left {
		dropped = append(dropped, droppedLabels)
	}
	slices.Sort(dropped)
	return nfdv1alpha1.NodeFeatureSpec{Features: f, Labels: labels}, dropped
}

// droppedLabels represents labels among the names of dropped features.
const droppedLabels = "labels"

// fitLabels keeps as many labels as fit into max bytes of JSON, by name, and reports whether some were dropped.
func fitLabels(labels map[string]string, max int) (fit map[string]string, left bool) {
	total := sizeOf(labels, textSize)
	if total <= max {
		return labels, false
	}
	fit = maps.Clone(labels)
	names := slices.Sorted(maps.Keys(labels))
	for i := len(names) - 1; i >= 0 && total > max; i-- {
		total -= textSize(names[i]) + len(`:,`) + textSize(labels[names[i]])
		delete(fit, names[i])
	}
	return fit, true
}

// candidates lists features in the order in which they are dropped.
func candidates(sizes map[string]int) []string {
	var out []string
	for _, name := range dropOrder {
		if _, ok := sizes[name]; ok {
			out = append(out, name)
		}
	}
	rest := slices.Collect(maps.Keys(sizes))
	rest = slices.DeleteFunc(rest, func(name string) bool {
		return slices.Contains(dropOrder, name) || nfdv1alpha1.DescribesPublication(name)
	})
	slices.SortFunc(rest, func(a, b string) int {
		if sizes[a] != sizes[b] {
			return sizes[b] - sizes[a]
		}
		return strings.Compare(a, b)
	})
	return append(out, rest...)
}

// sizeOf returns the length of a map as JSON; size does the same for one value.
func sizeOf[V any](m map[string]V, size func(V) int) int {
	n := len("{}")
	for k, v := range m {
		n += textSize(k) + len(`:,`) + size(v)
	}
	return n
}

func flagSize(nfdv1alpha1.Nil) int { return len("{}") }

func instancesSize(list []nfdv1alpha1.InstanceFeature) int {
	n := len("[]")
	for _, instance := range list {
		n += len(`{"attributes":},`) + sizeOf(instance.Attributes, textSize)
	}
	return n
}

// textSize returns the length of valid UTF-8 as a JSON string as encoding/json escapes it. It ignores the two line separators that
// encoding/json also escapes.
func textSize(s string) int {
	n := len(`""`) + len(s)
	for i := range len(s) {
		switch b := s[i]; {
		case b == '"' || b == '\\':
			n++
		case b < 0x20 || b == '<' || b == '>' || b == '&':
			n += len(`\u0000`) - 1
		}
	}
	return n
}

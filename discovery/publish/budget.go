package publish

import (
	"maps"
	"slices"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// DefaultMaxBytes bounds the JSON of one NodeFeature's spec. A large server has about 130 kB; the API server and etcd
// refuse objects of 1.5 MiB and suffer long before.
const DefaultMaxBytes = 256 << 10

// dropOrder lists the features that are given up first when a node has more to say than the budget allows: what is large
// and rarely asked for comes first. What is not listed here is given up last, the largest first. A feature goes as a whole,
// since half a list of devices would make a rule that counts them answer wrongly. Of labels, only what is beyond half of the
// budget is given up: no Node has room for so many.
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

// fit leaves out features until the spec fits into max bytes of JSON, and returns the names that it left out, sorted. The
// given spec is not modified.
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

// droppedLabels stands for labels among the names of what was left out.
const droppedLabels = "labels"

// fitLabels keeps as many labels as fit into max bytes of JSON, by name, and reports whether some are left out.
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

// candidates lists features in the order in which they are given up.
func candidates(sizes map[string]int) []string {
	var out []string
	for _, name := range dropOrder {
		if _, ok := sizes[name]; ok {
			out = append(out, name)
		}
	}
	rest := slices.Collect(maps.Keys(sizes))
	rest = slices.DeleteFunc(rest, func(name string) bool { return slices.Contains(dropOrder, name) })
	slices.SortFunc(rest, func(a, b string) int {
		if sizes[a] != sizes[b] {
			return sizes[b] - sizes[a]
		}
		return strings.Compare(a, b)
	})
	return append(out, rest...)
}

// sizeOf returns how long a map is as JSON; size does the same for one value.
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

// textSize returns the length of valid UTF-8 as a JSON string, in the way that encoding/json escapes it. The two line
// separators that it escapes too are not worth a decoder here.
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

// Package baselines writes NodeBaselines from what nodes have in common, and reports about them.
package baselines

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/assay-project/assay/rules/baseline"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/facts"
)

// Share is the percentage of nodes that must have a value for a proposal to require it: the others are what a user wants to see.
const Share = 95

// Proposal is a baseline of what nodes have in common.
type Proposal struct {
	Name     string
	Selector map[string]string
	// Nodes is the number of nodes whose features are known. Those of Unknown are not.
	Nodes, Unknown int
	// Checks are the requirements that at least Share percent of the nodes meet.
	Checks []Check
	// Left are the values that fewer nodes share.
	Left []Left
	// Omitted is the number of checks for which a baseline has no room.
	Omitted int
}

// Check is one entry in require.
type Check struct {
	Name string
	// Requirement are the other fields of the entry, in YAML: a line each.
	Requirement []string
	// Nodes is the number of nodes that meet it.
	Nodes int
}

// Left is something in which nodes differ.
type Left struct {
	Name   string
	Values []Value // the most frequent first
}

// Value is what some nodes have; empty: they lack it.
type Value struct {
	Text  string
	Nodes []string // sorted
}

// trait is something of a node that a baseline can require.
type trait struct {
	id          string // of the same trait on other nodes
	name        string // of the check
	value       string
	requirement []string
}

// Propose proposes a baseline. Hides says which features must not be shown.
func Propose(name string, selector map[string]string, nodes []baseline.Node, hides func(feature string) bool) *Proposal {
	out := &Proposal{Name: name, Selector: selector}
	byID := map[string]map[string][]string{} // the nodes of each value
	sample := map[[2]string]trait{}
	var order []trait // in the order in which a node has them
	for _, n := range nodes {
		if n.Unknown || n.Unpublished || len(n.Input.Publishers) == 0 {
			out.Unknown++
			continue
		}
		out.Nodes++
		for _, t := range traitsOf(n.Input.Facts, hides) {
			if byID[t.id] == nil {
				byID[t.id] = map[string][]string{}
				order = append(order, t)
			}
			byID[t.id][t.value] = append(byID[t.id][t.value], n.Input.Node.Name)
			sample[[2]string{t.id, t.value}] = t
		}
	}
	slices.SortStableFunc(order, func(a, b trait) int { return cmp.Compare(a.name, b.name) })
	enough := int(math.Ceil(float64(out.Nodes) * Share / 100))
	names := map[string]bool{}
	for _, t := range order {
		values := ranked(byID[t.id], out.Nodes, nodes)
		name := unique(names, t.name)
		switch most := values[0]; {
		case len(most.Nodes) < enough:
			out.Left = append(out.Left, Left{Name: name, Values: values})
		case most.Text == "": // what only a few nodes have is not in the baseline
		case len(out.Checks) == baseline.MaxChecks:
			out.Omitted++
		default:
			out.Checks = append(out.Checks, Check{Name: name, Requirement: sample[[2]string{t.id, most.Text}].requirement, Nodes: len(most.Nodes)})
		}
	}
	return out
}

// ranked returns the values with their nodes, the most frequent first. Of all known nodes, those without a value lack it.
func ranked(values map[string][]string, known int, nodes []baseline.Node) (out []Value) {
	has := map[string]bool{}
	for _, value := range slices.Sorted(maps.Keys(values)) {
		out = append(out, Value{value, slices.Sorted(slices.Values(values[value]))})
		for _, name := range values[value] {
			has[name] = true
		}
	}
	if len(has) < known {
		lack := Value{}
		for _, n := range nodes {
			if name := n.Input.Node.Name; !has[name] && !n.Unknown && !n.Unpublished && len(n.Input.Publishers) > 0 {
				lack.Nodes = append(lack.Nodes, name)
			}
		}
		out = append(out, lack)
	}
	slices.SortStableFunc(out, func(a, b Value) int { return cmp.Compare(len(b.Nodes), len(a.Nodes)) })
	return out
}

// unique returns a name that is not used yet.
func unique(used map[string]bool, name string) string {
	out := name
	for n := 2; used[out]; n++ {
		out = fmt.Sprintf("%s-%d", name, n)
	}
	used[out] = true
	return out
}

// attributes are elements that nodes of one kind have in common unless one was set up differently: kernel, firmware and counts.
var attributes = []struct {
	name, feature string
	elements      []string
}{
	{"kernel", "kernel.version", []string{"full"}},
	{"bios", "system.dmiid", []string{"bios_version"}},
	{"ec-firmware", "system.dmiid", []string{"ec_firmware_release"}},
	{"microcode", "cpu.model", []string{"microcode"}},
	{"cpus", "cpu.topology", []string{"cpu_count"}},
	{"numa-nodes", "memory.numa", []string{"node_count"}},
	{"nvidia-module", "gpu.nvidia", []string{"module"}},
	{"container-runtime", "kubernetes.node", []string{"container_runtime", "container_runtime_version"}},
}

// drivers are modules whose version is that of a driver of accelerators, network cards or storage that is often built outside of the
// kernel. Other modules are loaded when something needs them.
var drivers = []string{
	"amdgpu", "bnxt_en", "efa", "ena", "gdrdrv", "habanalabs", "i40e", "ice", "idpf", "irdma", "lustre", "mlx4_core", "mlx5_core", "neuron", "nvidia",
	"nvidia_fs", "nvidia_peermem", "qaic",
}

// firmware are instances with a model and the version of its firmware.
var firmware = []struct{ name, feature, model, version string }{
	{"nvme-firmware", "storage.nvme", "model", "firmware_rev"},
	{"rdma-firmware", "rdma.device", "board_id", "fw_ver"},
}

// counted are features whose instances are devices that nodes of one kind have equally many of. Cloud providers attach disks as NVMe, and
// SR-IOV adds PCI functions: these are not counted.
var counted = []struct{ name, feature string }{
	{"drm-cards", "gpu.drm"},
	{"accelerators", "gpu.accel"},
	{"nvidia-gpus", "gpu.nvidia"},
	{"rdma-ports", "rdma.device"},
	{"dra-devices", facts.DeviceFeature},
}

// named are features whose instances are either there or not.
var named = []struct{ name, feature, element string }{
	{"handler", "kubernetes.runtimehandler", "name"},
	{"cdi", "cdi.kind", "kind"},
}

// notDevices begin the names of resources in kubernetes.allocatable that are not devices.
var notDevices = regexp.MustCompile(`^(hugepages-|attachable-volumes-)`)

// traitsOf returns the traits of a node.
func traitsOf(f *facts.Facts, hides func(feature string) bool) (out []trait) {
	add := func(id, name, value string, requirement ...string) {
		out = append(out, trait{id, checkName(name), value, requirement})
	}
	feature := func(name string, elements ...string) *facts.Feature {
		if hides(name) || slices.ContainsFunc(elements, func(e string) bool { return hides(name + "." + e) }) {
			return nil
		}
		return f.Feature(name)
	}
	for _, a := range attributes {
		if values := elementsOf(feature(a.feature, a.elements...), a.elements); values != nil {
			add(a.name, a.name, strings.Join(values, " "), match(a.feature, a.elements, values))
		}
	}
	if modules := feature("kernel.module", "name", "version"); modules != nil {
		for i := range modules.Instances.Len() {
			name, _ := modules.Instances.Get(i, "name")
			if version, ok := modules.Instances.Get(i, "version"); ok && slices.Contains(drivers, name) {
				add("module "+name, "driver-"+name, version, match("kernel.module", []string{"name", "version"}, []string{name, version}))
			}
		}
	}
	for _, w := range firmware {
		if pairs := pairsOf(feature(w.feature, w.model, w.version), w.model, w.version); len(pairs) > 0 {
			add(w.name, w.name, strings.Join(pairs, ", "), fmt.Sprintf(
				"conditions: [{op: one-of, loop: %s, multiple: all, args: {value: %s, values: [%s]}}]",
				clip.Quote("{@"+w.feature+"}"), clip.Quote("{item."+w.model+"} {item."+w.version+"}"), clip.QuoteAll(pairs)))
		}
	}
	for _, c := range counted {
		if d := feature(c.feature); d != nil && d.Instances.Len() > 0 {
			n := d.Instances.Len()
			add(c.name, c.name, fmt.Sprint(n), fmt.Sprintf("conditions: [{op: eq, args: {values: [%s, %d]}}]", clip.Quote("{@"+c.feature+".len()}"), n))
		}
	}
	if resources := feature("kubernetes.allocatable"); resources != nil {
		for i, name := range resources.Attributes.Names() {
			value := resources.Attributes.Value(i)
			if strings.Contains(name, "/") && value != "0" && !notDevices.MatchString(name) && !hides("kubernetes.allocatable."+name) {
				add("resource "+name, name, value, match("kubernetes.allocatable", []string{name}, []string{value}))
			}
		}
	}
	for _, n := range named {
		list := feature(n.feature, n.element)
		if list == nil {
			continue
		}
		for i := range list.Instances.Len() {
			if name, _ := list.Instances.Get(i, n.element); name != "" && name != "unknown" {
				add(n.feature+" "+name, n.name+"-"+name, "present", match(n.feature, []string{n.element}, []string{name}))
			}
		}
	}
	return out
}

// elementsOf returns the values of elements; nil: the feature lacks one.
func elementsOf(f *facts.Feature, elements []string) (out []string) {
	if f == nil {
		return nil
	}
	for _, e := range elements {
		value, ok := f.Attributes.Get(e)
		if !ok || value == "" {
			return nil
		}
		out = append(out, value)
	}
	return out
}

// pairsOf returns the distinct pairs of two elements of all instances, sorted; nil: there are none, or one cannot be in a condition.
func pairsOf(f *facts.Feature, first, second string) (out []string) {
	if f == nil {
		return nil
	}
	for i := range f.Instances.Len() {
		a, hasA := f.Instances.Get(i, first)
		b, hasB := f.Instances.Get(i, second)
		if !hasA || !hasB || strings.ContainsAny(a+b, "{}") { // braces are expressions in conditions
			return nil
		}
		out = append(out, a+" "+b)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// match returns a matcher for elements with values, in YAML.
func match(feature string, elements, values []string) string {
	var terms []string
	for i, e := range elements {
		terms = append(terms, fmt.Sprintf("%s: {op: In, value: [%s]}", key(e), clip.Quote(values[i])))
	}
	return fmt.Sprintf("matchFeatures: [{feature: %s, matchExpressions: {%s}}]", feature, strings.Join(terms, ", "))
}

// maxName is the maximum number of bytes of the name of a check.
const maxName = 63

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// checkName returns a valid name of a check.
func checkName(text string) string {
	name := strings.Trim(notInName.ReplaceAllString(strings.ToLower(text), "-"), "-")
	if name == "" || name[0] < 'a' {
		name = "x-" + name
	}
	const number = 3 // that unique may add
	return strings.TrimRight(name[:min(len(name), maxName-number)], "-")
}

// String describes the values and their nodes.
func (l *Left) String() string {
	var out []string
	for _, v := range l.Values[:min(len(l.Values), maxShown)] {
		text := clip.Text(v.Text, maxText)
		if text == "" {
			text = "absent"
		}
		out = append(out, fmt.Sprintf("%s on %s", text, some(v.Nodes)))
	}
	if more := len(l.Values) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("%d more values", more))
	}
	return l.Name + ": " + strings.Join(out, "; ")
}

const (
	// maxShown is the maximum number of values, and of nodes by name, in a comment.
	maxShown = 5
	// maxText is the maximum number of bytes of a value in a comment.
	maxText = 120
)

// some returns the names of a few nodes, or the number of many.
func some(nodes []string) string {
	if len(nodes) > maxShown {
		return clip.Count(len(nodes), "node")
	}
	return strings.Join(nodes, ", ")
}

// Package featuretable prints the features of a node as a table.
package featuretable

import (
	"fmt"
	"io"
	"slices"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/internal/ids"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/facts"
)

const (
	// lineWidth is the width at which lines with elements are wrapped.
	lineWidth = 110
	// maxShown is the maximum number of elements of a feature that are shown: a kernel has thousands of options.
	maxShown = 48
)

// Table prints features as a table, with one line per set and per device.
type Table struct {
	W   io.Writer
	S   printer.Style
	All bool
	ids ids.Lazy
}

// Print prints features.
func (t *Table) Print(f *nfdv1alpha1.Features) {
	var names []string
	for _, list := range [][]string{facts.SortedKeys(f.Flags), facts.SortedKeys(f.Attributes), facts.SortedKeys(f.Instances)} {
		names = append(names, list...)
	}
	slices.Sort(names)
	var none []string
	for _, name := range slices.Compact(names) {
		flags, attributes, instances := f.Flags[name].Elements, f.Attributes[name].Elements, f.Instances[name].Elements
		if len(flags)+len(attributes)+len(instances) == 0 {
			none = append(none, name)
			continue
		}
		if len(flags) > 0 {
			t.words(name, clip.Count(len(flags), "flag"), facts.SortedKeys(flags))
		}
		if len(attributes) > 0 {
			t.words(name, clip.Count(len(attributes), "attribute"), pairs(attributes))
		}
		if len(instances) > 0 {
			t.instances(name, instances)
		}
	}
	if len(none) > 0 {
		t.words("empty", clip.Count(len(none), "feature"), none)
	}
}

func (t *Table) title(name, count string) {
	fmt.Fprintf(t.W, "%s  %s\n", t.S.Bold(clip.Printable(name)), t.S.Faint(count))
}

// words prints a set of words as wrapped lines.
func (t *Table) words(name, count string, words []string) {
	t.title(name, count)
	more := 0
	if !t.All && len(words) > maxShown {
		words, more = words[:maxShown], len(words)-maxShown
	}
	if more > 0 {
		words = append(slices.Clone(words), fmt.Sprintf("… and %d more (assay scan %s shows them)", more, name))
	}
	line := " "
	for _, w := range words {
		w = clip.Printable(w)
		if printer.Runes(line)+printer.Runes(w)+1 > lineWidth && line != " " {
			fmt.Fprintln(t.W, line)
			line = " "
		}
		line += " " + w
	}
	fmt.Fprintln(t.W, line)
}

func (t *Table) instances(name string, list []nfdv1alpha1.InstanceFeature) {
	t.title(name, clip.Count(len(list), "instance"))
	type row struct {
		text  string
		count int
	}
	var rows []row
	for _, e := range list { // print equal devices on one line
		text := InstanceText(e.Attributes)
		if i := slices.IndexFunc(rows, func(r row) bool { return r.text == text }); i >= 0 {
			rows[i].count++
			continue
		}
		rows = append(rows, row{text, 1})
		if label := t.Label(name, e.Attributes); label != "" {
			rows[len(rows)-1].text = text
			rows = append(rows, row{"    " + label, 0})
		}
	}
	for _, r := range rows {
		times := ""
		if r.count > 1 {
			times = fmt.Sprintf("%d× ", r.count)
		}
		text := "  " + times + clip.Printable(r.text)
		if r.count == 0 {
			text = t.S.Faint(text)
		}
		fmt.Fprintln(t.W, text)
	}
}

// Label returns the name of a device from the databases of PCI and USB IDs.
func (t *Table) Label(feature string, a map[string]string) string {
	names := &t.ids
	var vendor, device, class string
	switch feature {
	case "pci.device":
		vendor, _ = names.PCIVendor(a["vendor"])
		device, _ = names.PCIDevice(a["vendor"], a["device"])
		class, _ = names.PCIClass(a["class"])
	case "usb.device":
		vendor, _ = names.USBVendor(a["vendor"])
		device, _ = names.USBDevice(a["vendor"], a["device"])
	}
	return strings.Join(slices.DeleteFunc([]string{class, vendor, device}, func(s string) bool { return s == "" }), ", ")
}

// InstanceText formats an instance on one line. The attributes that distinguish it from others come first.
func InstanceText(a map[string]string) string {
	first := []string{"name", "class", "vendor", "device"}
	var out []string
	for _, key := range first {
		if v, ok := a[key]; ok {
			out = append(out, key+"="+v)
		}
	}
	for _, key := range facts.SortedKeys(a) {
		if !slices.Contains(first, key) {
			out = append(out, key+"="+a[key])
		}
	}
	return strings.Join(out, " ")
}

func pairs(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for _, k := range facts.SortedKeys(m) {
		out = append(out, k+"="+m[k])
	}
	return out
}

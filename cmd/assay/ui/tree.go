package ui

import (
	"slices"
	"strconv"
	"strings"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

// Limits on the features of one node on a page: a kernel has thousands of options.
const (
	// maxElements is the maximum number of elements of one feature without a search.
	maxElements = 60
	// maxFound is the maximum number of elements in a search result.
	maxFound = 400
	// maxInstances is the maximum number of instances of one feature.
	maxInstances = 50
)

// tree holds the features of one node for display.
type tree struct {
	// Query is the search string.
	Query    string
	Features []feature
	// Total is the number of non-empty features of the node, Found the number of elements in the search result.
	Total, Found int
}

// feature is one feature with the elements that are shown.
type feature struct {
	Name, Kind string
	// Count is the number of elements, More the number of elements that are not shown.
	Count, More int
	Elements    []element
	// Columns and Rows hold the instances.
	Columns []string
	Rows    []instance
	// Open is set if the elements are initially visible.
	Open bool
}

// element is a flag, or an attribute with its value. Size is a value in bytes in a readable unit.
type element struct{ Name, Value, Size string }

// instance is one instance with a cell per column.
type instance struct {
	Cells []string
	// Name is the name of the device.
	Name string
}

// openElements is the maximum number of elements of a feature that is initially open.
const openElements = 12

// newTree returns the features of a node. If query is not empty, it returns only elements that contain it.
func newTree(f *facts.Facts, query string, s *Snapshot) tree {
	b := &treeBuilder{query: strings.ToLower(strings.TrimSpace(query)), mask: s.Known.Rules.Mask, describe: s.Describe}
	b.out = tree{Query: query}
	for _, name := range f.Names() {
		feature := f.Feature(name)
		if feature.Flags.Len()+feature.Attributes.Len()+feature.Instances.Len() > 0 {
			b.out.Total++
		}
		b.feature(name, feature)
	}
	return b.out
}

type treeBuilder struct {
	query    string
	mask     rules.Masking
	describe func(string, map[string]string) string
	out      tree
}

func (b *treeBuilder) feature(name string, f *facts.Feature) {
	if n := f.Flags.Len(); n > 0 {
		b.elements(name, "flag", f.Flags.Names(), nil)
	}
	if n := f.Attributes.Len(); n > 0 {
		b.elements(name, "attribute", f.Attributes.Names(), func(key string) string {
			value, _ := f.Attributes.Get(key)
			return b.shown(key, value)
		})
	}
	if f.Instances.Len() > 0 {
		b.instances(name, f.Instances)
	}
}

func (b *treeBuilder) shown(key, value string) string {
	if b.mask.Hides(key) {
		return rules.Hidden
	}
	return value
}

// room returns how many more elements can be shown.
func (b *treeBuilder) room(limit int) int {
	if b.query == "" {
		return limit
	}
	return max(0, maxFound-b.out.Found)
}

func (b *treeBuilder) holds(text string) bool {
	return b.query == "" || strings.Contains(strings.ToLower(text), b.query)
}

func (b *treeBuilder) elements(name, kind string, names []string, value func(string) string) {
	out := feature{Name: name, Kind: kind, Open: b.query != "" || len(names) <= openElements}
	room := b.room(maxElements)
	for _, key := range names {
		e := element{Name: key}
		if value != nil {
			e.Value = value(key)
			e.Size = size(key, e.Value)
		}
		if !b.holds(name + "." + key + "=" + e.Value) {
			continue
		}
		if out.Count++; len(out.Elements) < room {
			out.Elements = append(out.Elements, e)
		}
	}
	out.More = out.Count - len(out.Elements)
	b.add(out)
}

func (b *treeBuilder) instances(name string, list *facts.Instances) {
	out := feature{Name: name, Kind: "instance", Columns: firstColumns(list.Names()), Open: b.query != "" || list.Len() <= openElements}
	room := b.room(maxInstances)
	for i := range list.Len() {
		attributes := list.Instance(i)
		row := instance{}
		text := name
		for _, key := range out.Columns {
			value, ok := attributes[key]
			if ok {
				value = b.shown(key, value)
			}
			row.Cells = append(row.Cells, value)
			text += " " + key + "=" + value
		}
		if b.describe != nil {
			row.Name = b.describe(name, attributes)
		}
		if !b.holds(text + " " + row.Name) {
			continue
		}
		if out.Count++; len(out.Rows) < room {
			out.Rows = append(out.Rows, row)
		}
	}
	out.More = out.Count - len(out.Rows)
	b.add(out)
}

func (b *treeBuilder) add(f feature) {
	if f.Count == 0 {
		return
	}
	if b.query != "" {
		b.out.Found += f.Count
	}
	b.out.Features = append(b.out.Features, f)
}

// firstColumns orders the attributes of instances: those that distinguish devices come first.
func firstColumns(names []string) []string {
	first := []string{"name", "class", "vendor", "device"}
	var out []string
	for _, name := range first {
		if slices.Contains(names, name) {
			out = append(out, name)
		}
	}
	for _, name := range names {
		if !slices.Contains(first, name) {
			out = append(out, name)
		}
	}
	return out
}

// size formats the value of an element in a larger unit, if the name of the element includes a unit. Otherwise it returns "".
func size(name, value string) string {
	scale := uint64(1)
	switch {
	case strings.HasSuffix(name, "bytes"):
	case strings.HasSuffix(name, "mib"):
		scale = 1 << 20
	default:
		return ""
	}
	n, err := strconv.ParseUint(value, 10, 43)
	if err != nil || n < 1<<10 {
		return ""
	}
	amount, units := float64(n*scale), []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	i := 0
	for ; amount >= 1<<10; i++ {
		amount /= 1 << 10
	}
	decimals := 0
	if amount < 100 {
		decimals = 1
	}
	return strings.TrimSuffix(strconv.FormatFloat(amount, 'f', decimals, 64), ".0") + " " + units[i]
}

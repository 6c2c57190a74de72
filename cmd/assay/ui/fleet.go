package ui

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/assay-project/assay/cmd/assay/column"
	"github.com/assay-project/assay/cmd/assay/featurecount"
	"github.com/assay-project/assay/rules"
)

const (
	// maxColumns is the maximum number of columns of the matrix.
	maxColumns = 12
	// maxValues is the maximum number of values that are shown per column, most frequent first.
	maxValues = 8
	// setsPerPage is the number of sets of equal nodes on a page, featuresPerPage the number of features.
	setsPerPage, featuresPerPage = 50, 300
)

// preferredColumns are the default columns: from each group the first one that a node has.
var preferredColumns = [][]string{
	{"kernel.version.full"},
	{"cpu.model.name", "cpu.model.id"},
	{"cpu.topology.cpu_count", "cpu.model.vendor_id"},
	{"memory.total.mib", "memory.numa.node_count"},
	{"gpu.drm.driver", "pci.device.vendor"},
	{"system.osrelease.PRETTY_NAME", "system.osrelease.VERSION_ID", "system.osrelease.ID"},
	{"system.dmiid.bios_version"},
}

// fleetPage is the page with all nodes.
type fleetPage struct {
	Filter, FilterError string
	Columns             []fleetColumn
	By                  string
	// Matching is the number of selected nodes of Total. If no node is selected, Nearest is the node that meets most of the filter,
	// and Lacks what it does not meet.
	Matching, Total int
	Unpublished     int
	Nearest, Lacks  string
	Values          []columnValues
	Sets            []nodeSet
	Nodes           []nodeRow
	Features        []*featurecount.Count
	Count           int // number of rows on all pages
	Page, Pages     int
}

// fleetColumn is one column of the matrix. Numeric columns are right-aligned.
type fleetColumn struct {
	Name    string
	Numeric bool
}

// columnValues holds the values of one column.
type columnValues struct {
	Name   string
	Values []valueCount
	// Distinct is the number of values, More the number of values that are not shown, Without the number of nodes without a value.
	Distinct, More, Without int
	// Missing is the filter that selects nodes without a value.
	Missing string
}

// valueCount is a value and the number of nodes that have it.
type valueCount struct {
	Value string
	// Size is a value in bytes in a readable unit.
	Size  string
	Nodes int
	// Percent is the percentage of the selected nodes that have the value.
	Percent int
	// Filter selects nodes with the value. It is empty if no filter can express this.
	Filter string
}

// nodeSet is a set of nodes that have the same values in all columns.
type nodeSet struct {
	Cells   []string
	Nodes   int
	Percent int
	First   string
	Filter  string
}

// nodeRow is one node.
type nodeRow struct {
	Name  string
	Cells []string
}

// fleetQuery holds the parameters of the page.
type fleetQuery struct {
	filter, columns, by string
	page                int
}

func newFleetPage(d *data, q fleetQuery) *fleetPage {
	p := &fleetPage{Filter: q.filter, By: cmp.Or(q.by, "sets"), Total: len(d.Nodes), Page: max(q.page, 1)}
	columns := chooseColumns(d, q.columns)
	selected := p.selectNodes(d, q.filter)
	p.Matching = len(selected)
	t := newMatrix(d, columns, selected)
	for _, i := range selected {
		if !d.Nodes[i].Published {
			p.Unpublished++
		}
	}
	for c, name := range columns {
		p.Columns = append(p.Columns, fleetColumn{name, t.numeric(c)})
		p.Values = append(p.Values, t.values(c, name, p.Filter))
	}
	switch p.By {
	case "nodes":
		from, to := p.pages(len(selected), nodesPerPage)
		for k := from; k < to; k++ {
			p.Nodes = append(p.Nodes, nodeRow{d.Nodes[selected[k]].Input.Node.Name, t.rows[k]})
		}
	case "features":
		c := featurecount.New("", d.Known.Rules.Mask)
		for _, i := range selected {
			c.Add(d.Nodes[i].Input.Facts)
		}
		list := c.List()
		from, to := p.pages(len(list), featuresPerPage)
		p.Features = list[from:to]
	default:
		p.By = "sets"
		sets := t.sets(columns, p.Filter)
		from, to := p.pages(len(sets), setsPerPage)
		p.Sets = sets[from:to]
	}
	return p
}

// pages sets the number of pages for count rows, and returns the range of rows on the current page.
func (p *fleetPage) pages(count, size int) (from, to int) {
	p.Count = count
	p.Pages = max(1, (count+size-1)/size)
	p.Page = min(p.Page, p.Pages)
	from = (p.Page - 1) * size
	return from, min(count, from+size)
}

// selectNodes returns the indexes of the nodes that a filter selects, or of all nodes if the filter has an error.
func (p *fleetPage) selectNodes(d *data, filter string) []int {
	reqs, err := compileFilter(filter, d.Known.Rules)
	if err != nil {
		p.FilterError = err.Error()
	}
	var out []int
	if reqs == nil {
		for i := range d.Nodes {
			out = append(out, i)
		}
		return out
	}
	answer := d.fleet().Query(reqs, len(d.Nodes))
	for _, name := range answer.Sample {
		out = append(out, d.place[name])
	}
	p.Nearest, p.Lacks = answer.Nearest, answer.Lacks
	return out
}

// chooseColumns returns the requested columns or the default columns.
func chooseColumns(d *data, asked string) []string {
	list := strings.FieldsFunc(asked, func(r rune) bool { return r == ' ' || r == ',' || r == '\n' })
	if len(list) > 0 {
		return list[:min(len(list), maxColumns)]
	}
	var out []string
	for _, group := range preferredColumns {
		for _, name := range group {
			if slices.ContainsFunc(d.Nodes, func(n Node) bool { return column.Cell(n.Input.Facts, name) != "" }) {
				out = append(out, name)
				break
			}
		}
	}
	return out
}

// matrix holds a row of cells per node.
type matrix struct {
	rows  [][]string
	names []string
	kinds []cellKind // kinds of the columns
}

// cellKind defines how filters refer to the cells of a column.
type cellKind int

const (
	cellOther     cellKind = iota // not possible
	cellAttribute                 // by value
	cellFlag                      // by presence
	cellInstances                 // by one of several values
)

// kindOf returns the kind of a column, determined by the first node that has its feature.
func kindOf(d *data, name string) cellKind {
	feature, element, ok := column.Split(name)
	if !ok || d.Known.Rules.Mask.Hides(element) {
		return cellOther
	}
	for i := range d.Nodes {
		f := d.Nodes[i].Input.Facts.Feature(feature)
		if f == nil {
			continue
		}
		if _, ok := f.Attributes.Get(element); ok {
			return cellAttribute
		}
		switch {
		case f.Flags.Len() > 0:
			return cellFlag
		case f.Instances.Len() > 0:
			return cellInstances
		}
	}
	return cellOther
}

func newMatrix(d *data, columns []string, selected []int) *matrix {
	t := &matrix{}
	for _, name := range columns {
		t.kinds = append(t.kinds, kindOf(d, name))
	}
	for _, i := range selected {
		row := make([]string, len(columns))
		for c, name := range columns {
			if row[c] = column.Cell(d.Nodes[i].Input.Facts, name); row[c] != "" && d.Known.Rules.Mask.Hides(name) {
				row[c] = rules.Hidden
			}
		}
		t.rows = append(t.rows, row)
		t.names = append(t.names, d.Nodes[i].Input.Node.Name)
	}
	return t
}

// numeric reports whether all cells of a column are decimal numbers.
func (t *matrix) numeric(c int) bool {
	return !slices.ContainsFunc(t.rows, func(row []string) bool { return strings.Trim(row[c], "0123456789") != "" })
}

// values returns the distinct values of a column with their counts.
func (t *matrix) values(c int, name, filter string) columnValues {
	counts := map[string]int{}
	for _, row := range t.rows {
		counts[row[c]]++
	}
	out := columnValues{Name: name, Without: counts[""]}
	if t.kinds[c] == cellAttribute && out.Without > 0 && out.Without < len(t.rows) {
		out.Missing = andTerm(filter, name+" DoesNotExist")
	}
	delete(counts, "")
	out.Distinct = len(counts)
	for _, value := range mostFrequent(counts) {
		if len(out.Values) == maxValues {
			break
		}
		n := counts[value]
		v := valueCount{Value: value, Size: size(name, value), Nodes: n, Percent: percent(n, len(t.rows))}
		if t.kinds[c] != cellOther {
			v.Filter = t.narrow(filter, c, name, value)
		}
		out.Values = append(out.Values, v)
	}
	out.More = out.Distinct - len(out.Values)
	return out
}

// sets groups nodes with the same values in all columns, largest set first.
func (t *matrix) sets(columns []string, filter string) []nodeSet {
	counts, first, cells := map[string]int{}, map[string]string{}, map[string][]string{}
	for i, row := range t.rows {
		key := strings.Join(row, "\x00")
		if counts[key]++; counts[key] == 1 {
			first[key], cells[key] = t.names[i], row
		}
	}
	var out []nodeSet
	for _, key := range mostFrequent(counts) {
		set := nodeSet{Cells: cells[key], Nodes: counts[key], Percent: percent(counts[key], len(t.rows)), First: first[key], Filter: filter}
		for c, value := range set.Cells {
			set.Filter = t.narrow(set.Filter, c, columns[c], value)
		}
		out = append(out, set)
	}
	return out
}

// narrow returns a filter that also requires a value in a column.
func (t *matrix) narrow(filter string, c int, name, value string) string {
	switch {
	case value == "" || t.kinds[c] == cellOther:
		return filter
	case t.kinds[c] == cellFlag && value == "no":
		return andTerm(filter, name+" DoesNotExist")
	case t.kinds[c] == cellFlag:
		return andTerm(filter, name+" Exists")
	case t.kinds[c] == cellInstances:
		for part := range strings.SplitSeq(value, ",") {
			filter = andTerm(filter, name+" In "+quoteWord(part))
		}
		return filter
	}
	return andTerm(filter, name+" In "+quoteWord(value))
}

// andTerm appends a term to a filter. It replaces a filter in YAML.
func andTerm(filter, term string) string {
	filter = strings.TrimSpace(filter)
	if filter == "" || isRequirement(filter) || strings.HasPrefix(filter, "-") || strings.HasPrefix(filter, "[") {
		return term
	}
	if slices.Contains(strings.Split(filter, " and "), term) {
		return filter
	}
	return filter + " and " + term
}

func mostFrequent(counts map[string]int) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
}

// percent returns a percentage, and at least 1 if n is not 0.
func percent(n, of int) int {
	if n == 0 || of == 0 {
		return 0
	}
	return max(1, n*100/of)
}

// Names returns the columns in the format of the input field.
func (p *fleetPage) Names() string {
	var names []string
	for _, c := range p.Columns {
		names = append(names, c.Name)
	}
	return strings.Join(names, " ")
}

// Summary returns a sentence about the selection.
func (p *fleetPage) Summary() string {
	if p.Filter == "" || p.FilterError != "" {
		return plural(p.Total, "node")
	}
	return fmt.Sprintf("%s of %s", thousands(p.Matching), plural(p.Total, "node"))
}

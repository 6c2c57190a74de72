package ui

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-project/assay/cmd/assay/internal/column"
	"github.com/assay-project/assay/cmd/assay/internal/featurecount"
)

const (
	// maxColumns is the maximum number of columns of the matrix.
	maxColumns = 12
	// maxValues is the maximum number of values that are shown per column, most frequent first. The table of values has all.
	maxValues = 8
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
	// Columns are the features of the columns, Asked those of the address, empty for the default.
	Columns []string
	Asked   string
	By      string
	// Matching is the number of selected nodes of Total. If no node is selected, Nearest is the node that meets most of the filter,
	// and Lacks what it does not meet.
	Matching, Total int
	Nearest, Lacks  string
	// Alone is set if no node is selected and the filter has several terms: the number of nodes that each selects alone.
	Alone  []termCount
	Hints  []hint
	Values []columnValues
	// Levels are the trees of baselines, with those first from which most nodes deviate, and Table the rows of the other tabs.
	Levels []levelTree
	Table  *table
	// States are the numbers of the selected nodes by state, without those that have no known problem.
	States []swatch
	// Known is set if all nodes could be read. BaselinesUnknown says why baselines could not.
	Known            bool
	BaselinesUnknown string
	// HasLevels is set if a baseline has levels, or if that is unknown. Outside is the number of nodes that deviate from them.
	HasLevels bool
	Outside   int
	// base is the filter as the first operand of and.
	base string
}

// termCount is a term of a filter with the number of nodes that it selects.
type termCount struct {
	Term  string
	Nodes int
}

func (p *fleetPage) tables() []*table {
	if p.Table != nil {
		return []*table{p.Table}
	}
	var out []*table
	for _, l := range p.Levels {
		out = append(out, l.Deviants, l.Domains)
	}
	return out
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

// fleetQuery holds the parameters of the page.
type fleetQuery struct {
	filter, columns, by string
}

func newFleetPage(d *data, q fleetQuery) *fleetPage {
	p := &fleetPage{Filter: q.filter, Asked: q.columns, By: q.by, Total: len(d.Nodes), Known: d.Unknown.Nodes == "" && d.Unknown.Features == ""}
	p.Columns = chooseColumns(d, q.columns)
	selected := p.selectNodes(d, q.filter)
	p.Matching = len(selected)
	evaluated := d.evaluatedWithin(evaluationWait)
	var list []nodeState
	for _, i := range selected {
		list = append(list, d.nodeState(i, evaluated))
	}
	for _, c := range countStates(list) {
		if c.Class != stateClass(rankWell) {
			c.Link = p.And(c.Link)
			p.States = append(p.States, c)
		}
	}
	p.BaselinesUnknown = d.Objects.Baselines.Unknown
	p.HasLevels = len(d.Trees) > 0 || p.BaselinesUnknown != ""
	for _, tree := range d.Trees {
		p.Outside += len(tree.Deviations)
	}
	t := newMatrix(d, p.Columns, selected)
	switch p.By {
	case "features":
		p.Table = p.featureTable(d, selected)
	case "values":
		for c, name := range p.Columns {
			p.Values = append(p.Values, t.values(c, name, p.base))
		}
		p.Table = p.valueTable(t)
	case "levels":
		p.levels(d, selected)
	case "sets":
		p.Table = p.setTable(t)
	default:
		p.By = "nodes"
		p.Table = p.nodeTable(d, t, selected)
	}
	return p
}

// And returns the address of the nodes on the page that a term selects.
func (p *fleetPage) And(term string) string { return p.Link(andTerm(p.base, term), "nodes") }

// Link returns the address of the page with another filter and other rows.
func (p *fleetPage) Link(filter, by string) string {
	q := url.Values{}
	for name, value := range map[string]string{"filter": filter, "columns": p.Asked, "by": by} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return "fleet?" + q.Encode()
}

// columnsOf returns the columns of features of a table.
func (p *fleetPage) columnsOf(t *matrix) []tableColumn {
	out := columns(columnMono, p.Columns...)
	for c := range out {
		if t.numeric(c) {
			out[c].Kind = columnValue
		}
	}
	return out
}

// nodeTable lists nodes with their state and the features of the columns. What is known of no node has no column. The reasons are those of the
// state: often a setting is the reason on all nodes, and rows should stay low.
func (p *fleetPage) nodeTable(d *data, t *matrix, selected []int) *table {
	list := []tableColumn{{Name: "node"}, states[0].tableColumn}
	var shown []stateColumn
	for _, s := range columnStates {
		if s.all && s.Name != "missing" && d.unevaluated() == "" || slices.ContainsFunc(selected, func(i int) bool {
			return !s.all && s.of(d, i).Text != "" || s.all && d.unevaluated() == "" && d.Nodes[i].Object != nil
		}) {
			shown = append(shown, s)
			list = append(list, s.tableColumn)
		}
	}
	list = append(list, p.columnsOf(t)...)
	return newTable("nodes", "Nodes", list, len(selected), func(row, column int) cell {
		i := selected[row]
		switch {
		case column == 0:
			return nodeCell(d.Nodes[i].Input.Node.Name)
		case column == 1:
			return states[0].of(d, i)
		case column < 2+len(shown):
			c := shown[column-2].of(d, i)
			c.Note = ""
			return c
		}
		return cell{Text: t.rows[row][column-2-len(shown)]}
	})
}

func nodeCell(name string) cell { return cell{Text: name, Link: "node?name=" + url.QueryEscape(name)} }

func ruleCell(name string) cell { return cell{Text: name, Link: "rule?name=" + url.QueryEscape(name)} }

func (p *fleetPage) featureTable(d *data, selected []int) *table {
	c := featurecount.New("", d.Known.Rules.Mask)
	for _, i := range selected {
		c.Add(d.Nodes[i].Input.Facts)
	}
	list := c.List()
	heads := []tableColumn{{Name: "feature", Kind: columnMono}, {Name: "type"}, {Name: "nodes", Kind: columnCount}}
	return newTable("features", "Features", heads, len(list), func(row, column int) cell {
		f := list[row]
		return []cell{
			{Text: f.Name, Link: p.Link(andTerm(p.base, f.Name), "nodes")}, {Text: f.Type}, {Text: strconv.Itoa(f.Nodes)},
		}[column]
	})
}

// valueTable lists all values of all columns.
func (p *fleetPage) valueTable(t *matrix) *table {
	var rows [][]cell
	for c, name := range p.Columns {
		for _, v := range t.all(c, name, p.base) {
			value := cell{Text: v.Value, Faint: v.Size}
			if v.Filter != "" {
				value.Link = p.Link(v.Filter, "nodes")
			}
			rows = append(rows, []cell{{Text: name}, value, {Text: strconv.Itoa(v.Nodes)}, {Text: strconv.Itoa(v.Percent)}})
		}
	}
	heads := []tableColumn{
		{Name: "column", Kind: columnMono}, {Name: "value", Kind: columnMono}, {Name: "nodes", Kind: columnCount}, {Name: "share", Kind: columnShare},
	}
	return tableOf("values", "Values", heads, rows)
}

func (p *fleetPage) setTable(t *matrix) *table {
	sets := t.sets(p.Columns, p.base)
	heads := append([]tableColumn{{Name: "nodes", Kind: columnCount}, {Name: "share", Kind: columnShare}}, p.columnsOf(t)...)
	return newTable("sets", "Sets of equal nodes", heads, len(sets), func(row, column int) cell {
		s := &sets[row]
		switch {
		case column == 0 && s.Nodes == 1:
			return cell{Text: "1", Link: nodeCell(s.First).Link}
		case column == 0:
			return cell{Text: strconv.Itoa(s.Nodes), Link: p.Link(s.Filter, "nodes")}
		case column == 1:
			return cell{Text: strconv.Itoa(s.Percent)}
		}
		return cell{Text: s.Cells[column-2]}
	})
}

// selectNodes returns the indexes of the nodes that a filter selects, or of all nodes if the filter has an error.
func (p *fleetPage) selectNodes(d *data, filter string) []int {
	c, err := compileFilter(d, filter)
	if err != nil {
		p.FilterError = err.Error()
	}
	var out []int
	if c == nil || err != nil {
		for i := range d.Nodes {
			out = append(out, i)
		}
		return out
	}
	for i, selected := range c.selects(d) {
		if selected {
			out = append(out, i)
		}
	}
	p.Hints = c.hints(d, filter)
	switch p.base = strings.TrimSpace(filter); {
	case isYAML(p.base):
		p.base = ""
	case c.op == "or":
		p.base = "(" + p.base + ")"
	}
	if len(out) == 0 {
		p.explain(d, c, filter)
	}
	return out
}

// explain finds out why no node is selected.
func (p *fleetPage) explain(d *data, c *clause, filter string) {
	if reqs := c.joined(d); reqs != nil {
		answer := d.fleet().Query(reqs, 0)
		p.Nearest, p.Lacks = answer.Nearest, answer.Lacks
	}
	if c.op != "and" {
		return
	}
	for _, t := range c.terms() {
		n := 0
		for _, selected := range t.matching(d) {
			if selected {
				n++
			}
		}
		p.Alone = append(p.Alone, termCount{strings.TrimSpace(filter[t.from:t.to]), n})
	}
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

// Names returns the columns in the format of the input field.
func (p *fleetPage) Names() string { return strings.Join(p.Columns, " ") }

// Summary returns a sentence about the selection.
func (p *fleetPage) Summary() string {
	if p.Filter == "" || p.FilterError != "" {
		return plural(p.Total, "node")
	}
	return fmt.Sprintf("%s of %s", thousands(p.Matching), plural(p.Total, "node"))
}

// Only returns the address of all values of one column.
func (p *fleetPage) Only(column string) string {
	only := *p
	only.Asked = column
	return only.Link(p.Filter, "values")
}

// Sort returns the sort parameter of the first table.
func (p *fleetPage) Sort() string {
	for _, t := range p.tables() {
		return t.query.Get("sort")
	}
	return ""
}

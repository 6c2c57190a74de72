package ui

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/assay-project/assay/cmd/assay/internal/column"
	"github.com/assay-project/assay/rules"
)

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
		out.Missing = andTerm(filter, quoteWord(name)+" DoesNotExist")
	}
	delete(counts, "")
	out.Distinct = len(counts)
	for _, value := range mostFrequent(counts)[:min(out.Distinct, maxValues)] {
		out.Values = append(out.Values, t.value(c, name, value, counts[value], filter))
	}
	out.More = out.Distinct - len(out.Values)
	return out
}

// all returns all values of a column, most frequent first.
func (t *matrix) all(c int, name, filter string) []valueCount {
	counts := map[string]int{}
	for _, row := range t.rows {
		counts[row[c]]++
	}
	var out []valueCount
	for _, value := range mostFrequent(counts) {
		out = append(out, t.value(c, name, value, counts[value], filter))
	}
	return out
}

func (t *matrix) value(c int, name, value string, n int, filter string) valueCount {
	v := valueCount{Value: value, Size: size(name, value), Nodes: n, Percent: percent(n, len(t.rows))}
	if t.kinds[c] != cellOther && value != "" {
		v.Filter = t.narrow(filter, c, name, value)
	}
	return v
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
	name = quoteWord(name)
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

// andTerm appends a term to a filter.
func andTerm(filter, term string) string {
	if filter == "" || slices.Contains(strings.Split(filter, " and "), term) {
		return cmp.Or(filter, term)
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

package ui

import (
	"cmp"
	"slices"
	"strings"

	"github.com/assay-project/assay/cmd/assay/internal/baselines"
	judged "github.com/assay-project/assay/rules/baseline"
)

// levelTree is the tree that the levels of a baseline make of the nodes.
type levelTree struct {
	Name, Title string
	Deviants    *table
	Domains     *table
}

// levels adds the trees of baselines, those first from which most nodes deviate.
func (p *fleetPage) levels(d *data, selected []int) {
	trees := slices.Clone(d.Trees)
	slices.SortStableFunc(trees, func(a, b *baselines.Tree) int { return cmp.Compare(len(b.Deviations), len(a.Deviations)) })
	for _, t := range trees {
		p.Levels = append(p.Levels, levelTree{t.Baseline, t.Title(), deviantTable(d, t, selected), p.domainTable(t)})
	}
}

// levelColumns returns a column for the values of each level.
func levelColumns(shown []judged.Level) []tableColumn {
	out := make([]tableColumn, len(shown))
	for i, l := range shown {
		out[i] = tableColumn{Name: l.Name, Kind: columnMono, Title: "The label " + l.Label}
	}
	return out
}

// deviantTable lists the selected nodes that deviate from a tree, with the values of their labels.
func deviantTable(d *data, t *baselines.Tree, selected []int) *table {
	shown := t.Shown()
	heads := append(columns(columnText, "node", "why"), levelColumns(shown)...)
	var rows [][]cell
	for _, x := range t.Deviations {
		i, known := d.place[x.Node]
		if _, found := slices.BinarySearch(selected, i); !known || !found {
			continue
		}
		row := []cell{nodeCell(x.Node), plain(x.Message)}
		for _, l := range shown {
			row = append(row, plain(d.Nodes[i].labels()[l.Label]))
		}
		rows = append(rows, row)
	}
	out := tableOf("deviants-"+t.Baseline, "Nodes that deviate", heads, rows)
	out.Empty = "No node deviates."
	if len(rows) < len(t.Deviations) {
		out.Empty = "None of the selected nodes deviates."
	}
	return out
}

// domainTable lists the domains of a tree, each after the one that it is in.
func (p *fleetPage) domainTable(t *baselines.Tree) *table {
	shown := t.Shown()
	heads := append(levelColumns(shown), tableColumn{Name: "nodes", Kind: columnCount})
	var paths [][]*judged.Domain
	t.Walk(func(path []*judged.Domain) { paths = append(paths, path) })
	out := newTable("domains-"+t.Baseline, "Domains", heads, len(paths), func(row, column int) cell {
		path := paths[row]
		own := len(path) - 1
		switch {
		case column == len(shown):
			return number(path[own].Nodes)
		case column > own:
			return plain("")
		case column < own:
			return plain(path[column].Value).as("faint")
		}
		terms := make([]string, len(path))
		for i, d := range path {
			terms[i] = "label " + shown[i].Label + " = " + quoteWord(d.Value)
		}
		return cell{Text: path[own].Value, Link: p.Link(strings.Join(terms, " and "), "nodes")}
	})
	out.Help = "All nodes of the baseline but those that deviate or are unknown."
	return out
}

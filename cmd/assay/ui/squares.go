package ui

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/cmd/assay/internal/column"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/settings"
)

const (
	// maxSquares is the number of nodes up to which a square is a node. Each is a link, and 3,000 of them have 200 kB.
	maxSquares = 3000
	// maxColors is the number of values with a color of their own: people cannot tell more of them apart.
	maxColors = 8
	// maxGroups is the number of groups with a heading, and maxParts the number of their counts that are links.
	maxGroups, maxParts = 40, 10
)

// squares are the nodes as squares in groups, colored by their state or by a value.
type squares struct {
	// By is the label or feature that makes the groups, or none, Color the one that colors the squares; "state": the state of the nodes.
	By, Color string
	// ByError and ColorError say why a name cannot be used.
	ByError, ColorError string
	// Labels and Features are suggestions.
	Labels, Features []string
	// Each is the number of nodes of a square, at most.
	Each int
	// Legend explains the colors. It is empty for states, whose card does.
	Legend []swatch
	Groups []squareGroup
	// grouped is set if a label or feature makes the groups.
	grouped bool
	// Others is the number of values whose nodes share the last group.
	Others int
}

// Errors returns what is wrong with the names.
func (q *squares) Errors() []string {
	return slices.DeleteFunc([]string{q.ByError, q.ColorError}, func(s string) bool { return s == "" })
}

// swatch is a color with what it means.
type swatch struct {
	// Class is the CSS class of the color.
	Class, Text, Link string
	Nodes             int
}

// squareGroup are the nodes with the same value.
type squareGroup struct {
	Name, Link string
	Nodes      int
	// Parts are the numbers of nodes by color.
	Parts []swatch
	// Squares are in the order of the colors.
	Squares []square
}

// square is one node, or several ones of the same color in the same group.
type square struct {
	Class, Link string
}

// trait is what groups or colors nodes.
type trait struct {
	name string
	// of returns the value of a node; empty: it has none.
	of func(i int) string
	// term returns the term of a filter that selects nodes with a value; empty: there is none.
	term func(value string) string
}

// traitOf returns the trait of a label or of a feature, or why there is none.
func (d *data) traitOf(name string) (out trait, problem string) {
	out.name = name
	feature, element, single := column.Split(name)
	elements := d.known().features[feature]
	switch {
	case d.hasLabel(name):
		out.of = func(i int) string { return d.Nodes[i].labels()[name] }
		out.term = func(value string) string {
			if value == "" {
				return "label " + name + " DoesNotExist"
			}
			return "label " + name + " = " + quoteWord(value)
		}
	case elements[element], elements != nil && !single:
		m := &matrix{kinds: []cellKind{kindOf(d, name)}}
		hides := d.Known.Rules.Mask.Hides(name)
		out.of = func(i int) string {
			value := column.Cell(d.Nodes[i].Input.Facts, name)
			if value != "" && hides {
				return rules.Hidden
			}
			return value
		}
		out.term = func(value string) string {
			if value == "" && m.kinds[0] == cellAttribute {
				return quoteWord(name) + " DoesNotExist"
			}
			return m.narrow("", 0, name, value)
		}
	default:
		known := slices.Collect(maps.Keys(d.known().labels))
		for feature, elements := range d.known().features {
			for element := range elements {
				known = append(known, feature+"."+element)
			}
		}
		return out, "no node has " + name + didYouMean(name, known)
	}
	return out, ""
}

// noGroups puts all nodes into one group.
const noGroups = "none"

// groupLabels are the labels that group nodes by default: the first one that has several values.
var groupLabels = slices.Concat([]string{corev1.LabelTopologyZone}, settings.DefaultNodeShapeLabels)

// newSquares returns the squares of all nodes.
func newSquares(d *data, by, color string, states []nodeState) *squares {
	q := &squares{By: by, Color: cmp.Or(color, stateTrait), Each: max(1, (len(d.Nodes)+maxSquares-1)/maxSquares)}
	q.Labels, q.Features = slices.Sorted(maps.Keys(d.known().labels)), append([]string{stateTrait}, chooseColumns(d, "")...)
	if by == "" {
		for _, label := range groupLabels {
			if values := d.labelValues(label); values > 1 && values <= maxGroups {
				q.By = label
				break
			}
		}
	}
	group := trait{of: func(int) string { return "" }, term: func(string) string { return "" }}
	if q.By = cmp.Or(q.By, noGroups); q.By != noGroups {
		t, problem := d.traitOf(q.By)
		if q.ByError = problem; problem == "" {
			group, q.grouped = t, true
		}
	}
	q.arrange(d, group, q.palette(d, states))
	return q
}

// labelValues returns the number of values of a label.
func (d *data) labelValues(label string) int {
	values := map[string]bool{}
	for i := range d.Nodes {
		if value, ok := d.Nodes[i].labels()[label]; ok {
			values[value] = true
		}
	}
	return len(values)
}

// palette holds the colors of nodes.
type palette struct {
	colors []swatch // in the order of the legend; the link of each is a term
	of     []int    // the color of each node
}

// palette returns the colors of the nodes, and fills the legend.
func (q *squares) palette(d *data, states []nodeState) palette {
	var p palette
	if q.Color != stateTrait {
		t, problem := d.traitOf(q.Color)
		if q.ColorError = problem; problem == "" {
			p = valuePalette(d, t)
			for _, c := range p.colors {
				if c.Link != "" {
					c.Link = nodesLink(c.Link)
				}
				q.Legend = append(q.Legend, c)
			}
			return p
		}
		q.Color = stateTrait
	}
	for i, w := range stateWords {
		p.colors = append(p.colors, swatch{Class: stateClass(i), Text: w.word, Link: "state = " + quoteWord(w.word)})
	}
	for _, s := range states {
		p.of = append(p.of, s.rank)
	}
	return p
}

// valuePalette gives the most frequent values colors.
func valuePalette(d *data, t trait) palette {
	var p palette
	counts, values := map[string]int{}, make([]string, len(d.Nodes))
	for i := range d.Nodes {
		values[i] = t.of(i)
		counts[values[i]]++
	}
	without := counts[""]
	delete(counts, "")
	place := map[string]int{}
	others := swatch{Class: "c-other"}
	for _, value := range mostFrequent(counts) {
		if len(p.colors) < maxColors {
			place[value] = len(p.colors)
			text := strings.TrimSpace(value + " " + size(t.name, value))
			p.colors = append(p.colors, swatch{Class: "c" + strconv.Itoa(len(p.colors)), Text: text, Link: t.term(value), Nodes: counts[value]})
			continue
		}
		others.Nodes += counts[value]
	}
	if others.Nodes > 0 {
		others.Text = plural(len(counts)-maxColors, "other value")
		for value := range counts {
			if _, shown := place[value]; !shown {
				place[value] = len(p.colors)
			}
		}
		p.colors = append(p.colors, others)
	}
	if without > 0 {
		place[""] = len(p.colors)
		p.colors = append(p.colors, swatch{Class: "c-none", Text: "none", Link: t.term(""), Nodes: without})
	}
	for _, value := range values {
		p.of = append(p.of, place[value])
	}
	return p
}

// arrange puts the nodes into groups: in the order of their values, those without a value last.
func (q *squares) arrange(d *data, by trait, p palette) {
	nodes := map[string][]int{}
	for i := range d.Nodes {
		value := by.of(i)
		nodes[value] = append(nodes[value], i)
	}
	counts := map[string]int{}
	for value, list := range nodes {
		counts[value] = len(list)
	}
	shown := mostFrequent(counts)
	var rest []int
	if len(shown) > maxGroups {
		for _, value := range shown[maxGroups:] {
			rest = append(rest, nodes[value]...)
		}
		q.Others, shown = len(shown)-maxGroups, shown[:maxGroups]
		slices.Sort(rest)
	}
	slices.SortFunc(shown, func(a, b string) int {
		if a == "" || b == "" {
			return cmp.Compare(b, a) // the one without a value is last
		}
		return natural(a, b)
	})
	for _, value := range shown {
		term := by.term(value)
		g := q.group(d, nodes[value], term, p)
		switch g.Name = value; {
		case !q.grouped:
			g.Name = "all nodes"
		case value == "":
			g.Name = "without " + q.By
		}
		q.Groups = append(q.Groups, g)
	}
	if len(rest) > 0 {
		g := q.group(d, rest, "", p)
		g.Name, g.Parts = plural(q.Others, "other value"), nil
		q.Groups = append(q.Groups, g)
	}
}

// group returns the squares of some nodes. The term selects them; empty: no filter does.
func (q *squares) group(d *data, nodes []int, term string, p palette) squareGroup {
	g := squareGroup{Nodes: len(nodes)}
	if term != "" {
		g.Link = nodesLink(term)
	}
	of := make([][]int, len(p.colors))
	for _, i := range nodes {
		of[p.of[i]] = append(of[p.of[i]], i)
	}
	for c, list := range of {
		if len(list) == 0 {
			continue
		}
		color := p.colors[c]
		part := swatch{Class: color.Class, Text: color.Text, Nodes: len(list)}
		if color.Link != "" && (term != "" || !q.grouped) {
			part.Link = nodesLink(andTerm(term, color.Link))
		}
		if len(g.Parts) < maxParts {
			g.Parts = append(g.Parts, part)
		}
		for n := 0; n < len(list); n += q.Each {
			s := square{Class: color.Class}
			if q.Each == 1 {
				s.Link = nodeCell(d.Nodes[list[n]].Input.Node.Name).Link
			}
			g.Squares = append(g.Squares, s)
		}
	}
	return g
}

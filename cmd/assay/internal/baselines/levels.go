package baselines

import (
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/baseline"
	"github.com/assay-project/assay/rules/clip"
)

// Tree is the tree of the levels of a baseline. Its JSON is an interface.
type Tree struct {
	Baseline string                              `json:"baseline"`
	Nodes    int                                 `json:"nodes"`
	Levels   []assayv1alpha1.BaselineLevelStatus `json:"levels"`
	// Deviations are the nodes that are not in the tree, by name, and Unknown those whose features are unknown.
	Deviations []assayv1alpha1.BaselineDeviation `json:"deviations"`
	Unknown    []string                          `json:"unknown"`
	Domains    []*baseline.Domain                `json:"domains"`

	of []baseline.Level
}

// NewTree returns the tree of a baseline; nil: it has no levels.
func NewTree(name string, b *baseline.Baseline, r *baseline.Result) *Tree {
	if len(b.Levels()) == 0 {
		return nil
	}
	t := &Tree{
		Baseline: name, Nodes: len(r.Conforming) + len(r.Deviating) + len(r.Unknown),
		Levels: r.Levels, Unknown: list(r.Unknown), Domains: list(r.Domains()), of: b.Levels(), Deviations: list[assayv1alpha1.BaselineDeviation](nil),
	}
	for _, d := range r.Deviations {
		if d.Check == baseline.LevelsCheck {
			t.Deviations = append(t.Deviations, d)
		}
	}
	return t
}

// Title describes the tree in one line.
func (t *Tree) Title() string {
	names := make([]string, len(t.of))
	for i, l := range t.of {
		names[i] = l.Name
	}
	out := fmt.Sprintf("%s: %s by %s; %d deviate", t.Baseline, clip.Count(t.Nodes, "node"), strings.Join(names, ", "), len(t.Deviations))
	if len(t.Deviations) == 1 {
		out += "s"
	}
	if len(t.Unknown) > 0 {
		out += fmt.Sprintf(", %d unknown", len(t.Unknown))
	}
	return out
}

// Deviants returns a row for each node that deviates, with a header; nil: none does.
func (t *Tree) Deviants() [][]string {
	if len(t.Deviations) == 0 {
		return nil
	}
	rows := [][]string{{"NODE", "MESSAGE"}}
	for _, d := range t.Deviations {
		rows = append(rows, []string{d.Node, d.Message})
	}
	return rows
}

// Rows returns a row for each domain, indented by its level, with a header. Nodes have no rows: the lowest level is left out if its label
// is that of the name of a host.
func (t *Tree) Rows() [][]string {
	rows := [][]string{{"DOMAIN", "NODES"}}
	t.Walk(func(path []*baseline.Domain) {
		depth := len(path) - 1
		d := path[depth]
		rows = append(rows, []string{strings.Repeat("  ", depth) + d.Level + " " + d.Value, fmt.Sprint(d.Nodes)})
	})
	return rows
}

// Shown returns the levels whose domains are shown: all but that of hosts.
func (t *Tree) Shown() []baseline.Level {
	if last := len(t.of) - 1; t.of[last].Label == corev1.LabelHostname {
		return t.of[:last]
	}
	return t.of
}

// Walk visits the domains of the levels that are shown, each after the domain that it is in. Path holds the domains that it is in, and the
// domain itself at the end.
func (t *Tree) Walk(visit func(path []*baseline.Domain)) {
	deepest := len(t.Shown())
	var down func([]*baseline.Domain, []*baseline.Domain)
	down = func(in, domains []*baseline.Domain) {
		for _, d := range domains {
			if path := append(slices.Clip(in), d); len(path) <= deepest {
				visit(path)
				down(path, d.Domains)
			}
		}
	}
	down(nil, t.Domains)
}

// Dot writes trees as a graph in the language of Graphviz. Nodes that deviate are boxes of their own.
func Dot(w io.Writer, all []*Tree) error {
	var out strings.Builder
	for _, t := range all {
		fmt.Fprintf(&out, "digraph %q {\n  rankdir=LR\n", t.Baseline)
		ids := map[*baseline.Domain]string{}
		t.Walk(func(path []*baseline.Domain) {
			d := path[len(path)-1]
			ids[d] = fmt.Sprint("d", len(ids))
			fmt.Fprintf(&out, "  %s [label=%q]\n", ids[d], fmt.Sprintf("%s %s\n%s", d.Level, d.Value, clip.Count(d.Nodes, "node")))
			if len(path) > 1 {
				fmt.Fprintf(&out, "  %s -> %s\n", ids[path[len(path)-2]], ids[d])
			}
		})
		for i, d := range t.Deviations {
			fmt.Fprintf(&out, "  n%d [shape=box, label=%q]\n", i, d.Node+"\n"+d.Message)
		}
		out.WriteString("}\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

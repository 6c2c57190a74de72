package baseline

import (
	"fmt"
	"io"
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
	t.walk(func(_, d *baseline.Domain, depth int) {
		rows = append(rows, []string{strings.Repeat("  ", depth) + d.Level + " " + d.Value, fmt.Sprint(d.Nodes)})
	})
	return rows
}

// walk visits the domains of all levels but that of hosts, with the domain that each is in; nil: it is in none.
func (t *Tree) walk(visit func(in, d *baseline.Domain, depth int)) {
	deepest := len(t.of)
	if t.of[deepest-1].Label == corev1.LabelHostname {
		deepest--
	}
	var down func(*baseline.Domain, []*baseline.Domain, int)
	down = func(in *baseline.Domain, domains []*baseline.Domain, depth int) {
		for _, d := range domains {
			if depth < deepest {
				visit(in, d, depth)
				down(d, d.Domains, depth+1)
			}
		}
	}
	down(nil, t.Domains, 0)
}

// Dot writes trees as a graph in the language of Graphviz. Nodes that deviate are boxes of their own.
func Dot(w io.Writer, all []*Tree) error {
	var out strings.Builder
	for _, t := range all {
		fmt.Fprintf(&out, "digraph %q {\n  rankdir=LR\n", t.Baseline)
		ids := map[*baseline.Domain]string{}
		t.walk(func(in, d *baseline.Domain, _ int) {
			ids[d] = fmt.Sprint("d", len(ids))
			fmt.Fprintf(&out, "  %s [label=%q]\n", ids[d], fmt.Sprintf("%s %s\n%s", d.Level, d.Value, clip.Count(d.Nodes, "node")))
			if in != nil {
				fmt.Fprintf(&out, "  %s -> %s\n", ids[in], ids[d])
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

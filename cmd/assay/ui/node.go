package ui

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/written"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
)

// maxTraces is the maximum number of rules on the page of a node. The other rules have their own pages.
const maxTraces = 150

// reportTimeout is the maximum time to read what the controller reports about a node. After it, the page says that it is unknown.
const reportTimeout = 3 * time.Second

// nodePage is the page of one node.
type nodePage struct {
	Name, Query string
	// Published is set if there are NodeFeatures for the node.
	Published  bool
	HasObject  bool
	Publishers []string
	// States are the state columns that are known of the node.
	States  []nodeState
	Outcome outcome
	Foreign *table
	// Live is what the cluster says about the node.
	Live   *nodeLive
	Traces []trace
	// MoreTraces is the number of rules that are not shown, Matched the number of rules that match.
	MoreTraces, Matched, Rules int
	Tree                       tree
}

func (p *nodePage) tables() []*table {
	return append([]*table{p.Outcome.Outputs, p.Outcome.Asked, p.Foreign}, p.Live.tables()...)
}

// nodeState is a state column with its value.
type nodeState struct {
	Name, Title string
	Cell        cell
}

// foreign is a key of the Node that another client has set.
type foreign struct{ Kind, Key, Value, Managers string }

// newNodePage returns the page of a node, or nil if the node does not exist.
func newNodePage(ctx context.Context, d *data, name, query string) *nodePage {
	n := d.node(name)
	if n == nil {
		return nil
	}
	o := d.Program.Eval(n.Input)
	c := comparison{node: n.Object, keeps: d.Known.Withholding, linked: true, orphan: !n.OfWorker}
	if d.Report != nil && n.Object != nil {
		ctx, cancel := context.WithTimeout(ctx, reportTimeout)
		defer cancel()
		c.report = d.Report(ctx, n.Object)
	}
	p := &nodePage{
		Name: name, Query: query, Published: n.Published, HasObject: n.Object != nil,
		Outcome: newOutcome(o, c), Tree: newTree(n.Input.Facts, query, d.Snapshot),
	}
	for _, s := range states {
		if c := s.of(d, d.place[name]); c.Text != "" {
			p.States = append(p.States, nodeState{s.Name, s.Title, c})
		}
	}
	for _, publisher := range n.Input.Publishers {
		if name := strings.Trim(publisher.Name, "/"); name != "" {
			p.Publishers = append(p.Publishers, name)
		}
	}
	others := foreignOf(n.Object, o)
	heads := []tableColumn{{Name: "kind"}, {Name: "key", Kind: columnMono}, {Name: "value", Kind: columnMono}, {Name: "client"}}
	p.Foreign = newTable("others", "Set by other clients", heads, len(others), func(row, column int) cell {
		f := &others[row]
		return []cell{{Text: f.Kind}, {Text: f.Key}, {Text: f.Value}, {Text: cmp.Or(f.Managers, "unknown")}}[column]
	})
	p.Traces = newTraces(d.Program.Trace(n.Input), d.Known.Rules.Mask)
	p.Rules = len(p.Traces)
	for i := range p.Traces {
		if p.Traces[i].Word == "MATCH" {
			p.Matched++
		}
	}
	if len(p.Traces) > maxTraces {
		p.MoreTraces = len(p.Traces) - maxTraces
		p.Traces = p.Traces[:maxTraces]
	}
	return p
}

// foreignOf returns the labels, annotations, taints and conditions of a Node that no rule sets. It leaves out conditions that rules
// cannot set: those of Kubernetes, whose types have no namespace, and FeaturesReady.
func foreignOf(node *corev1.Node, o *rules.Outcome) []foreign {
	if node == nil {
		return nil
	}
	var out []foreign
	add := func(kind keys.Kind, title string, values map[string]string, path ...string) {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if _, ours := o.Origin(kind, key); !ours {
				managers := written.Managers(node.ManagedFields, append(path, key)...)
				out = append(out, foreign{title, key, values[key], strings.Join(managers, ", ")})
			}
		}
	}
	add(keys.Label, "label", node.Labels, "metadata", "labels")
	add(keys.Annotation, "annotation", node.Annotations, "metadata", "annotations")
	for _, t := range node.Spec.Taints {
		if _, ours := o.Origin(keys.Taint, keys.TaintName(t)); !ours {
			managers := written.Managers(node.ManagedFields, "spec", "taints")
			out = append(out, foreign{"taint", keys.TaintName(t), t.Value, strings.Join(managers, ", ")})
		}
	}
	conditions := written.Conditions(node)
	for _, kind := range slices.Sorted(maps.Keys(conditions)) {
		_, ours := o.Origin(keys.Condition, kind)
		if !ours && strings.Contains(kind, "/") && kind != assayv1alpha1.FeaturesReadyCondition {
			managers := written.Managers(node.ManagedFields, written.ConditionPath(kind)...)
			out = append(out, foreign{"condition", kind, conditions[kind], strings.Join(managers, ", ")})
		}
	}
	return out
}

// Package ui serves web pages that show nodes, rules, and the outputs of rules for nodes.
package ui

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/input"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/review"
)

// Snapshot holds the data of the pages: nodes, rules and settings at one time. It must not be modified.
type Snapshot struct {
	// Where describes the source: a cluster, files or the machine.
	Where string
	// At is the time when the source was read.
	At time.Time
	// Known holds the settings of the controller, and other input for reviews of rules.
	Known review.Known
	// Nodes are sorted by name.
	Nodes []Node
	// Rules are in evaluation order. Program contains the compiled rules.
	Rules   []Rule
	Program *rules.Program
	// Notes describe what could not be read or compiled.
	Notes []string
	// Describe returns the name of a device, or "" if it is unknown. It may be nil.
	Describe func(feature string, attributes map[string]string) string
}

// Node is one node.
type Node struct {
	// Object is nil if only the features are known, as in files.
	Object *corev1.Node
	Input  rules.Input
	// Published is set if there are NodeFeatures for the node.
	Published bool
}

// Rule is one rule object.
type Rule struct {
	Object  *nfdv1alpha1.NodeFeatureRule
	BuiltIn bool
	// Text is the object in YAML, without sensitive parts.
	Text string
}

// Source reads a Snapshot.
type Source func(ctx context.Context) (*Snapshot, error)

// data is a Snapshot with derived data, which is computed on first use. It is safe for concurrent use.
type data struct {
	*Snapshot
	place map[string]int

	verdictsOnce, viewOnce sync.Once
	verdicts               []verdict
	nodes                  *index.Index
}

// verdict is which rules of the program match one node, and which fail on it, by their index. An outcome takes 45 kB with 100 rules.
type verdict struct {
	matched []uint64 // a bit for each rule
	errors  map[int]error
}

func (v *verdict) matches(rule int) bool { return v.matched[rule/64]&(1<<(rule%64)) != 0 }

func newData(s *Snapshot) *data {
	d := &data{Snapshot: s, place: make(map[string]int, len(s.Nodes))}
	if d.Program == nil {
		d.Program = rules.Link(s.Known.Rules)
	}
	for i := range s.Nodes {
		d.place[s.Nodes[i].Input.Node.Name] = i
	}
	return d
}

// node returns a node by name, or nil.
func (d *data) node(name string) *Node {
	if i, ok := d.place[name]; ok {
		return &d.Nodes[i]
	}
	return nil
}

// all returns the verdicts on all nodes, in order.
func (d *data) all() []verdict {
	d.verdictsOnce.Do(func() {
		d.verdicts = make([]verdict, len(d.Nodes))
		input.Each(len(d.Nodes), func(i int) { d.verdicts[i] = verdictOf(d.Program.Eval(d.Nodes[i].Input)) })
	})
	return d.verdicts
}

func verdictOf(o *rules.Outcome) verdict {
	list := o.Rules()
	v := verdict{matched: make([]uint64, (len(list)+63)/64)}
	for i, r := range list {
		if r.Matched {
			v.matched[i/64] |= 1 << (i % 64)
		}
		if r.Err != nil {
			if v.errors == nil {
				v.errors = map[int]error{}
			}
			v.errors[i] = r.Err
		}
	}
	return v
}

// fleet returns the index of the nodes on which requirements are evaluated.
func (d *data) fleet() *index.Index {
	d.viewOnce.Do(func() {
		d.nodes = index.New()
		d.nodes.SetProgram(d.Program)
		for i := range d.Nodes {
			n := index.Node{Input: d.Nodes[i].Input}
			if object := d.Nodes[i].Object; object != nil {
				n.Labels, n.Annotations = object.Labels, object.Annotations
			}
			d.nodes.Put(n)
		}
		d.nodes.SetSynced()
	})
	return d.nodes
}

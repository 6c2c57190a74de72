// Package ui serves pages that show nodes, rules and what rules make of nodes.
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

// Snapshot is what pages show: nodes, rules and settings at one time. It must not be changed.
type Snapshot struct {
	// Where names the cluster, the files or the machine.
	Where string
	// At is when it was read.
	At time.Time
	// Known are the settings of the controller and what reviews of rules depend on.
	Known review.Known
	// Nodes are sorted by name.
	Nodes []Node
	// Rules are in the order of their evaluation, Program is what they are compiled to.
	Rules   []Rule
	Program *rules.Program
	// Notes are what could not be read or compiled.
	Notes []string
	// Describe names a device by its ids; nil, or an empty string: unknown.
	Describe func(feature string, attributes map[string]string) string
}

// Node is one node.
type Node struct {
	// Object is nil where only features are known, as of files.
	Object *corev1.Node
	Input  rules.Input
	// Published reports whether there are NodeFeatures of the node.
	Published bool
}

// Rule is one object with rules.
type Rule struct {
	Object  *nfdv1alpha1.NodeFeatureRule
	BuiltIn bool
	// Text is the object as YAML, without what is sensitive.
	Text string
}

// Source reads a Snapshot.
type Source func(ctx context.Context) (*Snapshot, error)

// data is a Snapshot with what follows from it, computed when a page first needs it. It is safe for concurrent use.
type data struct {
	*Snapshot
	place map[string]int
	cache *rules.Cache

	outcomesOnce, viewOnce sync.Once
	outcomes               []*rules.Outcome
	nodes                  *index.Index
}

func newData(s *Snapshot) *data {
	d := &data{Snapshot: s, place: make(map[string]int, len(s.Nodes)), cache: rules.NewCache()}
	if d.Program == nil {
		d.Program = rules.Link(s.Known.Rules)
	}
	d.cache.Keep(d.Program)
	for i := range s.Nodes {
		d.place[s.Nodes[i].Input.Node.Name] = i
	}
	return d
}

// node returns a node by its name, or nil.
func (d *data) node(name string) *Node {
	if i, ok := d.place[name]; ok {
		return &d.Nodes[i]
	}
	return nil
}

// all returns the outcomes of all nodes, in their order.
func (d *data) all() []*rules.Outcome {
	d.outcomesOnce.Do(func() {
		d.outcomes = make([]*rules.Outcome, len(d.Nodes))
		input.Each(len(d.Nodes), func(i int) { d.outcomes[i] = d.cache.Eval(d.Program, d.Nodes[i].Input, nil) })
	})
	return d.outcomes
}

// fleet returns the nodes in the form that requirements are evaluated on.
func (d *data) fleet() *index.Index {
	d.viewOnce.Do(func() {
		d.nodes = index.New()
		d.nodes.SetProgram(d.Program, d.cache)
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

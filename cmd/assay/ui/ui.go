// Package ui serves web pages that show nodes, rules, and the outputs of rules for nodes.
package ui

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/baselines"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/held"
	"github.com/assay-project/assay/cmd/assay/internal/input"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
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
	// Desired are the settings that decide what is desired of Nodes.
	Desired desired.Settings
	// Nodes are sorted by name.
	Nodes []Node
	// Rules are in evaluation order. Program contains the compiled rules.
	Rules   []Rule
	Program *rules.Program
	// Objects are the other objects with pages.
	Objects Objects
	// Trees are those of the NodeBaselines with levels. There are none if the nodes are not known.
	Trees []*baselines.Tree
	// Live reads what only the page of one object shows; nil for a machine without a cluster.
	Live Live
	// Unknown says why nodes, features or rules could not be read.
	Unknown Unknown
	// Notes describe what else could not be read or compiled.
	Notes []Note
	// Describe returns the name of a device, or "" if it is unknown. It may be nil.
	Describe func(feature string, attributes map[string]string) string
	// Report reads what the controller reports about a Node now. It may be nil.
	Report func(ctx context.Context, node *corev1.Node) *held.Report
	// Explain explains the keys of a Node that no rule or NodeFeature gives now. It may be nil.
	Explain func(ctx context.Context, node *corev1.Node, o *rules.Outcome, report *held.Report) []Unwanted
}

// Unwanted is a key of a Node that no rule or NodeFeature gives now.
type Unwanted struct {
	Kind       keys.Kind
	Key, Value string
	// Kept is set if Assay has written the key for a rule, and Own if it has written it without one. Otherwise another client has set it.
	Kept, Own bool
	// By are the rules that gave a key that is kept, or the clients that have set another one; none: unknown.
	By []string
	// Hold is what the controller reports about a key that is kept; nil: nothing.
	Hold *held.Hold
	// Why is a sentence about the key.
	Why string
}

// Unknown says why objects could not be read, such as the right that the user lacks. An empty field: they are known.
type Unknown struct{ Nodes, Features, Rules string }

// list returns what is unknown, in sentences.
func (u *Unknown) list() (out []string) {
	for _, part := range []struct{ what, why string }{
		{"The Nodes are not known", u.Nodes}, {"The features of nodes are not known, so rules are not evaluated", u.Features},
		{"The rules are not known", u.Rules},
	} {
		if part.why != "" {
			out = append(out, part.what+": "+part.why+".")
		}
	}
	return out
}

// unevaluated says why rules are not evaluated for the nodes, as the end of a sentence; empty: they are.
func (s *Snapshot) unevaluated() string {
	switch {
	case s.Unknown.Features != "":
		return "the features of nodes are not known"
	case s.Unknown.Rules != "":
		return "the rules are not known"
	}
	return ""
}

// Node is one node.
type Node struct {
	// Object is nil if only the features are known, as in files.
	Object *corev1.Node
	Input  rules.Input
	// Published is set if there are NodeFeatures for the node, OfWorker if one of them is its worker's.
	Published, OfWorker bool
	// Changed is when its features changed last; zero: unknown.
	Changed time.Time
	// Worker is the state of the worker on the node; nil: unknown.
	Worker *cluster.Worker
}

// labels returns the labels of the Node, or those that NodeFeatures request if the Node is unknown.
func (n *Node) labels() map[string]string {
	if n.Object != nil {
		return n.Object.Labels
	}
	return n.Input.Labels
}

// Note says what could not be read or compiled.
type Note struct {
	Text string
	// Rule is the object with rules that the note is about, if it is about one: it is shown on its page and the first one.
	Rule string
}

// notes returns the notes for a page, whose title is the name of the object that it shows.
func (d *data) notes(view, title string) (out []Note) {
	for _, n := range d.Notes {
		if n.Rule == "" || view == firstPage || view == "rule" && n.Rule == title {
			out = append(out, n)
		}
	}
	return out
}

// Rule is one rule object.
type Rule struct {
	Object  *nfdv1alpha1.NodeFeatureRule
	BuiltIn bool
	// Text is the object in YAML, without sensitive parts.
	Text string
	// LeftOut says why the rules of the object, or one of them, are not evaluated here; empty: they all are.
	LeftOut string
}

// Source reads a Snapshot.
type Source func(ctx context.Context) (*Snapshot, error)

// data is what the pages of one request show.
type data struct {
	*shared
	// now is the moment from which all relative times count.
	now time.Time
}

// shared is a Snapshot with derived data, which is computed on first use. It is safe for concurrent use.
type shared struct {
	*Snapshot
	place map[string]int

	verdicts []atomic.Pointer[verdict]

	viewOnce  sync.Once
	nodes     *index.Index
	namesOnce sync.Once

	evaluating sync.Once
	evaluated  chan struct{} // closed when the verdicts on all nodes are there

	deviatingOnce sync.Once
	deviants      map[string][]string
	names         *knownNames
}

// verdict is the result of the rules on one node. An outcome takes 45 kB with 100 rules.
type verdict struct {
	matched []uint64 // a bit for each rule of the program
	errors  map[int]error
	// withheld are outputs that a policy, a setting or an invalid value keeps from the Node, conflicts those that lose against another
	// rule, and missing those that the Node lacks although nothing withholds them.
	withheld, conflicts, missing problems
}

// maxProblems is the maximum number of problems that are kept for each node and kind.
const maxProblems = 8

// problems are outputs with a problem.
type problems struct {
	count int
	// first are the first ones in words, objects the objects whose outputs they are.
	first, objects []string
}

func (p *problems) add(object, text string) {
	if p.count++; len(p.first) < maxProblems {
		p.first = append(p.first, text)
	}
	if !slices.Contains(p.objects, object) {
		p.objects = append(p.objects, object)
	}
}

// lacks reports whether the Node does not have an output of an object, for whatever reason.
func (v *verdict) lacks(object string) bool {
	return slices.ContainsFunc([]problems{v.withheld, v.conflicts, v.missing}, func(p problems) bool { return slices.Contains(p.objects, object) })
}

func (v *verdict) matches(rule int) bool { return v.matched[rule/64]&(1<<(rule%64)) != 0 }

func newData(s *Snapshot) *data {
	d := &data{&shared{Snapshot: s, place: make(map[string]int, len(s.Nodes)), verdicts: make([]atomic.Pointer[verdict], len(s.Nodes)), evaluated: make(chan struct{})}, time.Now()}
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

// verdict returns the verdict on a node.
func (d *data) verdict(i int) *verdict {
	v := d.verdicts[i].Load()
	if v == nil {
		v = verdictOf(d.Program.Eval(d.Nodes[i].Input), d.Nodes[i].Object, &d.Desired)
		d.verdicts[i].Store(v)
	}
	return v
}

// evaluate computes the verdicts on all nodes, with all processors, if rules can be evaluated.
func (d *data) evaluate() {
	d.evaluating.Do(func() {
		if d.unevaluated() == "" {
			input.Each(len(d.Nodes), func(i int) { d.verdict(i) })
		}
		close(d.evaluated)
	})
}

// evaluatedWithin reports whether the verdicts on all nodes are there after at most the given time.
func (d *data) evaluatedWithin(wait time.Duration) bool {
	go d.evaluate()
	select {
	case <-d.evaluated:
		return true
	case <-time.After(wait):
		return false
	}
}

func verdictOf(o *rules.Outcome, node *corev1.Node, settings *desired.Settings) *verdict {
	list := o.Rules()
	v := &verdict{matched: make([]uint64, (len(list)+63)/64)}
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
	if o.Failed != nil {
		v.withheld.add(o.Failed.Object, "all outputs: rule "+o.Failed.String()+" failed: "+o.Failed.Message)
		return v
	}
	for _, no := range o.Rejected() {
		if !no.Missing {
			v.withheld.add(no.Object, string(no.Kind)+" "+no.Key+": "+no.Reason)
		}
	}
	for _, c := range o.Conflicts() {
		v.conflicts.add(c.Lost.Object, string(c.Kind)+" "+c.Key+": "+c.Kept.String()+" sets another value than "+c.Lost.String()+" and wins")
	}
	compared := settings.Compare(node, desired.Of(o))
	for g := range o.Given() {
		object := ""
		if origin, ok := o.Origin(g.Kind, g.Key); ok {
			object = origin.Object
		}
		state, has, why := compared.Given(g.Kind, g.Key)
		text := string(g.Kind) + " " + g.Key + ": "
		switch state {
		case desired.Withheld:
			v.withheld.add(object, text+why)
		case desired.Missing, desired.Different:
			v.missing.add(object, text+state.Describe(has))
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
			d.nodes.Put(index.NodeOf(d.Nodes[i].Input, d.Nodes[i].Object))
		}
		d.nodes.SetSynced()
	})
	return d.nodes
}

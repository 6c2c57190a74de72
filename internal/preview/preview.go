// Package preview counts on which nodes of the cluster, as they are now, a rule would match.
//
// It evaluates the rules that it is asked about with the code and the inputs that the controller uses. What is unknown yet, it does
// not guess.
package preview

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

const (
	// maxNodes bounds on how many nodes rules are tried: those of a large fleet are of a few kinds, and somebody waits.
	maxNodes = 2000
	// maxPublished bounds the names of features that are remembered. A cluster has some hundred.
	maxPublished = 16384
)

// Nodes are the nodes of a cluster. It is safe for concurrent use.
type Nodes struct {
	inputs *inputs.Nodes
	rules  *assembly.Registry

	mu        sync.Mutex
	published map[string]bool // lower case, as rules are compared; names stay, since "ever" is the question
}

// New returns what is known of nodes, which must not be watched yet. The rules are those of the cluster, which matter where others read
// what they produce. Nothing is answered before all nodes and rules are known.
func New(nodes *inputs.Nodes, rules *assembly.Registry) *Nodes {
	n := &Nodes{inputs: nodes, rules: rules, published: map[string]bool{}}
	nodes.OnChange(n.note)
	return n
}

// note remembers what a node has published.
func (n *Nodes) note(c inputs.Change) {
	s, ok := n.inputs.Get(c.Node)
	if !ok || !c.Input {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range s.Input.Publishers {
		for _, name := range p.Facts.Names() {
			if len(n.published) < maxPublished {
				n.published[strings.ToLower(name)] = true
			}
		}
	}
}

// synced reports whether all nodes and rules that existed at the start are known.
func (n *Nodes) synced() bool { return n.rules.Program() != nil && n.inputs.Synced() }

// Published reports whether a node has published a feature since this process started, or a rule makes it up; ok is false
// while nothing was published at all, so that a cluster whose workers just start draws no warning.
func (n *Nodes) Published(feature string) (published, ok bool) {
	if !n.synced() {
		return false, false
	}
	feature = strings.ToLower(feature)
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.published) == 0 || len(n.published) >= maxPublished {
		return false, false
	}
	if n.published[feature] || facts.IsKubernetes(feature) {
		return true, true
	}
	for _, other := range n.rules.All() {
		if slices.Contains(other.Set.Derives(), feature) {
			return true, true
		}
	}
	return false, true
}

// Count says on how many nodes each rule of a set matches, by its index in spec.rules, and on how many of all nodes it was
// tried: those that have published something, or the first of them by name. Nothing is ok if there are none, or if the
// context ends before all were tried.
func (n *Nodes) Count(ctx context.Context, set *rules.RuleSet) (matched map[int]int, tried, all int, ok bool) {
	if !n.synced() {
		return nil, 0, 0, false
	}
	program, inputs, all := n.snapshot(set)
	if len(inputs) == 0 {
		return nil, 0, 0, false
	}
	matched = map[int]int{}
	cache := rules.NewCache()
	for _, in := range inputs {
		if ctx.Err() != nil { // one node takes milliseconds at worst, see rules.NodeBudget
			return nil, 0, 0, false
		}
		for _, r := range cache.Eval(program, *in, nil).Rules() {
			if r.Matched && r.Object == set.Name {
				matched[r.Index]++
			}
		}
	}
	return matched, len(inputs), all, true
}

// snapshot returns the set linked with the rules that it depends on, and the nodes to try it on.
func (n *Nodes) snapshot(set *rules.RuleSet) (program *rules.Program, tried []*rules.Input, all int) {
	sets := []*rules.RuleSet{set}
	for _, other := range n.rules.All() {
		if other.Set.Name != set.Name && (set.ReadsOthers() || other.Set.Early()) {
			sets = append(sets, other.Set)
		}
	}
	for _, s := range n.inputs.All() {
		if len(s.Input.Publishers) == 0 {
			continue // its worker has just not started
		}
		if all++; all <= maxNodes {
			tried = append(tried, &s.Input)
		}
	}
	return rules.Link(n.rules.Options(), sets...), tried, all
}

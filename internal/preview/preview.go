// Package preview counts the nodes of the cluster on which a rule would match.
//
// It evaluates rules with the same code and input as the controller. Unknown results are not estimated.
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
	// maxNodes is the maximum number of nodes on which rules are evaluated, because a client is waiting. The nodes of a large fleet
	// are of a few kinds.
	maxNodes = 2000
	// maxPublished is the maximum number of feature names that are stored. A cluster has a few hundred.
	maxPublished = 16384
)

// Nodes holds the nodes of a cluster. It is safe for concurrent use.
type Nodes struct {
	inputs *inputs.Nodes
	rules  *assembly.Registry

	mu        sync.Mutex
	published map[string]bool // in lower case; names are not removed, since a feature counts if it was ever published
}

// New returns Nodes for the given inputs, which must not be running yet, and the rules of the cluster. There are no results before
// all nodes and rules are synced.
func New(nodes *inputs.Nodes, rules *assembly.Registry) *Nodes {
	n := &Nodes{inputs: nodes, rules: rules, published: map[string]bool{}}
	nodes.OnChange(n.note)
	return n
}

// note records the features of a node.
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

// Published reports whether a node has published a feature since this process started, or a rule derives it. ok is false if no
// features were published yet, so that there are no warnings while workers are starting.
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
	if n.published[feature] || facts.FromCluster(feature) {
		return true, true
	}
	for _, other := range n.rules.All() {
		if slices.Contains(other.Set.Derives(), feature) {
			return true, true
		}
	}
	return false, true
}

// HasNode reports whether the cluster has a Node. known is false before all Nodes are synced.
func (n *Nodes) HasNode(name string) (has, known bool) {
	if !n.synced() {
		return false, false
	}
	_, has = n.inputs.Get(name)
	return has, true
}

// Labels returns the keys of the labels that a Node has now or that a rule names. known is false before all Nodes are synced, and if there
// are none.
func (n *Nodes) Labels() (list []string, known bool) {
	if !n.synced() {
		return nil, false
	}
	states := n.inputs.All()
	found := map[string]bool{}
	for _, s := range states {
		if node := n.inputs.Node(context.Background(), s.Input.Node.Name); node != nil { // from the cache
			for key := range node.Labels {
				found[key] = true
			}
		}
	}
	for _, key := range n.rules.Program().Program.KeyNames() {
		found[key] = true
	}
	return facts.SortedKeys(found), len(states) > 0
}

// Count returns the number of nodes on which each rule of a set matches, by its index in spec.rules, and the number of nodes on
// which the rules were evaluated: at most maxNodes, by name. ok is false if there are no nodes or if the context ended first.
func (n *Nodes) Count(ctx context.Context, set *rules.RuleSet) (matched map[int]int, tried, all int, ok bool) {
	if !n.synced() {
		return nil, 0, 0, false
	}
	n.inputs.Need(set.Reads())
	program, inputs, all := n.snapshot(set)
	if len(inputs) == 0 {
		return nil, 0, 0, false
	}
	matched = map[int]int{}
	program.EvalEach(inputs, func(_ int, o *rules.Outcome) bool {
		for _, r := range o.Rules() {
			if r.Matched && r.Object == set.Name {
				matched[r.Index]++
			}
		}
		return ctx.Err() == nil // a node takes at most milliseconds, see rules.NodeBudget
	})
	if ctx.Err() != nil {
		return nil, 0, 0, false
	}
	return matched, len(inputs), all, true
}

// snapshot returns the set linked with the rules that it depends on, and the nodes to evaluate.
func (n *Nodes) snapshot(set *rules.RuleSet) (program *rules.Program, tried []*rules.Input, all int) {
	sets := []*rules.RuleSet{set}
	for _, other := range n.rules.All() {
		if other.Set.Name != set.Name && (set.ReadsOthers() || other.Set.Early()) {
			sets = append(sets, other.Set)
		}
	}
	for _, s := range n.inputs.All() {
		if len(s.Input.Publishers) == 0 {
			continue // its worker has not published yet
		}
		if all++; all <= maxNodes {
			tried = append(tried, &s.Input)
		}
	}
	return rules.Link(n.rules.Options(), sets...), tried, all
}

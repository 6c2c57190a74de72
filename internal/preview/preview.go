// Package preview says what a rule would do on the nodes of the cluster as they are now.
//
// It is told of nodes and features as they change, and keeps one input a node; a preview then evaluates the rules that
// are asked about with the very code that the controller runs. What it is not told yet, it does not guess.
package preview

import (
	"context"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/nodefeature"
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
	gather nodefeature.Gather
	rules  *assembly.Registry
	synced func() bool

	mu        sync.Mutex
	nodes     map[string]*node
	published map[string]bool // lower case, as rules are compared; names stay, since "ever" is the question
}

// node is what is known of one node. It may be known by its features before it is known itself.
type node struct {
	object   *corev1.Node
	features map[types.NamespacedName]*nodefeature.NodeFeature
	input    *rules.Input // nil: something has changed
}

// New returns no nodes yet. The rules are those of the cluster, which matter where others read what they produce. Synced says
// whether every object that existed at the start was put; until then nothing is answered.
func New(gather nodefeature.Gather, rules *assembly.Registry, synced func() bool) *Nodes {
	return &Nodes{gather: gather, rules: rules, synced: synced, nodes: map[string]*node{}, published: map[string]bool{}}
}

// PutNode adds a Node or replaces what is known of it. The object is kept, and must not be changed.
func (n *Nodes) PutNode(object *corev1.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := n.node(object.Name)
	at.object, at.input = object, nil
}

// RemoveNode forgets a Node, but not what is published about it: the Node may come back.
func (n *Nodes) RemoveNode(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := n.node(name)
	at.object, at.input = nil, nil
	n.forget(name)
}

// PutFeature adds a NodeFeature or replaces the one of its name. The object is kept, and must not be changed.
func (n *Nodes) PutFeature(old, object *nodefeature.NodeFeature) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old != nil && old.NodeName() != object.NodeName() {
		n.removeFeature(old)
	}
	if object.NodeName() == "" || object.DeletionTimestamp != nil || object.Spec.Features.Err != nil {
		n.removeFeature(object)
		return
	}
	at := n.node(object.NodeName())
	if at.features == nil {
		at.features = map[types.NamespacedName]*nodefeature.NodeFeature{}
	}
	at.features[key(object)], at.input = object, nil
	for _, name := range object.Spec.Features.Names() {
		if len(n.published) < maxPublished {
			n.published[strings.ToLower(name)] = true
		}
	}
}

// RemoveFeature forgets a NodeFeature.
func (n *Nodes) RemoveFeature(object *nodefeature.NodeFeature) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.removeFeature(object)
}

func (n *Nodes) removeFeature(object *nodefeature.NodeFeature) {
	at := n.nodes[object.NodeName()]
	if at == nil {
		return
	}
	delete(at.features, key(object))
	at.input = nil
	n.forget(object.NodeName())
}

func (n *Nodes) node(name string) *node {
	at := n.nodes[name]
	if at == nil {
		at = &node{}
		n.nodes[name] = at
	}
	return at
}

// forget drops an entry that says nothing.
func (n *Nodes) forget(name string) {
	if at := n.nodes[name]; at != nil && at.object == nil && len(at.features) == 0 {
		delete(n.nodes, name)
	}
}

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
func (n *Nodes) snapshot(set *rules.RuleSet) (program *rules.Program, inputs []*rules.Input, all int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	sets := []*rules.RuleSet{set}
	for _, other := range n.rules.All() {
		if other.Set.Name != set.Name && (set.ReadsOthers() || other.Set.Early()) {
			sets = append(sets, other.Set)
		}
	}
	names := make([]string, 0, len(n.nodes))
	for name, at := range n.nodes {
		if at.object != nil && len(at.features) > 0 {
			names = append(names, name)
		}
	}
	all = len(names)
	slices.Sort(names)
	for _, name := range names[:min(all, maxNodes)] {
		inputs = append(inputs, n.inputOf(n.nodes[name]))
	}
	return rules.Link(n.rules.Options(), sets...), inputs, all
}

func (n *Nodes) inputOf(at *node) *rules.Input {
	if at.input == nil {
		list := make([]*nodefeature.NodeFeature, 0, len(at.features))
		for _, f := range at.features {
			list = append(list, f)
		}
		in := n.gather.Input(at.object, list)
		at.input = &in
	}
	return at.input
}

func key(f *nodefeature.NodeFeature) types.NamespacedName {
	return types.NamespacedName{Namespace: f.Namespace, Name: f.Name}
}

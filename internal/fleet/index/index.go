// Package index knows which nodes of a cluster have what is asked for, at any moment and without asking twice.
//
// Nodes have small numbers. For each distinct requirement an Index keeps one bit a node, and when the facts of a node change,
// it flips the bits of that node in the requirements that read what has changed. To filter nodes for a pod is then to look up
// names and test bits.
package index

import (
	"maps"
	"strings"
	"sync"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/requirements"
)

const (
	// maxSets is the maximum number of distinct requirements that are kept up to date. Each takes 1.1 bytes a node: 17 MB for 15,000
	// nodes. Beyond it, the one that was not asked for the longest is forgotten; asking again costs one look at each node.
	maxSets = 1024
	// maxSetBytes is the maximum memory in bytes that they take together, with the compiled requirements. 60 of the largest requirements fit, and
	// 1,024 ordinary ones on 15,000 nodes.
	maxSetBytes = 32 << 20
)

// Node is what an Index is told about a node.
type Node struct {
	// Input is what the node's rules are given.
	Input rules.Input
	// Labels and Annotations are all that the Node has, those that rules wrote included: requirements may read them. They
	// are not copied.
	Labels, Annotations map[string]string
	// Seen is when the facts were last known to be true, in seconds since 1970; 0: they are trusted.
	Seen int64
}

// namesChunk is how many bytes of names are kept together: a page. A chunk lives as long as one of its names.
const namesChunk = 4 << 10

// Index is which nodes have what. It is safe for concurrent use. The zero value is not ready for use; see New.
type Index struct {
	mu    sync.RWMutex
	index map[string]int32
	nodes []node
	free  []int32         // numbers of nodes that are gone
	names strings.Builder // see keep

	sets    map[requirements.Key]*set
	readers map[string]*reader
	perNode []*set // read names or metadata of nodes
	chained []*set // read what rules produce
	mark    uint64 // the clock at the last Sweep
	clock   uint64 // counts uses, for what is used the longest ago
	pass    uint64 // counts changes
	maxWork int    // of one requirement on all nodes; see the constant

	program *rules.Program
	cache   *rules.Cache
	// synced says that every object that existed at the start is known.
	synced bool
}

// node is one node by its number.
type node struct {
	name    string // empty: nobody has the number
	facts   Node
	in      rules.Input // what requirements are given
	outcome *rules.Outcome
	matched map[string]string
}

// stale reports whether the facts were not known to be true any more at a time in seconds since 1970; 0 is any time, for which
// the node is not even looked at.
func (n *node) stale(oldest int64) bool {
	return oldest != 0 && n.facts.Seen != 0 && n.facts.Seen < oldest
}

// reader is which sets read a feature.
type reader struct {
	key  facts.Key
	sets []*set
}

// New returns an Index of a cluster without nodes and rules.
func New() *Index {
	return &Index{index: map[string]int32{}, sets: map[requirements.Key]*set{}, readers: map[string]*reader{}, maxWork: maxWork}
}

// SetSynced says that every object that existed at the start is known by now.
func (v *Index) SetSynced() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.synced = true
}

// Synced reports whether the Index is complete: before that, an answer could only be wrong.
func (v *Index) Synced() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.synced
}

// Len returns how many nodes there are.
func (v *Index) Len() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return len(v.index)
}

// Requirements returns how many distinct requirements are kept.
func (v *Index) Requirements() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return len(v.sets)
}

// Put adds a node or replaces what is known of it.
func (v *Index) Put(n Node) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pass++
	name := n.Input.Node.Name
	i, known := v.index[name]
	if !known {
		name = v.keep(name)
		i = v.number(name)
		v.nodes[i] = node{name: name}
		v.assign(i, n)
		for _, s := range v.sets {
			s.judge(v, i)
		}
		return
	}
	old := v.nodes[i]
	v.assign(i, n)
	for _, r := range v.readers {
		if facts.Lookup(old.in.Facts, r.key).ID() != facts.Lookup(n.Input.Facts, r.key).ID() {
			v.judgeAll(r.sets, i)
		}
	}
	if len(v.perNode) > 0 && !(maps.Equal(old.in.Node.Labels, n.Labels) && maps.Equal(old.in.Node.Annotations, n.Annotations)) {
		v.judgeAll(v.perNode, i)
	}
	if len(v.chained) > 0 && !maps.Equal(old.matched, v.nodes[i].matched) {
		v.judgeAll(v.chained, i)
	}
}

// Seen notes when the facts of a node were last known to be true; see Node. It is cheaper than Put.
func (v *Index) Seen(name string, at int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if i, ok := v.index[name]; ok {
		v.nodes[i].facts.Seen = at
	}
}

// Remove forgets a node.
func (v *Index) Remove(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	i, ok := v.index[name]
	if !ok {
		return
	}
	delete(v.index, name)
	v.nodes[i] = node{}
	v.free = append(v.free, i)
	for _, s := range v.sets {
		s.clear(i)
	}
}

// SetProgram replaces the rules whose products requirements may read as rule.matched, and the memory of their results, which
// others who evaluate the same rules may share.
func (v *Index) SetProgram(p *rules.Program, results *rules.Cache) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.program, v.cache = p, results
	if len(v.chained) > 0 {
		v.produce(func(i int32) { v.judgeAll(v.chained, i) })
	}
}

// keep copies a name to where the others are. A question names hundreds of nodes: if each name were where its Node was
// decoded, looking them up would throw as many pages out of the caches of a processor that others need too.
func (v *Index) keep(name string) string {
	if v.names.Cap()-v.names.Len() < len(name) {
		v.names = strings.Builder{}
		v.names.Grow(max(namesChunk, len(name)))
	}
	start := v.names.Len()
	v.names.WriteString(name)
	return v.names.String()[start:]
}

// number returns a free number.
func (v *Index) number(name string) int32 {
	var i int32
	if n := len(v.free); n > 0 {
		i, v.free = v.free[n-1], v.free[:n-1]
	} else {
		i = int32(len(v.nodes)) //nolint:gosec // a cluster has no two thousand million nodes
		v.nodes = append(v.nodes, node{})
	}
	v.index[name] = i
	return i
}

func (v *Index) assign(i int32, n Node) {
	at := &v.nodes[i]
	at.facts, at.in = n, n.Input
	at.in.Node.Labels, at.in.Node.Annotations = n.Labels, n.Annotations
	if len(v.chained) > 0 {
		v.evaluate(at)
	}
}

// produce evaluates the rules of all nodes, and calls changed with those for which they produce something else than before.
func (v *Index) produce(changed func(int32)) {
	v.pass++
	for i := range v.nodes {
		if v.nodes[i].name == "" {
			continue
		}
		before := v.nodes[i].matched
		v.evaluate(&v.nodes[i])
		if !maps.Equal(before, v.nodes[i].matched) {
			changed(int32(i)) //nolint:gosec // see number
		}
	}
}

// evaluate finds out what rules produce for a node.
func (v *Index) evaluate(n *node) {
	if v.program == nil {
		return
	}
	o := v.cache.Eval(v.program, n.facts.Input, n.outcome)
	if o == n.outcome {
		return
	}
	n.outcome, n.matched = o, o.Produced()
}

// judgeAll judges a node anew by some sets, by each of them once.
func (v *Index) judgeAll(sets []*set, i int32) {
	for _, s := range sets {
		if s.pass != v.pass || s.passNode != i {
			s.pass, s.passNode = v.pass, i
			s.judge(v, i)
		}
	}
}

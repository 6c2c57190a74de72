// Package index keeps track of which nodes of a cluster meet which requirements, and evaluates each distinct requirement only once.
//
// Nodes have small numbers. For each distinct requirement an Index keeps one bit per node. When the facts of a node change, it
// updates the bits of that node for the requirements that read the changed features. To filter nodes for a pod, it looks up names
// and tests bits.
package index

import (
	"strings"
	"sync"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/stringmap"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/requirements"
)

const (
	// maxSets is the maximum number of distinct requirements that are kept up to date. Each takes 1.1 bytes per node: 17 MB for
	// 15,000 nodes. If there are more, the least recently used one is evicted; using it again requires an evaluation of all nodes.
	maxSets = 1024
	// maxSetBytes is the maximum memory in bytes for all sets, including the compiled requirements. 60 requirements of the maximum
	// size fit, and 1,024 ordinary ones on 15,000 nodes.
	maxSetBytes = 32 << 20
)

// Node is the state of a node in an Index.
type Node struct {
	// Input is the input of rules for the node.
	Input rules.Input
	// Labels and Annotations are all of the Node's, including those that rules wrote: requirements can read them.
	Labels, Annotations map[string]string
	// Seen is when the facts were last confirmed, in seconds since 1970; 0: always trusted.
	Seen int64
}

// namesChunk is the number of bytes of names that are allocated together: a page. A chunk lives as long as one of its names.
const namesChunk = 4 << 10

// Index holds which nodes meet which requirements. It is safe for concurrent use. The zero value is not ready to use; see New.
type Index struct {
	mu    sync.RWMutex
	index map[string]int32
	nodes []node
	free  []int32         // numbers of deleted nodes
	names strings.Builder // see keep

	sets    map[requirements.Key]*set
	readers map[string]*reader
	perNode []*set // read names or metadata of nodes
	chained []*set // read outputs of rules
	mark    uint64 // the clock at the last Sweep
	clock   uint64 // counts uses, to find the least recently used set
	pass    uint64 // counts changes
	maxWork int    // for one requirement on all nodes; see the constant

	reads   func(features []string) // see OnReads
	program *rules.Program
	// synced is set once every object that existed at the start is known.
	synced bool
}

// node is one node, by number.
type node struct {
	name string      // empty: the number is free
	in   rules.Input // input for rules
	// labels and annotations are all of the Node's; see complete.
	labels, annotations stringmap.Map
	seen                int64
}

// stale reports whether the facts were no longer confirmed at a time in seconds since 1970; 0 means any time, without reading the
// node.
func (n *node) stale(oldest int64) bool {
	return oldest != 0 && n.seen != 0 && n.seen < oldest
}

// inputFor returns the input for a requirement. Metadata takes memory and time to build, and few requirements read it.
func (n *node) inputFor(r *requirements.Requirement) rules.Input {
	if r.PerNode() {
		return n.complete()
	}
	return n.in
}

// complete returns the input for requirements, with all labels and annotations of the Node.
func (n *node) complete() rules.Input {
	in := n.in
	in.Node.Labels, in.Node.Annotations = n.labels.Strings(), n.annotations.Strings()
	return in
}

// unreadKey is the feature that names the sources which are unknown: every requirement depends on it.
var unreadKey = facts.MakeKey(nfdv1alpha1.UnreadFeature)

// reader lists the sets that read a feature.
type reader struct {
	key  facts.Key
	sets []*set
}

// New returns an Index without nodes and rules.
func New() *Index {
	return &Index{index: map[string]int32{}, sets: map[requirements.Key]*set{}, readers: map[string]*reader{}, maxWork: maxWork}
}

// SetSynced marks the Index as complete: every object that existed at the start is known.
func (v *Index) SetSynced() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.synced = true
}

// Synced reports whether the Index is complete: before that, answers would be wrong.
func (v *Index) Synced() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.synced
}

// Len returns the number of nodes.
func (v *Index) Len() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return len(v.index)
}

// Requirements returns the number of distinct requirements in the Index.
func (v *Index) Requirements() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return len(v.sets)
}

// Put adds or replaces a node.
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
		of := &produced{index: v, node: &v.nodes[i]}
		for _, s := range v.sets {
			s.judge(v, i, of)
		}
		return
	}
	old := v.nodes[i]
	v.assign(i, n)
	of := &produced{index: v, node: &v.nodes[i]}
	if facts.Lookup(old.in.Facts, unreadKey).ID() != facts.Lookup(n.Input.Facts, unreadKey).ID() {
		for _, s := range v.sets {
			s.judge(v, i, of)
		}
		return
	}
	for _, r := range v.readers {
		if facts.Lookup(old.in.Facts, r.key).ID() != facts.Lookup(n.Input.Facts, r.key).ID() {
			v.judgeAll(r.sets, i, of)
		}
	}
	if now := &v.nodes[i]; len(v.perNode) > 0 && !(old.labels.Equal(now.labels) && old.annotations.Equal(now.annotations)) {
		v.judgeAll(v.perNode, i, of)
	}
	v.judgeAll(v.chained, i, of)
}

// Seen updates when the facts of a node were last confirmed; see Node. It is cheaper than Put.
func (v *Index) Seen(name string, at int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if i, ok := v.index[name]; ok {
		v.nodes[i].seen = at
	}
}

// Remove removes a node.
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

// SetProgram replaces the rules whose outputs requirements can read as rule.matched. It evaluates the requirements that do in batches:
// other requests are served in between, and get for each node the answer of the old rules or of the new ones.
func (v *Index) SetProgram(p *rules.Program) {
	v.mu.Lock()
	v.program = p
	v.mu.Unlock()
	for next := 0; v.judgeChained(&next); {
	}
}

// judgeChained evaluates one batch of nodes for the requirements that read outputs of rules, and reports whether nodes are left.
func (v *Index) judgeChained(next *int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pass++
	for work := 0; *next < len(v.nodes) && len(v.chained) > 0; *next++ {
		if work > turnWork {
			return true
		}
		if n := &v.nodes[*next]; n.name != "" {
			work += rulesWork + v.judgeAll(v.chained, int32(*next), &produced{index: v, node: n}) //nolint:gosec // see number
		}
	}
	return false
}

// produced evaluates the rules on a node when a requirement first reads their outputs. They are not kept: they would take some kB of
// each node. The caller holds the lock.
type produced struct {
	index  *Index
	node   *node
	done   bool
	values map[string]string
}

func (p *produced) get() map[string]string {
	if !p.done && p.index.program != nil {
		p.values = p.index.program.Eval(p.node.in).Produced()
	}
	p.done = true
	return p.values
}

// read returns the outputs of rules if a requirement reads them.
func (p *produced) read(r *requirements.Requirement) map[string]string {
	if !r.ReadsMatched() {
		return nil
	}
	return p.get()
}

// keep copies a name next to the others. A request contains hundreds of names: if each name were stored next to its decoded Node,
// looking them up would evict as many pages from processor caches.
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
		i = int32(len(v.nodes)) //nolint:gosec // a cluster has fewer than two billion nodes
		v.nodes = append(v.nodes, node{})
	}
	v.index[name] = i
	return i
}

func (v *Index) assign(i int32, n Node) {
	at := &v.nodes[i]
	at.in, at.seen = n.Input, n.Seen
	at.labels, at.annotations = stringmap.Of(n.Labels), stringmap.Of(n.Annotations)
}

// judgeAll evaluates a node again for some sets, each of them once in a pass, and returns the work that it took.
func (v *Index) judgeAll(sets []*set, i int32, of *produced) (work int) {
	for _, s := range sets {
		if s.pass != v.pass || s.passNode != i {
			s.pass, s.passNode = v.pass, i
			work += s.judge(v, i, of)
		}
	}
	return work
}

// OnReads registers f, which is called with the features that a requirement reads before the requirement is first evaluated. It must be
// called before the Index is used, and f must return quickly.
func (v *Index) OnReads(f func(features []string)) { v.reads = f }

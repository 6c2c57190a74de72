// Package inputs makes the input of rules out of a Node and the NodeFeatures that count for it.
//
// It decides which NodeFeatures count, in which order they are merged, and for how long what a worker has published goes on
// counting after its object has vanished. Everything that evaluates rules on the nodes of a cluster takes its inputs from here, so that
// the labels of a node and the answers of the extender follow from the same facts.
package inputs

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/turn"
	"github.com/assay-project/assay/rules"
)

// DefaultGrace is how long what a worker has published goes on counting after its object has vanished without its Node: time
// to reinstall a DaemonSet, and to notice that one has deleted a namespace.
const DefaultGrace = 10 * time.Minute

// Sources says which NodeFeatures count.
type Sources struct {
	// Namespace is the manager's and the worker's own.
	Namespace string
	// Namespaces chooses the other namespaces whose NodeFeatures count, by their labels; nil: all of them.
	Namespaces labels.Selector
	// IgnoreLabels leaves out spec.labels of all but the worker's own objects.
	IgnoreLabels bool
}

// Options say which NodeFeatures count, and for how long.
type Options struct {
	// Merge says how NodeFeatures become one input. Those in its Namespace always count.
	Merge nodefeature.Gather
	// Namespaces chooses the other namespaces whose NodeFeatures count, by their labels; nil: all of them.
	Namespaces labels.Selector
	// Grace is how long what a worker has published goes on counting after its object has vanished without its Node; 0: not at
	// all, as in NFD.
	Grace time.Duration
	// Live asks the API server, not the cache, before an object that is missing in the cache counts as deleted; nil: it
	// counts as deleted at once.
	Live client.Reader
	// Clock measures Grace; nil: the real one.
	Clock clock.Clock
}

// Nodes makes the inputs of the nodes of a cluster. It is safe for concurrent use.
type Nodes struct {
	opt        Options
	cached     client.Reader
	registered []toolscache.InformerSynced
	changed    []func(Change)

	mu      sync.Mutex
	nodes   map[string]*memory
	due     map[string]time.Time // nodes to look at again, and when; the zero time is at once
	failing map[string]bool      // nodes of which nothing could be found out

	wake   chan struct{} // holds an element if something has become due
	synced chan struct{} // closed once every node that existed at the start has been looked at
}

// memory is what is remembered of one node. All of it can be lost at any time.
type memory struct {
	uid   types.UID
	turn  turn.Lock
	known *State // as of the last look; guarded by Nodes.mu
	// last is the worker's object that was deleted since the last look, as it was then; guarded by Nodes.mu.
	last *nodefeature.NodeFeature

	// guarded by turn
	seen   map[client.ObjectKey]bool // the objects that counted the last time
	own    *nodefeature.NodeFeature  // the worker's object as last seen
	lostAt time.Time                 // since when it is gone; zero: it is there
	unseen bool                      // it has never been there since this process started
}

// State is what is known of a node.
type State struct {
	Node  *corev1.Node
	Input rules.Input
	// Features are the NodeFeatures that count, in the order of their merging.
	Features []*nodefeature.NodeFeature
	LeftOut  []LeftOut
	// Held is how long what the worker has published goes on counting although its object has vanished; 0: it is there, or does
	// not count any more.
	Held time.Duration
	// Blind says that the worker's object is missing, was never seen by this process, and may come back while Held lasts: what it
	// said is unknown.
	Blind bool
}

// New returns Nodes that know nothing yet: Watch must be called.
func New(opt Options) *Nodes {
	if opt.Clock == nil {
		opt.Clock = clock.RealClock{}
	}
	return &Nodes{
		opt: opt, nodes: map[string]*memory{}, due: map[string]time.Time{}, failing: map[string]bool{},
		wake: make(chan struct{}, 1), synced: make(chan struct{}),
	}
}

// Of returns what is known of a node according to the cache. If the worker's object has vanished, the last one seen goes on
// counting for a while. The error is ErrStale if the cache lacks an object that the API server has.
func (n *Nodes) Of(ctx context.Context, node *corev1.Node) (State, error) {
	m := n.memory(node)
	release, err := m.turn.Take(ctx) // two passes over one node must not ask the API server twice
	if err != nil {
		return State{}, err
	}
	defer release()
	s := State{Node: node}
	if s.Features, s.LeftOut, err = n.list(ctx, node); err != nil {
		return State{}, err
	}
	if err := n.confirmLost(ctx, node, m, s.Features, s.LeftOut); err != nil {
		return State{}, err
	}
	n.hold(m, &s)
	s.Input = n.opt.Merge.Input(node, s.Features)
	return s, nil
}

// hold adds what a vanished worker has published, for as long as it counts.
func (n *Nodes) hold(m *memory, s *State) {
	last := n.takeLast(m)
	for _, f := range s.Features {
		if n.opt.Merge.Own(f) {
			m.own, m.lostAt, m.unseen = f, time.Time{}, false
			return
		}
	}
	if last != nil && last.Spec.Features.Err == nil && n.opt.Merge.Counts(last, s.Node) {
		m.own, m.lostAt, m.unseen = last, time.Time{}, false // it may have come and gone since the last look
	}
	if m.lostAt.IsZero() {
		m.lostAt = n.opt.Clock.Now()
	}
	left := n.opt.Grace - n.opt.Clock.Since(m.lostAt)
	if left <= 0 {
		m.own, m.unseen = nil, false
		return
	}
	s.Held = left
	if m.own == nil {
		s.Blind = m.unseen
		return
	}
	s.Features = append(s.Features, m.own)
	n.opt.Merge.Sort(s.Features)
}

// vanished remembers the worker's object of a node when it is deleted.
func (n *Nodes) vanished(f *nodefeature.NodeFeature) {
	if !n.opt.Merge.Own(f) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if m := n.nodes[f.NodeName()]; m != nil {
		m.last = f
	}
}

func (n *Nodes) takeLast(m *memory) (last *nodefeature.NodeFeature) {
	n.mu.Lock()
	defer n.mu.Unlock()
	last, m.last = m.last, nil
	return last
}

// memory returns what is remembered of this very Node, not of one of the same name that it replaced.
func (n *Nodes) memory(node *corev1.Node) *memory {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.nodes[node.Name]
	if m == nil || m.uid != node.UID {
		next := &memory{uid: node.UID, turn: turn.New(), unseen: true}
		if m != nil {
			next.known = m.known // until the new one has been looked at
		}
		n.nodes[node.Name], m = next, next
	}
	return m
}

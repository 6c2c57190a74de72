// Package inputs builds the inputs of rules from a Node and the NodeFeatures that count for it.
//
// It decides which NodeFeatures count, in which order they are merged, and for how long a worker's features count after its object
// was deleted. Everything that evaluates rules on the nodes of a cluster gets its inputs from this package, so that the labels of a
// node and the answers of the extender are based on the same facts.
package inputs

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/internal/fleet/devices"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/turn"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/gather"
)

// Options configure which NodeFeatures count, and for how long.
type Options struct {
	// Policy says which NodeFeatures count, and how they are merged.
	Policy gather.Policy
	// Grace is how long a worker's features count after its object was deleted while the Node exists; 0: not at all, as in NFD.
	Grace time.Duration
	// Live reads from the API server, not the cache, before an object that is missing in the cache counts as deleted; nil: it
	// counts as deleted immediately.
	Live client.Reader
	// Sets are the feature sets in memory, which Prove reads instead of the API server's if they are what their names say; nil: none.
	Sets *featuresets.Store
	// Absent reports whether NodeFeatures have no definition: workers cannot publish, and the grace begins when they can; nil: they have one.
	Absent func() bool
	// Devices are the devices of DRA drivers; nil: no rule reads them.
	Devices *devices.Devices
	// Clock measures Grace; nil: the real one.
	Clock clock.Clock
}

// Nodes provides the inputs of rules for the nodes of a cluster. It is safe for concurrent use.
type Nodes struct {
	opt        Options
	cached     client.Reader
	index      nodefeature.Index
	registered []toolscache.InformerSynced
	changed    []func(Change)

	mu      sync.Mutex
	nodes   map[string]*memory
	due     map[string]time.Time        // nodes to process again, and when; the zero time means immediately
	failing map[string]time.Duration    // nodes whose state could not be determined, and the delay of the last retry
	proven  map[client.ObjectKey]proven // see Replace

	startTurn turn.Lock                     // held while others are listed
	others    map[string][]client.ObjectKey // see othersAtStart; nil: they were not listed yet

	wake   chan struct{} // holds an element if something has become due
	synced chan struct{} // closed once every node that existed at the start has been processed
}

// memory is the cached state of one node. All of it can be lost at any time.
type memory struct {
	uid   types.UID
	turn  turn.Lock
	known *State // as of the last look; guarded by Nodes.mu
	// last is the worker's object that was deleted since the last look, as it was then; guarded by Nodes.mu.
	last *nodefeature.NodeFeature

	// guarded by turn
	seen   []client.ObjectKey       // the objects that were in the cache the last time, sorted; nil: none was read yet
	own    *nodefeature.NodeFeature // the worker's object as last seen
	lostAt time.Time                // when it was deleted; zero: it exists
	unseen bool                     // it has never existed since this process started
	input  rules.Input              // as last returned
	from   []version                // what input was built from: the Node, then the NodeFeatures; nil: there is none yet
}

// version identifies the content of an object that an input is built from.
type version struct {
	resourceVersion string
	facts           *facts.Facts // of a NodeFeature: its feature sets can arrive later; of a Node, those of its devices
}

// State is what is known about a node.
type State struct {
	Node  *corev1.Node
	Input rules.Input
	// Features are the NodeFeatures that count, in merge order.
	Features gather.Selection[*nodefeature.NodeFeature]
	LeftOut  []LeftOut
	// Own is the object of the node's worker, the last one seen until HeldUntil; nil: there is none, or it is left out.
	Own *nodefeature.NodeFeature
	// HeldUntil is the time until which the features of the worker's deleted object count; zero: the object exists, or does not count any more.
	HeldUntil time.Time
	// Blind says that what the worker has published is unknown to this process: its object was never seen and may come back until HeldUntil,
	// or it cannot be read, as long as it names feature sets that are missing.
	Blind bool
	// Devices are the devices of DRA drivers.
	Devices devices.State
}

// Held reports whether the features of the worker's deleted object count.
func (s *State) Held() bool { return !s.HeldUntil.IsZero() }

// Next returns the first time after now at which the state changes without an event; zero: there is none.
func (s *State) Next(now time.Time) (next time.Time) {
	for _, at := range []time.Time{s.HeldUntil, s.Devices.HeldUntil, s.Devices.UnseenUntil} {
		if at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// New returns empty Nodes: the caller must call Watch.
func New(opt Options) *Nodes {
	if opt.Clock == nil {
		opt.Clock = clock.RealClock{}
	}
	n := &Nodes{
		opt: opt, proven: map[client.ObjectKey]proven{}, nodes: map[string]*memory{}, due: map[string]time.Time{}, failing: map[string]time.Duration{},
		startTurn: turn.New(), wake: make(chan struct{}, 1), synced: make(chan struct{}),
	}
	if opt.Devices != nil {
		opt.Devices.OnChange(n.mark)
	}
	return n
}

// Of returns the state of a node according to the cache. If the worker's object was deleted, the last one seen counts for the grace
// period. The error is ErrStale if the cache lacks an object that the API server has.
func (n *Nodes) Of(ctx context.Context, node *corev1.Node) (State, error) {
	m := n.memory(node)
	release, err := m.turn.Take(ctx) // two passes over one node must not both query the API server
	if err != nil {
		return State{}, err
	}
	defer release()
	s := State{Node: node}
	if s.Features, s.LeftOut, err = n.list(ctx, node); err != nil {
		return State{}, err
	}
	if err := n.confirmLost(ctx, node, m, &s); err != nil {
		return State{}, err
	}
	n.hold(m, &s)
	s.Devices = n.opt.Devices.Of(node.Name, node.UID)
	if from := versions(&s); !slices.Equal(from, m.from) {
		m.from = from
		input := s.Features.Input(s.node(), nodefeature.Interner())
		if input.Labels = nodefeature.ShareLabels(input.Labels); !sameInput(m.input, input) { // otherwise others already hold a reference to it
			m.input = input
		}
	}
	s.Input = m.input
	return s, nil
}

// versions returns what the input of a node is built from.
func versions(s *State) []version {
	out := make([]version, 0, 1+len(s.Features.All()))
	out = append(out, version{s.Node.ResourceVersion, s.Devices.Facts})
	for _, f := range s.Features.All() {
		out = append(out, version{f.ResourceVersion, f.Spec.Features.Facts})
	}
	return out
}

// node returns the node that rules are evaluated for.
func (s *State) node() gather.Node {
	out := gather.Stored(s.Node)
	out.Devices = s.Devices.Facts
	return out
}

// Grace is how long a worker's features count after its object was deleted.
func (n *Nodes) Grace() time.Duration { return n.opt.Grace }

// Need says which features rules or requirements read: those of devices are read from the API server only if something needs them.
func (n *Nodes) Need(features []string) {
	if !n.opt.Devices.Need(features) {
		return
	}
	n.mu.Lock()
	names := slices.Collect(maps.Keys(n.nodes))
	n.mu.Unlock()
	for _, name := range names { // their states say that devices do not matter
		n.mark(name)
	}
}

// OnDevices registers f, which is called with a node after each change of its ResourceSlices, if something reads them.
func (n *Nodes) OnDevices(f func(node string)) {
	if n.opt.Devices != nil {
		n.opt.Devices.OnChange(f)
	}
}

// DevicesProblem returns why the devices that one of the features comes from cannot be read; empty: they can, or none does.
func (n *Nodes) DevicesProblem(features []string) string { return n.opt.Devices.Problem(features) }

// OnDevicesProblem registers f, which is called after the result of DevicesProblem may have changed.
func (n *Nodes) OnDevicesProblem(f func()) {
	if n.opt.Devices != nil {
		n.opt.Devices.OnProblem(f)
	}
}

// hold adds the features of a deleted worker's object, as long as they count.
func (n *Nodes) hold(m *memory, s *State) {
	last := n.takeLast(m)
	for _, f := range s.Features.All() {
		if n.own(f) {
			m.own, m.lostAt, m.unseen = f, time.Time{}, false
			s.Own = f
			return
		}
	}
	if last != nil && last.Spec.Features.Err == nil && !n.opt.Policy.Outlived(last.Published(), gather.Stored(s.Node)) {
		m.own, m.lostAt, m.unseen = last, time.Time{}, false // it may have come and gone since the last look
	}
	if m.lostAt.IsZero() || n.opt.Absent != nil && n.opt.Absent() {
		m.lostAt = n.opt.Clock.Now()
	}
	if n.LeftOutOwn(*s) != nil { // it is there, and only its content is unknown: this has no time limit
		m.lostAt = time.Time{}
		n.addLast(m, s, true)
		return
	}
	until := m.lostAt.Add(n.opt.Grace)
	if !n.opt.Clock.Now().Before(until) {
		m.own, m.unseen = nil, false
		return
	}
	s.HeldUntil = until
	n.addLast(m, s, m.unseen)
}

// own reports whether a NodeFeature is a worker's.
func (n *Nodes) own(f *nodefeature.NodeFeature) bool { return n.opt.Policy.Own(f.Published()) }

// addLast adds what the worker has published last, or marks the State as blind if that is unknown.
func (n *Nodes) addLast(m *memory, s *State, blind bool) {
	if m.own == nil {
		s.Blind = blind
		return
	}
	s.Own = m.own
	s.Features = s.Features.With(m.own)
}

// vanished remembers the worker's object of a node when it is deleted.
func (n *Nodes) vanished(f *nodefeature.NodeFeature) {
	if !n.own(f) {
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

// LeftOutOwn returns why the object of the node's worker is left out; nil: it is not.
func (n *Nodes) LeftOutOwn(s State) error {
	for _, left := range s.LeftOut {
		if n.own(left.Object) {
			return left.Err
		}
	}
	return nil
}

// memory returns what is remembered of this very Node, not of one of the same name that it replaced.
func (n *Nodes) memory(node *corev1.Node) *memory {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.nodes[node.Name]
	if m == nil || m.uid != node.UID {
		next := &memory{uid: node.UID, turn: turn.New(), unseen: true}
		if m != nil {
			next.known = m.known // until the new one has been processed
		}
		n.nodes[node.Name], m = next, next
	}
	return m
}

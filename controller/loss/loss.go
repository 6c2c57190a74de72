// Package loss decides which nodes get a taint because they no longer have features that their pods require.
package loss

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Loss is the requirement of one object that a node does not meet although pods that run on it require it.
type Loss struct {
	// Object is the NodeFeatureRequest or policy with the requirement.
	Object string
	// Value is the value of the taint. It identifies the object.
	Value string
	// Grace is how long the node must lack the features before it is tainted.
	Grace time.Duration
	// Pod is one of the pods, as namespace/name, and Lacks what it requires and the node lacks.
	Pod, Lacks string
	// Had is set if the node met the requirement while one of the pods was bound to it. Without it, the loss keeps a taint that the node
	// has, from before a restart, and adds none: a user who creates a pod can choose its node and require what no node has.
	Had bool
}

// Verdict is what is known about the losses of a node.
type Verdict struct {
	// Unknown is set if the losses of the node are not known: it keeps the taint that it has, and gets no other one.
	Unknown bool
	// Lost are the current losses, Due those of what the node had that have lasted for their grace, both in the order of their values.
	Lost, Due []Loss
}

// Tracker knows which nodes lack features that their pods require, and for how long. It loses this with the process: the grace then
// starts again, and is never shortened. It is safe for concurrent use.
type Tracker struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	synced   bool
	nodes    map[string]*node
	onChange []func(node string)
}

// node is a node that lacks something, or of which that is not known.
type node struct {
	unknown bool
	losses  []lost
}

type lost struct {
	Loss
	since time.Time
	due   bool
}

// NewTracker returns a tracker to which all losses are unknown.
func NewTracker(c clock.PassiveClock) *Tracker {
	return &Tracker{clock: c, nodes: map[string]*node{}}
}

// OnChange registers a function that is called with each node whose verdict has changed, and with "" if that of any node may have
// changed. It must return quickly.
func (t *Tracker) OnChange(f func(node string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.onChange = append(t.onChange, f)
}

// SetSynced makes nodes without losses known: all nodes have been checked.
func (t *Tracker) SetSynced() {
	t.mu.Lock()
	changed := !t.synced
	t.synced = true
	t.mu.Unlock()
	if changed {
		t.notify("")
	}
}

// Set replaces the losses of a node, of which there is one for each object. A loss keeps the time since which it lasts as long as each
// call contains it. It is due only in a call at the end of its grace: what was true before may have changed.
func (t *Tracker) Set(name string, losses []Loss) {
	t.mu.Lock()
	before, now := t.nodes[name], t.clock.Now()
	if before == nil {
		before = &node{}
	}
	next := &node{losses: make([]lost, len(losses))}
	for i, l := range losses {
		next.losses[i] = lost{Loss: l, since: now}
		if j := slices.IndexFunc(before.losses, func(have lost) bool { return have.Object == l.Object }); j >= 0 {
			next.losses[i].since = before.losses[j].since
		}
		next.losses[i].due = l.Had && now.Sub(next.losses[i].since) >= l.Grace
	}
	slices.SortFunc(next.losses, func(a, b lost) int { return strings.Compare(a.Value, b.Value) })
	same := before.unknown == next.unknown && slices.EqualFunc(before.losses, next.losses, func(a, b lost) bool { return a.Object == b.Object && a.due == b.due })
	if t.nodes[name] = next; len(losses) == 0 {
		delete(t.nodes, name)
	}
	t.mu.Unlock()
	if !same {
		t.notify(name)
	}
}

// SetUnknown forgets the losses of a node whose features are not known.
func (t *Tracker) SetUnknown(name string) {
	t.mu.Lock()
	same := t.nodes[name] != nil && t.nodes[name].unknown
	t.nodes[name] = &node{unknown: true}
	t.mu.Unlock()
	if !same {
		t.notify(name)
	}
}

// Of returns the verdict on a node.
func (t *Tracker) Of(name string) (v Verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[name]
	if !t.synced || n != nil && n.unknown {
		return Verdict{Unknown: true}
	}
	if n == nil {
		return Verdict{}
	}
	for _, l := range n.losses {
		v.Lost = append(v.Lost, l.Loss)
		if l.due {
			v.Due = append(v.Due, l.Loss)
		}
	}
	return v
}

// Waiting returns the nodes with losses whose grace has ended since the last Set, sorted, and how long until there are more of them; 0:
// no other loss is in its grace.
func (t *Tracker) Waiting() (nodes []string, next time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	for name, n := range t.nodes {
		ended := false
		for _, l := range n.losses {
			left := l.Grace - now.Sub(l.since)
			switch {
			case l.due, !l.Had:
			case left <= 0:
				ended = true
			case next == 0 || left < next:
				next = left
			}
		}
		if ended {
			nodes = append(nodes, name)
		}
	}
	slices.Sort(nodes)
	return nodes, next
}

func (t *Tracker) notify(name string) {
	t.mu.Lock()
	list := t.onChange
	t.mu.Unlock()
	for _, f := range list {
		f(name)
	}
}

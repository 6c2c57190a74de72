// Package follow keeps an index of nodes, and what pods require, up to date with a cluster.
package follow

import (
	"context"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/informer"
	"github.com/assay-project/assay/rules/facts"
)

// Options say what the index is told besides the inputs of nodes.
type Options struct {
	// Rules are those of the cluster, which pods may require the outputs of; nil: there are none.
	Rules *assembly.Registry
	// Leases is the namespace in which publishers keep a Lease of their node's name: features count as seen when it was
	// renewed. Those of nodes without one, and all of them if it is empty, count as seen as long as the Node is ready.
	Leases string
	// OnChange, if set, is called with the name of each node of which something has changed, and without one when it may be
	// any node. It must be quick.
	OnChange func(node string)
}

// Follower feeds an Index.
type Follower struct {
	view  *index.Index
	nodes *inputs.Nodes
	opt   Options

	mu      sync.Mutex
	ready   map[string]int64 // by name of the Node; see index.LastReady
	renewed map[string]int64 // by name of the Lease

	dirty chan struct{} // holds an element if the rules may have changed
}

// New returns a Follower that follows nothing yet. It must be called before the nodes are watched.
func New(v *index.Index, nodes *inputs.Nodes, opt Options) *Follower {
	f := &Follower{view: v, nodes: nodes, opt: opt, ready: map[string]int64{}, renewed: map[string]int64{}, dirty: make(chan struct{}, 1)}
	nodes.OnChange(f.update)
	if opt.Rules != nil {
		opt.Rules.OnChange(func() {
			select {
			case f.dirty <- struct{}{}:
			default: // they are linked soon anyway
			}
		})
	}
	return f
}

// watches says what is watched besides what the inputs are made of.
func (f *Follower) watches() []informer.Registration {
	out := []informer.Registration{{Object: &corev1.Node{}, Handler: informer.Handler(
		func(n *corev1.Node) { f.seen(n.Name, f.ready, index.LastReady(n)) },
		func(n *corev1.Node) { f.unseen(n.Name, f.ready) },
	)}}
	if f.opt.Leases != "" {
		out = append(out, informer.Registration{Object: &coordinationv1.Lease{}, Handler: informer.Handler(
			func(l *coordinationv1.Lease) {
				if l.Namespace == f.opt.Leases && l.Spec.RenewTime != nil {
					f.seen(l.Name, f.renewed, l.Spec.RenewTime.Unix())
				}
			},
			func(l *coordinationv1.Lease) {
				if l.Namespace == f.opt.Leases {
					f.unseen(l.Name, f.renewed)
				}
			},
		)})
	}
	return out
}

// seen notes when a node was seen.
func (f *Follower) seen(node string, in map[string]int64, at int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if before, ok := in[node]; !ok || before != at {
		in[node] = at
		f.view.Seen(node, f.lastSeen(node))
	}
}

// unseen forgets it, so that a replica that has seen a Lease that is gone says the same as one that has not.
func (f *Follower) unseen(node string, in map[string]int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(in, node)
	f.view.Seen(node, f.lastSeen(node))
}

// lastSeen returns when the features of a node were last known to be true; 0: they are trusted. It needs the lock.
func (f *Follower) lastSeen(node string) int64 {
	if at, ok := f.renewed[node]; ok {
		return at
	}
	return f.ready[node]
}

// Sync follows the cluster through a running cache, and returns once the Index is complete. The nodes must have been started, and Run
// must be called after it.
func (f *Follower) Sync(ctx context.Context, c cache.Cache) error {
	if err := informer.Watch(ctx, c, f.watches()...); err != nil {
		return err
	}
	if f.opt.Rules != nil {
		if err := f.opt.Rules.Wait(ctx); err != nil {
			return err
		}
	}
	if err := f.nodes.Wait(ctx); err != nil {
		return err
	}
	f.link()
	f.view.SetSynced()
	return nil
}

// Run shows the Index rules that have changed, until the context ends.
func (f *Follower) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.dirty:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(assembly.Settle):
		}
		f.link()
		f.changed("")
	}
}

func (f *Follower) changed(node string) {
	if f.opt.OnChange != nil {
		f.opt.OnChange(node)
	}
}

// update tells the Index what is known of a node.
func (f *Follower) update(c inputs.Change) {
	if s, ok := f.nodes.Get(c.Node); ok {
		f.mu.Lock()
		f.view.Put(index.Node{Input: s.Input, Labels: s.Node.Labels, Annotations: s.Node.Annotations, Seen: f.lastSeen(c.Node)})
		f.mu.Unlock()
	} else {
		f.view.Remove(c.Node)
	}
	f.changed(c.Node)
}

// link shows the Index the active rules.
func (f *Follower) link() {
	if f.opt.Rules != nil {
		linked := f.opt.Rules.Program()
		f.view.SetProgram(linked.Program, linked.Cache)
	}
}

// SlimNode drops what nobody here reads from a Node on its way into a cache.
func SlimNode(obj any) (any, error) {
	if n, ok := obj.(*corev1.Node); ok {
		n.ManagedFields = nil
		conditions := slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type != corev1.NodeReady
		})
		n.Spec, n.Status = facts.NodeParts(n)
		n.Status.Conditions = conditions
	}
	return obj, nil
}

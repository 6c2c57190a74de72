// Package follow keeps an index of nodes, and the requirements of pods, up to date with a cluster.
package follow

import (
	"context"
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

// Options configure what the index contains in addition to the inputs of nodes.
type Options struct {
	// Rules are the rules of the cluster, whose outputs pods can require; nil: none.
	Rules *assembly.Registry
	// Leases is the namespace in which publishers keep a Lease with the name of their node: its renew time is when the features
	// were last seen. For nodes without one, and all nodes if Leases is empty, features count as seen as long as the Node is ready.
	Leases string
	// OnChange, if set, is called with the name of each changed node, and with an empty name when any node may have changed. It
	// must return quickly.
	OnChange func(node string)
}

// Follower updates an Index.
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
	v.OnReads(nodes.Need)
	if opt.Rules != nil {
		opt.Rules.OnChange(func() {
			select {
			case f.dirty <- struct{}{}:
			default: // they are about to be linked anyway
			}
		})
	}
	return f
}

// watches registers the handlers for objects other than the inputs.
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

// seen records when a node was last seen.
func (f *Follower) seen(node string, in map[string]int64, at int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if before, ok := in[node]; !ok || before != at {
		in[node] = at
		f.view.Seen(node, f.lastSeen(node))
	}
}

// unseen removes that record, so that a replica that has seen a deleted Lease has the same state as one that has not.
func (f *Follower) unseen(node string, in map[string]int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(in, node)
	f.view.Seen(node, f.lastSeen(node))
}

// lastSeen returns when the features of a node were last confirmed; 0: always trusted. The caller holds the lock.
func (f *Follower) lastSeen(node string) int64 {
	if at, ok := f.renewed[node]; ok {
		return at
	}
	return f.ready[node]
}

// Sync watches the cluster through a running cache, and returns once the Index is complete. The nodes must have been started, and
// Run must be called afterwards.
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

// Run updates the Index when rules have changed, until the context ends.
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

// update updates the Index for a node.
func (f *Follower) update(c inputs.Change) {
	s, ok := f.nodes.Get(c.Node)
	if node := f.nodes.Node(context.Background(), c.Node); ok && node != nil { // from the cache
		f.mu.Lock()
		f.view.Put(index.Node{Input: s.Input, Labels: node.Labels, Annotations: node.Annotations, Seen: f.lastSeen(c.Node)})
		f.mu.Unlock()
	} else {
		f.view.Remove(c.Node)
	}
	f.changed(c.Node)
}

// link updates the Index with the active rules.
func (f *Follower) link() {
	if f.opt.Rules != nil {
		program := f.opt.Rules.Program().Program
		f.nodes.Need(program.Reads())
		f.view.SetProgram(program)
	}
}

// SlimNode removes unused fields of a Node before it is cached.
func SlimNode(obj any) (any, error) {
	if n, ok := obj.(*corev1.Node); ok {
		n.ManagedFields = nil
		conditions := n.Status.Conditions
		n.Spec, n.Status = facts.NodeParts(n)
		for i, c := range conditions {
			if c.Type == corev1.NodeReady { // index.LastReady reads its times
				n.Status.Conditions[i] = c
			}
		}
	}
	return obj, nil
}

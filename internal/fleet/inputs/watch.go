package inputs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/internal/fleet/nodecache"
	"github.com/assay-project/assay/internal/informer"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/gather"
)

const (
	// retry is the delay after the NodeFeatures of a node could not be read or confirmed. It doubles up to retryMost: a cache that was
	// filled from a truncated list can lack the objects of many nodes for hours.
	retry     = time.Second
	retryMost = 30 * time.Second
	// parallel is the number of nodes that are processed concurrently: each may wait for the API server.
	parallel = 8
	// together is the time from an event to the look at its node: events that arrive together are one look.
	together = time.Millisecond
	// patience is how long a new process waits for nodes that it cannot process, so that one node does not block everything.
	patience = time.Minute
)

// Change describes a changed node.
type Change struct {
	// Node is its name.
	Node string
	// Input is set if the result of rules could change: facts or metadata have changed, or the node was created or deleted.
	Input bool
}

// OnChange registers f, which is called after each change, concurrently for different nodes and in order for one node. It must be
// called before Start, and f must return quickly.
func (n *Nodes) OnChange(f func(Change)) { n.changed = append(n.changed, f) }

// Watch watches Nodes, NodeFeatures and, if only some count, namespaces through a cache, which need not be running yet.
func (n *Nodes) Watch(ctx context.Context, c cache.Cache) (err error) {
	n.cached = c
	list := []informer.Registration{{Object: &corev1.Node{}, Handler: informer.Changes(
		func(before, node *corev1.Node) {
			if before == nil || !sameNode(before, node) {
				n.mark(node.Name)
			}
		},
		func(node *corev1.Node) { n.mark(node.Name) },
	)}, {Object: &nodefeature.NodeFeature{}, Handler: informer.Changes(
		func(before, f *nodefeature.NodeFeature) {
			if before != nil && before.NodeName() != f.NodeName() {
				n.mark(before.NodeName())
			}
			n.mark(f.NodeName())
		},
		func(f *nodefeature.NodeFeature) {
			n.vanished(f)
			n.mark(f.NodeName())
		},
	)}}
	if n.opt.Policy.Namespaces != nil {
		list = append(list, informer.Registration{Object: Namespace(), Handler: informer.Changes(
			func(before, ns *metav1.PartialObjectMetadata) {
				if before == nil || !maps.Equal(before.Labels, ns.Labels) {
					n.markNamespace(ctx, ns.Name)
				}
			},
			func(ns *metav1.PartialObjectMetadata) { n.markNamespace(ctx, ns.Name) },
		)})
	}
	if n.registered, err = informer.Register(ctx, c, list...); err != nil {
		return err
	}
	features, err := c.GetInformer(ctx, &nodefeature.NodeFeature{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	n.index, err = nodefeature.NewIndex(features, n.opt.Policy.Namespace)
	return err
}

// Describing returns the keys of the cached NodeFeatures that name a Node, in no order.
func (n *Nodes) Describing(node string) ([]client.ObjectKey, error) {
	list, err := n.index.Of(node)
	out := make([]client.ObjectKey, len(list))
	for i, f := range list {
		out[i] = client.ObjectKeyFromObject(f)
	}
	return out, err
}

// sameNode reports whether nothing has changed that inputs depend on.
func sameNode(a, b *corev1.Node) bool {
	return a.UID == b.UID && facts.SameNode(a, b) && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations)
}

// markNamespace marks the nodes that NodeFeatures in a namespace describe.
func (n *Nodes) markNamespace(ctx context.Context, namespace string) {
	var list nodefeature.NodeFeatureList
	if err := n.cached.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return // only before the cache has started; every node is due then anyway
	}
	for i := range list.Items {
		n.mark(list.Items[i].NodeName())
	}
}

// mark makes a node due.
func (n *Nodes) mark(name string) {
	if name == "" {
		return
	}
	n.mu.Lock()
	n.due[name] = time.Time{}
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default: // Run is already awake
	}
}

// sync waits until the cache is filled and every node has been processed, except for nodes that keep failing.
func (n *Nodes) sync(ctx context.Context) error {
	if err := informer.Wait(ctx, n.registered); err != nil {
		return err
	}
	for since := n.opt.Clock.Now(); ; {
		next := n.look(ctx)
		if n.opt.Clock.Since(since) >= patience || ctx.Err() != nil || !n.lacks() {
			return ctx.Err()
		}
		n.wait(ctx, next)
	}
}

// lacks reports whether a node could not be processed yet.
func (n *Nodes) lacks() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.failing) > 0
}

// Synced reports whether every node that existed at the start has been processed.
func (n *Nodes) Synced() bool {
	select {
	case <-n.synced:
		return true
	default:
		return false
	}
}

// Wait waits until Synced.
func (n *Nodes) Wait(ctx context.Context) error {
	select {
	case <-n.synced:
		return nil
	case <-ctx.Done():
		return errors.New("stopped before the nodes were known")
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica maintains the state of nodes.
func (n *Nodes) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable: it processes all nodes and keeps their state up to date until the context ends.
func (n *Nodes) Start(ctx context.Context) error {
	if err := n.sync(ctx); err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // stopped before the cache was filled
		}
		return err
	}
	close(n.synced)
	for ctx.Err() == nil {
		n.wait(ctx, n.look(ctx))
	}
	return nil
}

// wait returns when a node may be due, or after a time; 0: no time limit.
func (n *Nodes) wait(ctx context.Context, most time.Duration) {
	var due <-chan time.Time
	if most > 0 {
		timer := n.opt.Clock.NewTimer(most)
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-n.wake:
		select {
		case <-ctx.Done():
		case <-time.After(together):
		}
	case <-due:
	}
}

// look processes the nodes that are due, and returns when the next one is due; 0: none is.
func (n *Nodes) look(ctx context.Context) (next time.Duration) {
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, name := range n.takeDue() {
		group.Go(func() error {
			next, err := n.refresh(ctx, name)
			if err != nil && ctx.Err() == nil && !errors.Is(err, ErrStale) {
				logf.FromContext(ctx).Error(err, "Cannot read the NodeFeatures of a node", "node", name)
			}
			if wait := n.note(name, err); err != nil {
				next = n.opt.Clock.Now().Add(wait)
			}
			n.postpone(name, next)
			return nil
		})
	}
	_ = group.Wait() // none returns an error
	now := n.opt.Clock.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, at := range n.due {
		if left := max(at.Sub(now), time.Nanosecond); next == 0 || left < next {
			next = left
		}
	}
	return next
}

// note records nodes whose state could not be determined, and returns when to try again; 0: its state is known.
func (n *Nodes) note(name string, err error) (again time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		delete(n.failing, name)
		return 0
	}
	again = min(max(retry, 2*n.failing[name]), retryMost)
	n.failing[name] = again
	return again
}

// takeDue returns the sorted names of due nodes.
func (n *Nodes) takeDue() (names []string) {
	now := n.opt.Clock.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, at := range n.due {
		if !at.After(now) {
			names = append(names, name)
			delete(n.due, name)
		}
	}
	slices.Sort(names)
	return names
}

// postpone makes a node due at a time, unless it is due before; zero: never.
func (n *Nodes) postpone(name string, at time.Time) {
	if at.IsZero() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if before, ok := n.due[name]; !ok || at.Before(before) {
		n.due[name] = at
	}
}

// refresh processes a node, and returns when to do so again.
func (n *Nodes) refresh(ctx context.Context, name string) (next time.Time, err error) {
	var node corev1.Node
	if err := n.cached.Get(ctx, client.ObjectKey{Name: name}, &node, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			n.forget(name)
			return time.Time{}, nil
		}
		return time.Time{}, err
	}
	now := n.opt.Clock.Now() // before the look: a time that passes during it is not missed
	s, err := n.Of(ctx, &node)
	if err != nil {
		return time.Time{}, err
	}
	m := n.memory(&node)
	s.Node, s.LeftOut, s.Own, s.Features = nil, nil, nil, gather.Selection[*nodefeature.NodeFeature]{}
	n.mu.Lock()
	before := m.known
	same := before != nil && sameInput(before.Input, s.Input)
	m.known = &s
	n.mu.Unlock()
	n.notify(Change{Node: name, Input: !same})
	return s.Next(now), nil
}

func sameInput(a, b rules.Input) bool {
	return a.Facts.Same(b.Facts) && a.Worker.Same(b.Worker) && maps.Equal(a.Node.Labels, b.Node.Labels) && maps.Equal(a.Node.Annotations, b.Node.Annotations) &&
		maps.Equal(a.Labels, b.Labels) && slices.EqualFunc(a.Publishers, b.Publishers, samePublisher)
}

func samePublisher(a, b rules.Publisher) bool { return a.Name == b.Name && a.Facts.Same(b.Facts) }

// forget removes a deleted node.
func (n *Nodes) forget(name string) {
	n.mu.Lock()
	_, known := n.nodes[name]
	delete(n.nodes, name)
	n.mu.Unlock()
	n.opt.Devices.Forget(name)
	if known {
		n.notify(Change{Node: name, Input: true})
	}
}

func (n *Nodes) notify(c Change) {
	for _, f := range n.changed {
		f(c)
	}
}

// Get returns the last known state of a node, without the Node and its NodeFeatures: see Node.
func (n *Nodes) Get(name string) (State, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.nodes[name]
	if m == nil || m.known == nil {
		return State{}, false
	}
	return *m.known, true
}

// Node returns a Node of the cache, which the caller must not modify; nil: there is none.
func (n *Nodes) Node(ctx context.Context, name string) *corev1.Node {
	return nodecache.Get(ctx, n.cached, name)
}

// Publishes reports whether features that the worker of a node has published are part of its input.
func (n *Nodes) Publishes(node string) bool {
	s, _ := n.Get(node)
	own := n.opt.Policy.Namespace + "/" + node
	return slices.ContainsFunc(s.Input.Publishers, func(p rules.Publisher) bool { return p.Name == own })
}

// All returns what Get does, of all nodes by name. The caller must not modify it.
func (n *Nodes) All() []*State {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]*State, 0, len(n.nodes))
	for _, m := range n.nodes {
		if m.known != nil {
			out = append(out, m.known)
		}
	}
	slices.SortFunc(out, func(a, b *State) int { return strings.Compare(a.Input.Node.Name, b.Input.Node.Name) })
	return out
}

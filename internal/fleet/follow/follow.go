// Package follow keeps a index.View up to date with a cluster.
package follow

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/facts"
)

// Options say what counts.
type Options struct {
	// Gather says how what rules are given is put together, as of the controller.
	Gather nodefeature.Gather
	// Namespaces chooses the namespaces whose NodeFeatures count besides Assay's own, by their labels; nil: all of them.
	Namespaces labels.Selector
	// Rules are those of the cluster, which pods may ask for what they produce; nil: there are none.
	Rules *assembly.Registry
	// Leases says that publishers keep a Lease of their node's name in Assay's namespace: features count as seen when it was
	// renewed. Those of nodes without one, and all of them otherwise, count as seen as long as the Node is ready.
	Leases bool
	// Grace is how long what a worker has published goes on counting after its object has vanished without its Node, as of the
	// controller, which keeps the labels meanwhile; 0: not at all.
	Grace time.Duration
	// Clock is what that is measured by; nil: the real one.
	Clock clock.Clock
	// OnChange, if set, is called with the name of each node of which something has changed, and without one when it may be
	// any node. It must be quick.
	OnChange func(node string)
}

// Follower feeds a View.
type Follower struct {
	view *index.View
	opt  Options

	mu       sync.Mutex
	started  bool // what is known is complete, so that nodes are worth putting
	nodes    map[string]*corev1.Node
	features map[string]map[types.NamespacedName]*nodefeature.NodeFeature // by node
	of       map[types.NamespacedName]string                              // the node of each
	renewed  map[string]int64                                             // by name of the Lease
	trusted  map[string]bool                                              // namespaces, if only some count
	lost     map[types.NamespacedName]time.Time                           // workers' objects that have vanished and still count, and since when

	dirty chan struct{} // holds an element if the rules may have changed
	loses chan struct{} // holds an element if something has been lost
}

// New returns a Follower that follows nothing yet.
func New(v *index.View, opt Options) *Follower {
	if opt.Clock == nil {
		opt.Clock = clock.RealClock{}
	}
	f := &Follower{
		view: v, opt: opt, nodes: map[string]*corev1.Node{}, features: map[string]map[types.NamespacedName]*nodefeature.NodeFeature{},
		of: map[types.NamespacedName]string{}, renewed: map[string]int64{}, trusted: map[string]bool{},
		lost: map[types.NamespacedName]time.Time{}, dirty: make(chan struct{}, 1), loses: make(chan struct{}, 1),
	}
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

// NeedLeaderElection says that every replica follows.
func (f *Follower) NeedLeaderElection() bool { return false }

// Watches says what is watched; Run needs a cache that can.
func (f *Follower) watches() map[client.Object]toolscache.ResourceEventHandler {
	out := map[client.Object]toolscache.ResourceEventHandler{
		&corev1.Node{}:             On(f.putNode, func(n *corev1.Node) { f.dropNode(n.Name) }),
		&nodefeature.NodeFeature{}: On(f.putFeature, f.dropFeature),
	}
	if f.opt.Leases {
		out[&coordinationv1.Lease{}] = On(f.putLease, f.dropLease)
	}
	if f.opt.Namespaces != nil {
		out[&corev1.Namespace{}] = On(
			func(n *corev1.Namespace) { f.trust(n.Name, f.opt.Namespaces.Matches(labels.Set(n.Labels))) },
			func(n *corev1.Namespace) { f.trust(n.Name, false) },
		)
	}
	return out
}

// On makes a handler of two functions.
func On[T client.Object](put, drop func(T)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { put(o.(T)) },
		UpdateFunc: func(_, o any) { put(o.(T)) },
		DeleteFunc: func(o any) {
			if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if t, ok := o.(T); ok {
				drop(t)
			}
		},
	}
}

// Watch registers handlers and waits until each has seen all that exists.
func Watch(ctx context.Context, c cache.Cache, handlers map[client.Object]toolscache.ResourceEventHandler) error {
	var synced []toolscache.InformerSynced
	for object, handler := range handlers {
		informer, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false)) // NodeFeatures wait for Nodes
		if err != nil {
			return err
		}
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return err
		}
		synced = append(synced, registration.HasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return errors.New("stopped before the caches were filled")
	}
	return nil
}

// Sync follows the cluster through a running cache, and returns once the View is complete. After that Run must be called.
func (f *Follower) Sync(ctx context.Context, c cache.Cache) error {
	if err := Watch(ctx, c, f.watches()); err != nil {
		return err
	}
	if f.opt.Rules != nil {
		if err := f.opt.Rules.Wait(ctx); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started = true
	f.link()
	for name := range f.nodes {
		f.update(name)
	}
	f.view.SetSynced()
	return nil
}

// Run shows the View rules that have changed, and forgets what was lost long enough ago, until the context ends.
func (f *Follower) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		f.wait(ctx, f.expire())
	}
	return nil
}

// wait returns once something may have to be done, and at the latest after a time; 0: any.
func (f *Follower) wait(ctx context.Context, most time.Duration) {
	var due <-chan time.Time
	if most > 0 {
		timer := f.opt.Clock.NewTimer(most)
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
		return
	case <-f.loses:
		return
	case <-due:
		return
	case <-f.dirty:
	}
	select {
	case <-ctx.Done():
		return
	case <-time.After(assembly.Settle):
	}
	f.mu.Lock()
	f.link()
	f.mu.Unlock()
	f.changed("")
}

func (f *Follower) changed(node string) {
	if f.opt.OnChange != nil {
		f.opt.OnChange(node)
	}
}

func (f *Follower) putNode(n *corev1.Node) {
	f.mu.Lock()
	f.nodes[n.Name] = n
	f.update(n.Name)
	f.mu.Unlock()
	f.changed(n.Name)
}

func (f *Follower) dropNode(name string) {
	f.mu.Lock()
	for key := range f.features[name] {
		if _, lost := f.lost[key]; lost { // its Node is gone too
			f.detach(key, name)
		}
	}
	delete(f.nodes, name)
	f.view.Remove(name)
	f.mu.Unlock()
	f.changed(name)
}

func (f *Follower) putFeature(nf *nodefeature.NodeFeature) {
	key := client.ObjectKeyFromObject(nf)
	f.mu.Lock()
	defer f.mu.Unlock()
	if nf.Spec.Features.Err != nil || nf.DeletionTimestamp != nil && len(nf.Finalizers) == 0 {
		f.lose(key)
		return
	}
	name := nf.NodeName()
	if before, ok := f.of[key]; ok && before != name {
		f.detach(key, before)
	}
	if name == "" {
		return
	}
	f.of[key] = name
	if f.features[name] == nil {
		f.features[name] = map[types.NamespacedName]*nodefeature.NodeFeature{}
	}
	f.features[name][key] = nf
	delete(f.lost, key)
	f.update(name)
	f.changed(name)
}

func (f *Follower) dropFeature(nf *nodefeature.NodeFeature) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose(client.ObjectKeyFromObject(nf))
}

// lose forgets a NodeFeature, at once or, if it is the worker's own and its Node exists, after a while: the controller keeps the
// labels that long, and a pod that asks for what they say would not be placed. It needs the lock.
func (f *Follower) lose(key types.NamespacedName) {
	name, ok := f.of[key]
	if !ok {
		return
	}
	if f.opt.Grace <= 0 || f.nodes[name] == nil || !f.opt.Gather.Own(f.features[name][key]) {
		f.detach(key, name)
		f.changed(name)
		return
	}
	if _, already := f.lost[key]; already {
		return
	}
	f.lost[key] = f.opt.Clock.Now()
	select {
	case f.loses <- struct{}{}:
	default: // all that were lost are looked at
	}
}

// expire forgets what was lost long enough ago, and says when to look again; 0: nothing is lost.
func (f *Follower) expire() (again time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, since := range f.lost {
		left := f.opt.Grace - f.opt.Clock.Since(since)
		if left <= 0 {
			name := f.of[key]
			f.detach(key, name)
			f.changed(name)
		} else if again == 0 || left < again {
			again = left
		}
	}
	return again
}

func (f *Follower) detach(key types.NamespacedName, node string) {
	delete(f.of, key)
	delete(f.lost, key)
	delete(f.features[node], key)
	if len(f.features[node]) == 0 {
		delete(f.features, node)
	}
	f.update(node)
}

// trust notes whether the NodeFeatures of a namespace count.
func (f *Follower) trust(namespace string, yes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trusted[namespace] == yes {
		return
	}
	if f.trusted[namespace] = yes; !yes {
		delete(f.trusted, namespace)
	}
	for key, node := range f.of {
		if key.Namespace == namespace {
			f.update(node)
			f.changed(node)
		}
	}
}

func (f *Follower) putLease(l *coordinationv1.Lease) {
	if l.Spec.RenewTime == nil || l.Namespace != f.opt.Gather.Namespace {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewed[l.Name] = l.Spec.RenewTime.Unix()
	if n := f.nodes[l.Name]; n != nil {
		f.view.Seen(l.Name, f.seen(n))
	}
}

// dropLease forgets a Lease, so that a replica that has seen it says the same as one that has not.
func (f *Follower) dropLease(l *coordinationv1.Lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.Namespace != f.opt.Gather.Namespace {
		return
	}
	delete(f.renewed, l.Name)
	if n := f.nodes[l.Name]; n != nil {
		f.view.Seen(l.Name, f.seen(n))
	}
}

// seen is when the features of a node were last known to be true; 0: they are trusted.
func (f *Follower) seen(n *corev1.Node) int64 {
	if at, ok := f.renewed[n.Name]; ok && f.opt.Leases {
		return at
	}
	return index.LastReady(n)
}

// update tells the View what is known of a node. It needs the lock.
func (f *Follower) update(name string) {
	n := f.nodes[name]
	if n == nil || !f.started {
		return
	}
	var list []*nodefeature.NodeFeature
	for _, nf := range f.features[name] {
		if f.opt.Namespaces == nil || nf.Namespace == f.opt.Gather.Namespace || f.trusted[nf.Namespace] {
			list = append(list, nf)
		}
	}
	in := f.opt.Gather.Input(n, list)
	f.view.Put(index.Node{Input: in, Labels: n.Labels, Annotations: n.Annotations, Seen: f.seen(n)})
}

// link shows the View the rules that are in force. It needs the lock.
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

package nodefeature

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
)

// NewInformer constructs informers, see cache.Options of controller-runtime.
type NewInformer func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer

// Informers returns a constructor of informers that apply the budget to NodeFeatures. The budget needs events of Nodes, so the
// cache must also have an informer of Nodes that starts at the same time: the informer of NodeFeatures waits until the Nodes are
// known.
func (b *Budget) Informers(next NewInformer) NewInformer {
	known := make(chan struct{})
	return func(lw cache.ListerWatcher, object runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
		switch object.(type) {
		case *corev1.Node:
			informer := next(lw, object, resync, indexers)
			utilruntime.Must(b.follow(informer, known))
			return informer
		case *NodeFeature:
			informer := next(budgeted{lw, b, known}, object, resync, indexers)
			_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: b.vanished})
			utilruntime.Must(err)
			return informer
		}
		return next(lw, object, resync, indexers)
	}
}

// follow records which Nodes exist.
func (b *Budget) follow(informer cache.SharedIndexInformer, known chan<- struct{}) error {
	name := func(o any) string {
		if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
			return last.Key
		}
		return o.(*corev1.Node).Name
	}
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { b.node(name(o), true) },
		DeleteFunc: func(o any) { b.node(name(o), false) },
	})
	if err != nil {
		return err
	}
	go func() {
		<-handler.HasSyncedChecker().Done()
		close(known)
	}()
	return nil
}

// vanished removes an object that is missing in a list. An object whose deletion was watched is removed immediately.
func (b *Budget) vanished(o any) {
	if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
		if f, ok := last.Obj.(*NodeFeature); ok {
			b.forget(f)
		}
	}
}

// budgeted drops the features of arriving objects that exceed the budget.
type budgeted struct {
	cache.ListerWatcher
	budget *Budget
	nodes  <-chan struct{} // closed once the Nodes are known
}

func (l budgeted) wait(ctx context.Context) error {
	select {
	case <-l.nodes:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ListWithContext returns a list in which objects over the budget have no features.
func (l budgeted) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if err := l.wait(ctx); err != nil {
		return nil, err
	}
	object, err := cache.ToListerWithContext(l.ListerWatcher).ListWithContext(ctx, options)
	if list, ok := object.(*NodeFeatureList); ok && err == nil {
		for i := range list.Items {
			list.Items[i] = *l.budget.admit(&list.Items[i])
		}
	}
	return object, err
}

// WatchWithContext returns a watch in which objects over the budget have no features.
func (l budgeted) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if err := l.wait(ctx); err != nil {
		return nil, err
	}
	from, err := cache.ToWatcherWithContext(l.ListerWatcher).WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	w := &revised{Interface: from, lister: cache.ToListerWithContext(l.ListerWatcher), budget: l.budget, version: options.ResourceVersion,
		events: make(chan watch.Event), stop: make(chan struct{})}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		w.run(ctx)
	}()
	return w, nil
}

// IsWatchListSemanticsUnSupported is the method by which client-go checks for streaming support.
func (l budgeted) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(l.ListerWatcher)
}

// revised is a watch that also sends events for objects that begin or cease to count.
type revised struct {
	watch.Interface
	lister  cache.ListerWithContext
	budget  *Budget
	version string // of the last event from the API server
	events  chan watch.Event
	stop    chan struct{}
	stopped sync.Once
}

// ResultChan implements watch.Interface.
func (w *revised) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *revised) Stop() {
	w.stopped.Do(func() { close(w.stop) })
	w.Interface.Stop()
}

func (w *revised) run(ctx context.Context) {
	defer close(w.events)
	for w.revise(ctx) {
		select {
		case <-w.stop:
			return
		case <-w.budget.wake:
		case e, open := <-w.Interface.ResultChan():
			if !open || !w.pass(e) {
				return
			}
		}
	}
}

// pass forwards an event of the API server.
func (w *revised) pass(e watch.Event) bool {
	if e.Type != watch.Error {
		if m, err := meta.Accessor(e.Object); err == nil {
			w.version = m.GetResourceVersion()
		}
	}
	if f, ok := e.Object.(*NodeFeature); ok {
		switch e.Type {
		case watch.Deleted:
			w.budget.forget(f)
		case watch.Added, watch.Modified:
			if w.budget.stale(f) {
				return true
			}
			e.Object = w.budget.admit(f)
		}
	}
	return w.send(e)
}

func (w *revised) send(events ...watch.Event) bool {
	for _, e := range events {
		select {
		case <-w.stop:
			return false
		case w.events <- e:
		}
	}
	return true
}

// revise processes due objects, beginning with features to drop.
func (w *revised) revise(ctx context.Context) bool {
	for {
		f, again := w.budget.revise()
		if f == nil && again == nil {
			return true
		}
		if again != nil {
			var err error
			if f, err = w.read(ctx, again); err != nil {
				utilruntime.HandleErrorWithContext(ctx, err, "a NodeFeature that counts now cannot be read", "object", again.Publisher())
				w.budget.retry(again)
				return false // the next watch starts a little later
			}
		}
		if f != nil && !w.replace(f) {
			return false
		}
	}
}

// replace sends a deletion and an addition of an object, because informers ignore an update with the same resourceVersion. A
// resumed watch must not start at the version of the object.
func (w *revised) replace(f *NodeFeature) bool {
	events := []watch.Event{{Type: watch.Deleted, Object: f.bare()}, {Type: watch.Added, Object: f}}
	if w.version != "" {
		at := &NodeFeature{ObjectMeta: metav1.ObjectMeta{ResourceVersion: w.version}}
		events = append(events, watch.Event{Type: watch.Bookmark, Object: at})
	}
	return w.send(events...)
}

// readPatience is the timeout of reading an object that begins to count; events wait meanwhile.
const readPatience = 10 * time.Second

// read reads an object that begins to count; nil: it is deleted, or a newer version is known and about to be sent.
func (w *revised) read(ctx context.Context, f *NodeFeature) (*NodeFeature, error) {
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	object, err := w.lister.ListWithContext(ctx, metav1.ListOptions{FieldSelector: fields.Set{
		"metadata.namespace": f.Namespace, "metadata.name": f.Name,
	}.String()})
	if err != nil {
		return nil, err
	}
	list, ok := object.(*NodeFeatureList)
	if !ok || len(list.Items) != 1 || w.budget.stale(&list.Items[0]) {
		return nil, nil
	}
	return w.budget.admit(&list.Items[0]), nil
}

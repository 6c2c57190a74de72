package nodefeature

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	w := &revised{Stream: NewStream(from, options.ResourceVersion), lister: cache.ToListerWithContext(l.ListerWatcher), budget: l.budget}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		w.Run(l.budget.wake, func(bool) bool { return w.revise(ctx) }, w.admit)
	}()
	return w, nil
}

// IsWatchListSemanticsUnSupported is the method by which client-go checks for streaming support.
func (l budgeted) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(l.ListerWatcher)
}

// revised is a watch that also sends events for objects that begin or cease to count.
type revised struct {
	*Stream
	lister cache.ListerWithContext
	budget *Budget
}

// admit returns an object without its features if it is over the budget; nil: a newer version is known.
func (w *revised) admit(event watch.EventType, f *NodeFeature) *NodeFeature {
	switch {
	case event == watch.Deleted:
		w.budget.forget(f)
		return f
	case w.budget.stale(f):
		return nil
	}
	return w.budget.admit(f)
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
		if f != nil && !w.Replace(f.bare(), f) {
			return false
		}
	}
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

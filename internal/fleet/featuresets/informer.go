package featuresets

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/nodefeature"
)

// Informers returns a constructor of informers. The informer of NodeFeatures adds the features of the sets that they name, and that of
// sets has no features: the Store has them, once.
func (s *Store) Informers(next nodefeature.NewInformer) nodefeature.NewInformer {
	return func(lw toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		switch object.(type) {
		case *assayv1alpha1.NodeFeatureSet:
			informer := next(holding{lw, s}, object, resync, indexers)
			utilruntime.Must(s.follow(informer))
			return informer
		case *nodefeature.NodeFeature:
			informer := next(resolving{lw, s}, object, resync, indexers)
			_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: s.vanished})
			utilruntime.Must(err)
			return informer
		}
		return next(lw, object, resync, indexers)
	}
}

// Start says how an informer of sets is started, which must have been constructed with Informers. It is started at the time at which
// the first NodeFeature names a set, or Watch is called: an installation that does not share features needs no permission to read sets.
// Read reads a set that was dropped because of the budget, and that a NodeFeature names again.
func (s *Store) Start(ctx context.Context, inform func() error, read Read) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = read
	s.start = func() {
		if err := inform(); err != nil && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Cannot watch NodeFeatureSets")
		}
	}
	s.want(s.wanted)
}

// Watch watches sets although no NodeFeature names one.
func (s *Store) Watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want(true)
}

// Synced reports whether the sets that exist are known.
func (s *Store) Synced() bool {
	select {
	case <-s.synced:
		return true
	default:
		return false
	}
}

// follow records when the existing sets are known, and removes sets that are missing in a list.
func (s *Store) follow(informer toolscache.SharedIndexInformer) error {
	handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) {
		if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		if set, ok := o.(*assayv1alpha1.NodeFeatureSet); ok {
			s.Remove(set)
		}
	}})
	if err != nil {
		return err
	}
	go func() {
		<-handler.HasSyncedChecker().Done()
		close(s.synced)
		tell(s.changed)
	}()
	return nil
}

// holding is a ListerWatcher of sets that puts their features into the store, and removes them from the objects.
type holding struct {
	toolscache.ListerWatcher
	store *Store
}

// ListWithContext implements ListerWatcher.
func (l holding) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	object, err := toolscache.ToListerWithContext(l.ListerWatcher).ListWithContext(ctx, options)
	if list, ok := object.(*assayv1alpha1.NodeFeatureSetList); ok && err == nil {
		for i := range list.Items {
			l.store.Put(&list.Items[i])
			list.Items[i] = *bare(&list.Items[i])
		}
	}
	return object, err
}

// WatchWithContext implements ListerWatcher.
func (l holding) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	from, err := toolscache.ToWatcherWithContext(l.ListerWatcher).WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	return watch.Filter(from, func(e watch.Event) (watch.Event, bool) {
		set, ok := e.Object.(*assayv1alpha1.NodeFeatureSet)
		if !ok {
			return e, true
		}
		switch e.Type {
		case watch.Added, watch.Modified: // or replaced by another one of the same name
			l.store.Put(set)
		case watch.Deleted:
			l.store.Remove(set)
		}
		e.Object = bare(set)
		return e, true
	}), nil
}

// IsWatchListSemanticsUnSupported is the method by which client-go checks for streaming support.
func (l holding) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(l.ListerWatcher)
}

// vanished removes an object that is missing in a list. An object whose deletion was watched is removed immediately.
func (s *Store) vanished(o any) {
	if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		if f, ok := last.Obj.(*nodefeature.NodeFeature); ok {
			s.forget(f)
		}
	}
}

// resolving is a ListerWatcher of NodeFeatures that adds the features of their sets.
type resolving struct {
	toolscache.ListerWatcher
	store *Store
}

// setsPatience is the maximum time to wait for existing sets when the first NodeFeature names one: after that, NodeFeatures have no
// features until their sets arrive.
const setsPatience = 10 * time.Second

// known waits until existing sets are known if the NodeFeature names any, and reads those that were dropped.
func (s *Store) known(ctx context.Context, f *nodefeature.NodeFeature) {
	f.Spec.FeatureSets, f.Spec.Labels = nodefeature.ShareNames(f.Spec.FeatureSets), nodefeature.ShareLabels(f.Spec.Labels)
	if s.waits(f) {
		s.wait(ctx)
	}
	s.mu.Lock()
	if s.concerns(f) {
		s.claim(f)
	}
	s.mu.Unlock()
	s.reload(ctx)
}

// wait waits until existing sets are known.
func (s *Store) wait(ctx context.Context) {
	timer := time.NewTimer(setsPatience)
	defer timer.Stop()
	select {
	case <-s.synced:
	case <-ctx.Done():
	case <-timer.C:
		s.mu.Lock()
		s.impatient = true // otherwise each NodeFeature would take that long
		s.mu.Unlock()
	}
}

// waits reports whether to wait for existing sets because of a NodeFeature.
func (s *Store) waits(f *nodefeature.NodeFeature) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	needed := s.concerns(f)
	s.want(needed)
	select {
	case <-s.synced:
		return false
	default:
		return needed && s.started && !s.impatient
	}
}

// ListWithContext implements ListerWatcher.
func (l resolving) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	object, err := toolscache.ToListerWithContext(l.ListerWatcher).ListWithContext(ctx, options)
	if list, ok := object.(*nodefeature.NodeFeatureList); ok && err == nil {
		for i := range list.Items {
			published := list.Items[i] // the store keeps it
			l.store.known(ctx, &published)
			list.Items[i] = *l.store.admit(&published)
		}
	}
	return object, err
}

// WatchWithContext implements ListerWatcher.
func (l resolving) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	from, err := toolscache.ToWatcherWithContext(l.ListerWatcher).WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	w := nodefeature.NewStream(from, options.ResourceVersion)
	go w.Run(l.store.wake, func(woken bool) bool { return !woken || l.store.resend(ctx, w) }, func(event watch.EventType, f *nodefeature.NodeFeature) *nodefeature.NodeFeature {
		if event == watch.Deleted {
			return l.store.forget(f)
		}
		l.store.known(ctx, f)
		return l.store.admit(f)
	})
	return w, nil
}

// IsWatchListSemanticsUnSupported is the method by which client-go checks for streaming support.
func (l resolving) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(l.ListerWatcher)
}

// resend sends events for NodeFeatures whose sets have arrived. It returns false if the watch was stopped.
func (s *Store) resend(ctx context.Context, w *nodefeature.Stream) bool {
	s.reload(ctx)
	for _, f := range s.arrived() {
		now := s.admit(f)
		gone := *now // informers modify what they get
		if !w.Replace(&gone, now) {
			s.again(f) // the next watch sends it
			return false
		}
	}
	return true
}

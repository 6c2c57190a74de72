package nodecache

import (
	"time"

	toolscache "k8s.io/client-go/tools/cache"
)

// informer is an informer of Nodes that stores them in the compact form.
type informer struct{ toolscache.SharedIndexInformer }

// SetTransform implements SharedInformer.
func (i informer) SetTransform(transform toolscache.TransformFunc) error {
	return i.SharedIndexInformer.SetTransform(func(object any) (_ any, err error) {
		if transform != nil {
			if object, err = transform(object); err != nil {
				return nil, err
			}
		}
		return pack(object), nil
	})
}

// AddEventHandler implements SharedInformer.
func (i informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(handler{h})
}

// AddEventHandlerWithResyncPeriod implements SharedInformer.
func (i informer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, resync time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(handler{h}, resync)
}

// AddEventHandlerWithOptions implements SharedInformer.
func (i informer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(handler{h}, o)
}

// AddIndexers implements SharedIndexInformer.
func (i informer) AddIndexers(indexers toolscache.Indexers) error {
	return i.SharedIndexInformer.AddIndexers(building(indexers))
}

// GetStore implements SharedInformer.
func (i informer) GetStore() toolscache.Store { return i.GetIndexer() }

// GetIndexer implements SharedIndexInformer.
func (i informer) GetIndexer() toolscache.Indexer { return indexer{i.SharedIndexInformer.GetIndexer()} }

// handler passes complete Nodes to a handler.
type handler struct {
	next toolscache.ResourceEventHandler
}

// OnAdd implements ResourceEventHandler.
func (h handler) OnAdd(object any, initial bool) { h.next.OnAdd(build(object), initial) }

// OnUpdate implements ResourceEventHandler.
func (h handler) OnUpdate(before, after any) { h.next.OnUpdate(build(before), build(after)) }

// OnDelete implements ResourceEventHandler.
func (h handler) OnDelete(object any) { h.next.OnDelete(build(object)) }

// indexer returns complete Nodes.
type indexer struct{ toolscache.Indexer }

// Get implements Store.
func (i indexer) Get(object any) (any, bool, error) {
	found, ok, err := i.Indexer.Get(object)
	return build(found), ok, err
}

// GetByKey implements Store.
func (i indexer) GetByKey(key string) (any, bool, error) {
	found, ok, err := i.Indexer.GetByKey(key)
	return build(found), ok, err
}

// List implements Store.
func (i indexer) List() []any { return buildAll(i.Indexer.List()) }

// Index implements Indexer.
func (i indexer) Index(name string, object any) ([]any, error) {
	found, err := i.Indexer.Index(name, object)
	return buildAll(found), err
}

// ByIndex implements Indexer.
func (i indexer) ByIndex(name, value string) ([]any, error) {
	found, err := i.Indexer.ByIndex(name, value)
	return buildAll(found), err
}

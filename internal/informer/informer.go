// Package informer adds typed event handlers to caches.
package informer

import (
	"context"
	"errors"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Handler returns a handler that calls put for each object that is added or updated, and drop with the last known state of each
// object that is deleted.
func Handler[T client.Object](put, drop func(T)) toolscache.ResourceEventHandler {
	return Changes(func(_, object T) { put(object) }, drop)
}

// Changes is like Handler, but also passes the previous object to put, or the zero value if the object is new.
func Changes[T client.Object](put func(before, object T), drop func(T)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			var none T
			put(none, o.(T))
		},
		UpdateFunc: func(before, o any) { put(before.(T), o.(T)) },
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

// Registration is a handler of one kind of object.
type Registration struct {
	// Object is an object of the kind.
	Object  client.Object
	Handler toolscache.ResourceEventHandler
}

// Register adds handlers to the informers of a cache, which need not be running yet. The functions in synced report whether each
// handler has been called with all objects that existed when its informer started.
func Register(ctx context.Context, c cache.Cache, list ...Registration) (synced []toolscache.InformerSynced, err error) {
	for _, r := range list {
		// Do not wait: NodeFeatures are read after Nodes.
		informer, err := c.GetInformer(ctx, r.Object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, err
		}
		registration, err := informer.AddEventHandler(r.Handler)
		if err != nil {
			return nil, err
		}
		synced = append(synced, registration.HasSynced)
	}
	return synced, nil
}

// Wait waits until all handlers have been called with all objects that existed when their informers started.
func Wait(ctx context.Context, synced []toolscache.InformerSynced) error {
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return errors.New("stopped before the caches were filled")
	}
	return nil
}

// Watch calls Register and Wait.
func Watch(ctx context.Context, c cache.Cache, list ...Registration) error {
	synced, err := Register(ctx, c, list...)
	if err != nil {
		return err
	}
	return Wait(ctx, synced)
}

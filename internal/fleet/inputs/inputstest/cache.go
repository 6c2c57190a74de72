// Package inputstest provides Nodes and NodeFeatures like a manager's cache, for tests that do not test watching.
package inputstest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/internal/nodefeature"
)

// Cache holds objects and calls handlers before Put and Remove return. It is safe for concurrent use.
type Cache struct {
	cache.Cache // other methods are not implemented

	mu       sync.Mutex
	writes   int
	objects  map[string]client.Object // by kind, namespace and name
	features toolscache.Indexer       // the NodeFeatures among them
	handlers map[string][]toolscache.ResourceEventHandler
}

// New returns a Cache with these objects.
func New(objects ...client.Object) *Cache {
	c := &Cache{
		objects: map[string]client.Object{}, features: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{}),
		handlers: map[string][]toolscache.ResourceEventHandler{},
	}
	for _, o := range objects {
		c.Put(o)
	}
	return c
}

func kind(o client.Object) string { return fmt.Sprintf("%T", o) }

func key(o client.Object, at client.ObjectKey) string {
	return kind(o) + " " + at.Namespace + "/" + at.Name
}

// Put adds or replaces an object. An object that replaces another one of the same resourceVersion gets a new one.
func (c *Cache) Put(o client.Object) {
	c.mu.Lock()
	before, known := c.objects[key(o, client.ObjectKeyFromObject(o))]
	if c.writes++; known && o.GetResourceVersion() == before.GetResourceVersion() {
		o.SetResourceVersion(fmt.Sprintf("put-%d", c.writes))
	}
	c.objects[key(o, client.ObjectKeyFromObject(o))] = o
	if f, ok := o.(*nodefeature.NodeFeature); ok {
		utilruntime.Must(c.features.Add(f))
	}
	handlers := c.handlers[kind(o)]
	c.mu.Unlock()
	for _, h := range handlers {
		if known {
			h.OnUpdate(before, o)
		} else {
			h.OnAdd(o, false)
		}
	}
}

// Remove removes an object.
func (c *Cache) Remove(o client.Object) {
	c.mu.Lock()
	delete(c.objects, key(o, client.ObjectKeyFromObject(o)))
	if f, ok := o.(*nodefeature.NodeFeature); ok {
		utilruntime.Must(c.features.Delete(f))
	}
	handlers := c.handlers[kind(o)]
	c.mu.Unlock()
	for _, h := range handlers {
		h.OnDelete(o)
	}
}

// Get implements client.Reader.
func (c *Cache) Get(_ context.Context, at client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch o := c.objects[key(into, at)].(type) {
	case *corev1.Node:
		*into.(*corev1.Node) = *o
	case *nodefeature.NodeFeature:
		*into.(*nodefeature.NodeFeature) = *o
	case *metav1.PartialObjectMetadata:
		*into.(*metav1.PartialObjectMetadata) = *o
	default:
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind(into)}, at.Name)
	}
	return nil
}

// List implements client.Reader for the NodeFeatures of a namespace. They are sorted by namespace and name.
func (c *Cache) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	var opt client.ListOptions
	opt.ApplyOptions(options)
	c.mu.Lock()
	defer c.mu.Unlock()
	list := into.(*nodefeature.NodeFeatureList)
	for _, at := range slices.Sorted(maps.Keys(c.objects)) {
		f, ok := c.objects[at].(*nodefeature.NodeFeature)
		if ok && (opt.Namespace == "" || f.Namespace == opt.Namespace) {
			list.Items = append(list.Items, *f)
		}
	}
	return nil
}

// GetInformer implements cache.Informers.
func (c *Cache) GetInformer(_ context.Context, o client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return &informer{c: c, kind: kind(o)}, nil
}

type informer struct {
	cache.Informer
	c    *Cache
	kind string
}

// AddIndexers implements cache.Informer for NodeFeatures. It keeps existing indexers: tests pass a Cache to one process after another.
func (i *informer) AddIndexers(indexers toolscache.Indexers) error {
	indexers = maps.Clone(indexers)
	maps.DeleteFunc(indexers, func(name string, _ toolscache.IndexFunc) bool { return i.c.features.GetIndexers()[name] != nil })
	return i.c.features.AddIndexers(indexers)
}

// GetIndexer returns the indexer of NodeFeatures.
func (i *informer) GetIndexer() toolscache.Indexer { return i.c.features }

// AddEventHandler implements cache.Informer. The handler is called for existing objects.
func (i *informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.c.mu.Lock()
	i.c.handlers[i.kind] = append(i.c.handlers[i.kind], h)
	var exist []client.Object
	for at, o := range i.c.objects {
		if strings.HasPrefix(at, i.kind+" ") {
			exist = append(exist, o)
		}
	}
	i.c.mu.Unlock()
	for _, o := range exist {
		h.OnAdd(o, true)
	}
	return registration{}, nil
}

type registration struct {
	toolscache.ResourceEventHandlerRegistration
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (registration) HasSynced() bool { return true }

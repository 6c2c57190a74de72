// Package nodecache caches Nodes in a compact form.
//
// A Node has more than a hundred labels of features, which take 10 kB as a map although most of them are the same on all nodes of a kind.
// Informers of this package store them as a stringmap.Map. Handlers and readers get complete Nodes, which are built when they are needed.
package nodecache

import (
	"context"
	"fmt"
	"sync"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/stringmap"
)

// Informers returns a constructor of informers that store Nodes in a compact form. Listing all Nodes builds all of them: see Names.
func Informers(next nodefeature.NewInformer) nodefeature.NewInformer {
	return func(lw toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if _, ok := object.(*corev1.Node); !ok {
			return next(lw, object, resync, indexers)
		}
		return informer{next(lw, object, resync, building(indexers))}
	}
}

// Names returns the names of the Nodes in a cache, without building the Nodes. It waits until the cache is filled.
func Names(ctx context.Context, c cache.Informers) ([]string, error) {
	i, err := indexerOf(ctx, c)
	if err != nil {
		return nil, err
	}
	return i.ListKeys(), nil
}

// NamesBy is like Names for the Nodes with a value of an index, which was added with AddIndexers.
func NamesBy(ctx context.Context, c cache.Informers, index, value string) ([]string, error) {
	i, err := indexerOf(ctx, c)
	if err != nil {
		return nil, err
	}
	return i.IndexKeys(index, value)
}

// Get returns a Node of a cache, which the caller must not modify; nil: there is none.
func Get(ctx context.Context, cached client.Reader, name string) *corev1.Node {
	var node corev1.Node
	if cached.Get(ctx, client.ObjectKey{Name: name}, &node, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	return &node
}

func indexerOf(ctx context.Context, c cache.Informers) (toolscache.Indexer, error) {
	i, err := c.GetInformer(ctx, &corev1.Node{})
	if err != nil {
		return nil, err
	}
	indexed, ok := i.(interface{ GetIndexer() toolscache.Indexer })
	if !ok {
		return nil, fmt.Errorf("cannot list the names of Nodes: %T has no indexer", i)
	}
	return indexed.GetIndexer(), nil
}

// compact is a stored Node. It is immutable except for built.
type compact struct {
	node                corev1.Node // without its labels and annotations
	labels, annotations stringmap.Map

	mu    sync.Mutex
	built weak.Pointer[corev1.Node] // handlers of one event get the same Node
}

// GetObjectMeta implements metav1.ObjectMetaAccessor: client-go reads the key and the version of stored objects.
func (c *compact) GetObjectMeta() metav1.Object { return &c.node.ObjectMeta }

// pack returns the stored form of an object.
func pack(object any) any {
	n, ok := object.(*corev1.Node)
	if !ok {
		return object // it is packed already, or a tombstone
	}
	c := &compact{node: *n, labels: stringmap.Of(n.Labels), annotations: stringmap.Of(n.Annotations)}
	c.node.Labels, c.node.Annotations = nil, nil
	return c
}

// build returns the complete form of a stored object. Readers that do not copy it must not modify it, as in every cache.
func build(object any) any {
	switch o := object.(type) {
	case *compact:
		return o.build()
	case toolscache.DeletedFinalStateUnknown:
		o.Obj = build(o.Obj)
		return o
	}
	return object
}

func (c *compact) build() *corev1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.built.Value(); n != nil {
		return n
	}
	n := c.node
	n.Labels, n.Annotations = c.labels.Strings(), c.annotations.Strings()
	c.built = weak.Make(&n)
	return &n
}

func buildAll(objects []any) []any {
	out := make([]any, len(objects))
	for i := range objects {
		out[i] = build(objects[i])
	}
	return out
}

// building returns indexers of stored objects.
func building(indexers toolscache.Indexers) toolscache.Indexers {
	out := make(toolscache.Indexers, len(indexers))
	for name, index := range indexers {
		out[name] = func(object any) ([]string, error) { return index(build(object)) }
	}
	return out
}

package nodefeature

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// byNode is the name of the index of NodeFeatures by the Node that they describe.
const byNode = "assay.dev/node"

// Index finds the cached NodeFeatures that describe a Node without reading all of them. The objects of workers are found by their
// names: an index of client-go takes 0.7 kB for each object that is the only one of its Node.
type Index struct {
	namespace string // Assay's own
	objects   toolscache.Indexer
}

// NewIndex adds an Index to a cache, which need not be running yet. A cache can have one. Namespace is Assay's own.
func NewIndex(ctx context.Context, c cache.Informers, namespace string) (Index, error) {
	informer, err := c.GetInformer(ctx, &NodeFeature{}, cache.BlockUntilSynced(false))
	if err != nil {
		return Index{}, err
	}
	indexed, ok := informer.(interface{ GetIndexer() toolscache.Indexer })
	if !ok {
		return Index{}, fmt.Errorf("cannot find the NodeFeatures of a Node: %T has no indexer", informer)
	}
	x := Index{namespace, indexed.GetIndexer()}
	return x, informer.AddIndexers(toolscache.Indexers{byNode: func(object any) ([]string, error) {
		if f := object.(*NodeFeature); f.NodeName() != "" && !f.ownOf(namespace) {
			return []string{f.NodeName()}, nil
		}
		return nil, nil
	}})
}

// Of returns the NodeFeatures that describe a Node, in no order. They must not be modified.
func (x Index) Of(node string) ([]*NodeFeature, error) {
	var out []*NodeFeature
	object, ok, err := x.objects.GetByKey(client.ObjectKey{Namespace: x.namespace, Name: node}.String())
	if err != nil {
		return nil, err
	}
	if own, is := object.(*NodeFeature); ok && is && own.ownOf(x.namespace) {
		out = append(out, own)
	}
	others, err := x.objects.ByIndex(byNode, node)
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		out = append(out, other.(*NodeFeature))
	}
	return out, nil
}

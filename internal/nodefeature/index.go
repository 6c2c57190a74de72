package nodefeature

import (
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// byNode is the name of the index of NodeFeatures by the Node that they describe.
const byNode = "assay.dev/node"

// Index finds the cached NodeFeatures that describe a Node without reading all of them. The objects of workers are found by their
// names: an index of client-go takes 0.7 kB for each object that is the only one of its Node.
type Index struct {
	namespace string // Assay's own
	objects   cache.Indexer
}

// NewIndex adds an Index to the informer of NodeFeatures, which need not be running yet. An informer can have one. Namespace is Assay's own.
func NewIndex(informer any, namespace string) (Index, error) {
	indexed, ok := informer.(interface {
		GetIndexer() cache.Indexer
		AddIndexers(cache.Indexers) error
	})
	if !ok {
		return Index{}, fmt.Errorf("cannot find the NodeFeatures of a Node: %T has no indexer", informer)
	}
	x := Index{namespace, indexed.GetIndexer()}
	return x, indexed.AddIndexers(cache.Indexers{byNode: func(object any) ([]string, error) {
		if f := object.(*NodeFeature); f.NodeName() != "" && !f.ownOf(namespace) {
			return []string{f.NodeName()}, nil
		}
		return nil, nil
	}})
}

// Of returns the NodeFeatures that describe a Node, in no order. They must not be modified.
func (x Index) Of(node string) ([]*NodeFeature, error) {
	var out []*NodeFeature
	object, ok, err := x.objects.GetByKey(cache.NewObjectName(x.namespace, node).String())
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

package inputs

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/gather"
)

// LeftOut is a NodeFeature that does not count because of an error or a limit.
type LeftOut struct {
	Object *nodefeature.NodeFeature
	// Err is the reason: its features cannot be read, or there are too many. See nodefeature.Features.
	Err error
}

// list returns the cached NodeFeatures that count for a node, in merge order, and those that are ignored because of an error or a
// limit.
func (n *Nodes) list(ctx context.Context, node *corev1.Node) (out gather.Selection[*nodefeature.NodeFeature], left []LeftOut, err error) {
	all, err := n.index.Of(node.Name)
	if err != nil {
		return out, nil, err
	}
	for i, f := range all {
		all[i] = n.replaced(f)
	}
	out, err = gather.Select(n.opt.Policy, gather.Stored(node), n.namespaces(ctx), all)
	for _, f := range out.Left() {
		left = append(left, LeftOut{f, f.Spec.Features.Err})
	}
	return out, left, err
}

// counts reports whether a NodeFeature that names the Node counts for it, according to the API server: a cache that lacks a namespace is no
// evidence that its NodeFeatures do not count.
func (n *Nodes) counts(ctx context.Context, f gather.Published, node *corev1.Node) (bool, error) {
	why, err := n.opt.Policy.Ignores(f, gather.Stored(node), labelsOf(ctx, n.opt.Live))
	return why == "", err
}

// namespaces returns a function that reads the labels of namespaces from the cache.
func (n *Nodes) namespaces(ctx context.Context) gather.Namespaces { return labelsOf(ctx, n.cached) }

func labelsOf(ctx context.Context, from client.Reader) gather.Namespaces {
	return func(name string) (map[string]string, bool, error) {
		ns := Namespace()
		err := from.Get(ctx, client.ObjectKey{Name: name}, ns)
		return ns.Labels, err == nil, client.IgnoreNotFound(err)
	}
}

// Namespace returns an empty Namespace object for which only metadata is read and cached.
func Namespace() *metav1.PartialObjectMetadata {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return ns
}

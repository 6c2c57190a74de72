package inputs

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/internal/nodefeature"
)

// LeftOut is a NodeFeature that does not count because of an error or a limit.
type LeftOut struct {
	Object *nodefeature.NodeFeature
	// Err is the reason: its features cannot be read, or there are too many. See nodefeature.Features.
	Err error
}

// list returns the cached NodeFeatures that count for a node, in merge order, and those that are ignored because of an error or a
// limit.
func (n *Nodes) list(ctx context.Context, node *corev1.Node) (out []*nodefeature.NodeFeature, left []LeftOut, err error) {
	all, err := n.index.Of(node.Name)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range all {
		if f.DeletionTimestamp != nil || !n.opt.Merge.Counts(f, node) {
			continue
		}
		if err := f.Spec.Features.Err; err != nil {
			left = append(left, LeftOut{f, err})
			continue
		}
		ok, err := n.trusted(ctx, f.Namespace)
		if err != nil {
			return nil, nil, err
		}
		if ok {
			out = append(out, f)
		}
	}
	n.opt.Merge.Sort(out)
	return out, left, nil
}

// trusted reports whether the NodeFeatures in a namespace count.
func (n *Nodes) trusted(ctx context.Context, namespace string) (bool, error) {
	if n.opt.Namespaces == nil || namespace == n.opt.Merge.Namespace {
		return true, nil
	}
	ns := Namespace()
	if err := n.cached.Get(ctx, client.ObjectKey{Name: namespace}, ns); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return n.opt.Namespaces.Matches(labels.Set(ns.Labels)), nil
}

// Namespace returns an empty Namespace object for which only metadata is read and cached.
func Namespace() *metav1.PartialObjectMetadata {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return ns
}

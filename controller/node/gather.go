package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/internal/nodefeature"
)

// Sources says which NodeFeatures count.
type Sources struct {
	// Namespace is the manager's and the worker's own.
	Namespace string
	// Namespaces chooses the namespaces whose NodeFeatures count by their labels; nil: all of them.
	Namespaces labels.Selector
	// IgnoreLabels leaves out spec.labels of all but the worker's own objects.
	IgnoreLabels bool
}

// list returns the NodeFeatures that count for a node, in the order of their merging, and the keys of those that would if they could
// be read, or if there were not too many.
func (r *Reconciler) list(ctx context.Context, node *corev1.Node) (out []*nodefeature.NodeFeature, left []client.ObjectKey, err error) {
	var list nodefeature.NodeFeatureList
	err = r.client.List(ctx, &list, client.MatchingFields{nodefeature.ByNode: node.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, nil, err
	}
	over, why := 0, error(nil)
	out = make([]*nodefeature.NodeFeature, 0, len(list.Items))
	for i := range list.Items {
		f := &list.Items[i]
		if f.DeletionTimestamp != nil || !r.merge.Counts(f, node) {
			continue
		}
		if err := f.Spec.Features.Err; err != nil {
			left = append(left, client.ObjectKeyFromObject(f))
			if f.Spec.Features.Over() {
				over++
				why = err
				continue
			}
			logf.FromContext(ctx).Error(err, "a NodeFeature cannot be read and is left out", "object", f.Publisher())
			continue
		}
		ok, err := r.trusted(ctx, f.Namespace)
		if err != nil {
			return nil, nil, err
		}
		if ok {
			out = append(out, f)
		}
	}
	if over > 0 {
		logf.FromContext(ctx).Info("NodeFeatures are left out", "number", over, "reason", why.Error())
		r.events.Eventf(node, corev1.EventTypeWarning, "TooManyNodeFeatures", "%d are left out: %v", over, why)
	}
	r.merge.Sort(out)
	return out, left, nil
}

// trusted reports whether a namespace is one whose NodeFeatures count.
func (r *Reconciler) trusted(ctx context.Context, namespace string) (bool, error) {
	if r.sources.Namespaces == nil || namespace == r.sources.Namespace {
		return true, nil
	}
	ns := namespaceMetadata()
	if err := r.client.Get(ctx, client.ObjectKey{Name: namespace}, ns); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return r.sources.Namespaces.Matches(labels.Set(ns.Labels)), nil
}

// namespaceMetadata is a Namespace of which only the metadata is read and cached.
func namespaceMetadata() *metav1.PartialObjectMetadata {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return ns
}

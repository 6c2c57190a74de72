package follow

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/internal/informer"
)

// Requirements keeps the requirements of pods up to date through a running cache, and returns once all existing objects are known.
func Requirements(ctx context.Context, c cache.Cache, a *podrequirements.Resolver) error {
	return informer.Watch(ctx, c,
		informer.Registration{Object: &assayv1alpha1.NodeFeatureRequest{}, Handler: informer.Handler(
			a.PutRequest,
			func(r *assayv1alpha1.NodeFeatureRequest) { a.RemoveRequest(r.Namespace, r.Name) },
		)},
		informer.Registration{Object: &assayv1alpha1.NodeFeatureSchedulingPolicy{}, Handler: informer.Handler(
			a.PutPolicy,
			func(p *assayv1alpha1.NodeFeatureSchedulingPolicy) { a.RemovePolicy(p.Name) },
		)},
		informer.Registration{Object: inputs.Namespace(), Handler: informer.Handler(
			func(n *metav1.PartialObjectMetadata) { a.PutNamespace(n.Name, orEmpty(n.Labels)) },
			func(n *metav1.PartialObjectMetadata) { a.PutNamespace(n.Name, nil) },
		)},
	)
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

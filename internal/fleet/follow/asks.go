package follow

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
)

// Asks keeps what pods ask for up to date through a running cache, and returns once it knows everything that exists.
func Asks(ctx context.Context, c cache.Cache, a *podrequirements.Asks) error {
	return Watch(ctx, c, map[client.Object]toolscache.ResourceEventHandler{
		&assayv1alpha1.NodeFeatureRequest{}: On(a.PutRequest, func(r *assayv1alpha1.NodeFeatureRequest) {
			a.RemoveRequest(r.Namespace, r.Name)
		}),
		&assayv1alpha1.NodeFeatureSchedulingPolicy{}: On(a.PutPolicy, func(p *assayv1alpha1.NodeFeatureSchedulingPolicy) {
			a.RemovePolicy(p.Name)
		}),
		&corev1.Namespace{}: On(
			func(n *corev1.Namespace) { a.PutNamespace(n.Name, orEmpty(n.Labels)) },
			func(n *corev1.Namespace) { a.PutNamespace(n.Name, nil) },
		),
	})
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

package compile

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// source looks things up for the assembly. Secrets and ConfigMaps it reads from the API server: only their metadata are
// cached, since most of them are none of Assay's business.
type source struct {
	cached, live client.Reader
	namespace    string
}

// Template implements assembly.Source.
func (s source) Template(ctx context.Context, name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
	var t assayv1alpha1.NodeFeatureRuleTemplate
	err := s.cached.Get(ctx, client.ObjectKey{Name: name}, &t, client.UnsafeDisableDeepCopy)
	if missing := err; apierrors.IsNotFound(err) { // a cache may lack one that exists
		err = s.live.Get(ctx, client.ObjectKey{Name: name}, &t)
		if apierrors.IsForbidden(err) {
			err = missing // the extender may list templates and not get them; it writes nothing and trusts its cache
		}
	}
	if err != nil {
		return nil, err
	}
	return &t.Spec, nil
}

// Secret implements assembly.Source.
func (s source) Secret(ctx context.Context, name string) (*corev1.Secret, error) {
	out := &corev1.Secret{}
	return out, s.live.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, out)
}

// ConfigMap implements assembly.Source.
func (s source) ConfigMap(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	out := &corev1.ConfigMap{}
	return out, s.live.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, out)
}

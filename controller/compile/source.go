package compile

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/definition/follow"
)

// source reads referenced objects for assembly. It reads Secrets and ConfigMaps from the API server: the cache holds only their
// metadata, since Assay does not need most of them.
type source struct {
	cached, live client.Reader
	namespace    string
	definitions  *follow.Definitions
	templates    *sync.Map // name -> template, as it was read last while its definition was whole
}

// template is what was accepted of a template.
type template struct {
	uid types.UID
	assembly.Accepted
}

// Template implements assembly.Source.
func (s source) Template(ctx context.Context, name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
	if d := s.definitions.Of(definition.Templates); !d.Trusted() {
		return nil, assembly.ErrDistrust(d.State)
	}
	var t assayv1alpha1.NodeFeatureRuleTemplate
	err := s.cached.Get(ctx, client.ObjectKey{Name: name}, &t, client.UnsafeDisableDeepCopy)
	if missing := err; apierrors.IsNotFound(err) { // the cache can lack one that exists
		err = s.live.Get(ctx, client.ObjectKey{Name: name}, &t)
		if apierrors.IsForbidden(err) {
			err = missing // the extender can list but not get templates; it writes nothing and relies on its cache
		}
	}
	if err != nil {
		return nil, err
	}
	now := template{t.UID, assembly.Accepted{Generation: t.Generation, Print: assembly.Print(&t.Spec)}}
	if was, known := s.templates.Load(name); known && was.(template).uid == now.uid && was.(template).Generation == now.Generation && was != now {
		return nil, assembly.ErrDropped(name)
	}
	s.templates.Store(name, now)
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

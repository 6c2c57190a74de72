package compile

import (
	"context"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/definition/follow"
	"github.com/assay-project/assay/rules/baseline"
	"github.com/assay-project/assay/rules/requirements"
)

// trusts reports whether objects of a kind are what their users wrote.
func (r *Rules) trusts(kind string) bool {
	d := r.definitions.Of(kind)
	return d.Trusted()
}

// KindOf returns the name of the definition of the object whose rules have a name.
func KindOf(name string) string {
	if _, _, ok := requirements.RequestOf(name); ok {
		return definition.Requests
	}
	if _, ok := baseline.Of(name); ok {
		return definition.Baselines
	}
	return definition.Rules
}

// compare reads an object from the API server that has lost fields in the cache: no event reports that they are there again once the
// definition is whole.
func (r *Rules) compare(ctx context.Context, name string, cached *assembly.Object) (*assembly.Object, error) {
	var obj nfdv1alpha1.NodeFeatureRule
	switch err := r.live.Get(ctx, client.ObjectKey{Name: name}, &obj); {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		return cached, nil // an event reports its deletion; the extender may only list rules
	case err != nil:
		return nil, err
	}
	live, err := r.assemble(ctx, r.assembler, &obj)
	if err != nil || live.Lost != nil {
		return live, err
	}
	r.note(name, true)
	return live, nil
}

// confirm returns an error if what is about to be accepted of an object may lack fields, because the definition of its kind has just become
// another one. At the start, the definitions have just been read.
func (r *Rules) confirm(ctx context.Context, name string, next *assembly.Object) error {
	if next == nil || next.Lost != nil || !r.started {
		return nil //nolint:nilerr // what has lost fields is not accepted
	}
	if last := r.Object(name); last != nil && last.UID == next.UID && last.Generation == next.Generation {
		return nil
	}
	kind := KindOf(name)
	same, err := r.definitions.Confirm(ctx, kind)
	if err == nil && !same {
		err = fmt.Errorf("definition %s has changed since %s was read; retrying", kind, name)
	}
	return err
}

// gone returns the state of an object that does not exist: nil, or what is left of one that was deleted with its definition, whose rules stay
// active until the definition is whole again and its objects were listed. It is called with the lock held.
func (r *Rules) gone(ctx context.Context, name string) (*assembly.Object, error) {
	last := r.Object(name)
	if last == nil {
		return nil, nil
	}
	kind := KindOf(name)
	vanished, err := r.definitions.Vanished(ctx, kind, last.Definition)
	if err != nil {
		return nil, err
	}
	if !vanished {
		return nil, nil
	}
	r.vanished.Store(name, last.UID)
	if r.trusts(kind) && r.definitions.Of(kind).UID != last.Definition {
		return nil, nil // the objects of the new definition were listed, and it is not among them
	}
	if last.Lost == nil {
		logf.FromContext(ctx).Info("An object was deleted with its definition; its rules stay active", "object", name)
	}
	return last.Vanish(), nil
}

// Vanished reports whether the object with a name and UID, which does not exist, was deleted with its definition.
func (r *Rules) Vanished(name, uid string) bool {
	gone, ok := r.vanished.Load(name)
	return ok && string(gone.(types.UID)) == uid
}

// Suspended reports whether the rules of an object are unknown because of a definition.
func (r *Rules) Suspended() (found bool) {
	r.objects.Range(func(_, o any) bool {
		found = o.(*assembly.Object).Suspended()
		return !found
	})
	return found
}

// Accepted returns what was accepted of each NodeFeatureRule, by UID.
func (r *Rules) Accepted() map[types.UID]assembly.Accepted {
	out := map[types.UID]assembly.Accepted{}
	r.objects.Range(func(name, o any) bool {
		if o := o.(*assembly.Object); KindOf(name.(string)) == definition.Rules {
			out[o.UID] = o.Accepted
		}
		return true
	})
	return out
}

// orderedCache starts the manager's cache after the definitions of the kinds were read. It stores nothing itself. An object that was listed
// before could lack fields that the definition has again when it is read.
type orderedCache struct {
	cache.Cache

	before func(ctx context.Context) // reads the definitions; set by Add
}

// NewCache returns the cache that Add needs, as manager.Options.NewCache.
func NewCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	c, err := cache.New(config, options)
	return &orderedCache{Cache: c}, err
}

// Start implements manager.Runnable.
func (c *orderedCache) Start(ctx context.Context) error {
	if c.before != nil {
		c.before(ctx)
	}
	return c.Cache.Start(ctx)
}

// states is shared by the managers of this process, which may run one after the other.
var states = sync.OnceValue(func() *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "assay_definition_state",
		Help: "1 for the state of the definition of each kind: whole, older, foreign, absent or unknown.",
	}, []string{"definition", "state"})
	ctrlmetrics.Registry.MustRegister(g)
	return g
})

func report(c follow.Change) {
	states().DeleteLabelValues(c.Name, string(c.Was.State))
	states().WithLabelValues(c.Name, string(c.Now.State)).Set(1)
}

// load reads the definitions again, which may have changed while the caches listed objects, and what an earlier process accepted.
func (s *start) load(ctx context.Context) error {
	if err := s.rules.definitions.Load(ctx); err != nil {
		return err
	}
	m := &corev1.ConfigMap{}
	err := s.rules.live.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: s.keptName}, m)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return fmt.Errorf("read what was accepted: %w", err)
	}
	for name, d := range s.rules.definitions.All() {
		report(follow.Change{Name: name, Was: d, Now: d})
	}
	s.rules.past = assembly.DecodeAccepted(m.Data[assembly.AcceptedKey])
	close(s.rules.loaded)
	return nil
}

// followDefinitions follows the definitions until the context ends, and assembles all objects again after one of the kinds that are
// compiled has changed. The objects in the cache may differ although no event reported that.
func (s *start) followDefinitions(ctx context.Context) error {
	changed := make(chan follow.Change, 1)
	s.rules.definitions.OnChange(func(c follow.Change) {
		report(c)
		logf.FromContext(ctx).Info("A definition has changed", "definition", c.Name, "state", c.Now.State, "missing", c.Now.Missing)
		select {
		case changed <- c:
		default: // all are assembled anyway
		}
	})
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-changed:
				s.assembleAll(ctx)
				s.rules.registry.Touch()
			}
		}
	}()
	return s.rules.definitions.Start(ctx)
}

package rule

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/schema"
)

// start compiles every object once before the registry is ready. Nodes that were evaluated with half of the rules would lose
// what the other half gives them.
type start struct {
	compiler *compiler
	cache    cache.Cache
	schema   *schema.Watch // nil: the definition is not looked at
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: standbys compile too.
func (*start) NeedLeaderElection() bool { return false }

// retryStart is how soon it is tried again to read what rules refer to.
const retryStart = time.Second

// Start implements manager.Runnable.
func (s *start) Start(ctx context.Context) error {
	if !s.cache.WaitForCacheSync(ctx) {
		return errors.New("stopped before the caches were filled")
	}
	if s.schema != nil {
		s.schema.Look(ctx)
	}
	s.compileAll(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // to be stopped is no mistake
	}
	s.compiler.registry.Ready()
	logf.FromContext(ctx).Info("rules are ready")
	if s.schema != nil {
		return s.schema.Start(ctx)
	}
	<-ctx.Done()
	return nil
}

// compileAll compiles every object there is.
func (s *start) compileAll(ctx context.Context) {
	var list nfdv1alpha1.NodeFeatureRuleList
	if err := s.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		logf.FromContext(ctx).Error(err, "list the rules") // the cache has been filled before
		return
	}
	for i := range list.Items {
		s.compile(ctx, list.Items[i].Name)
	}
}

// compile tries until it is known what the object is: as long as the API server does not answer, nothing is decided.
func (s *start) compile(ctx context.Context, name string) {
	for ctx.Err() == nil {
		err := s.compiler.refresh(ctx, name)
		if err == nil {
			return
		}
		logf.FromContext(ctx).Error(err, "compile", "object", name)
		select {
		case <-ctx.Done():
		case <-time.After(retryStart):
		}
	}
}

// statusDelay is how long reports of nodes are gathered before the status of an object is written: one write a second and
// object is as much as anybody can read.
const statusDelay = time.Second

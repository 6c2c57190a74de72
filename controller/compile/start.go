package compile

import (
	"context"
	"errors"
	"slices"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/assembly/schema"
)

// start assembles every object once before the registry is ready. Nodes that were evaluated with half of the rules would lose
// what the other half gives them.
type start struct {
	rules  *Rules
	cache  cache.Cache
	schema *schema.Watch
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: standbys do it too.
func (*start) NeedLeaderElection() bool { return false }

// retryStart is how soon it is tried again to read what rules refer to.
const retryStart = time.Second

// Start implements manager.Runnable.
func (s *start) Start(ctx context.Context) error {
	if !s.cache.WaitForCacheSync(ctx) {
		return errors.New("stopped before the caches were filled")
	}
	if err := s.hearOfRemovals(ctx); err != nil {
		return err
	}
	s.schema.Look(ctx)
	s.assembleAll(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // to be stopped is no mistake
	}
	s.rules.registry.Ready()
	logf.FromContext(ctx).Info("rules are ready")
	return s.schema.Start(ctx)
}

// hearOfRemovals takes out objects that are deleted. The controller does so too, but begins to listen some time after the caches
// are filled, and would never hear of one that was deleted between that and the list that everything begins with.
func (s *start) hearOfRemovals(ctx context.Context) error {
	informer, err := s.cache.GetInformer(ctx, &nfdv1alpha1.NodeFeatureRule{})
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		if name, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil { // without a namespace it is the name
			s.assemble(ctx, name)
		}
	}})
	return err
}

// assembleAll assembles every object there is.
func (s *start) assembleAll(ctx context.Context) {
	var list nfdv1alpha1.NodeFeatureRuleList
	if err := s.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		logf.FromContext(ctx).Error(err, "list the rules") // the cache has been filled before
		return
	}
	// The oldest first, so that what does not fit beside them is not compiled.
	slices.SortStableFunc(list.Items, func(a, b nfdv1alpha1.NodeFeatureRule) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	for i := range list.Items {
		s.assemble(ctx, list.Items[i].Name)
	}
}

// assemble tries until it is known what the object is: as long as the API server does not answer, nothing is decided.
func (s *start) assemble(ctx context.Context, name string) {
	for ctx.Err() == nil {
		err := s.rules.refresh(ctx, name)
		if err == nil {
			return
		}
		logf.FromContext(ctx).Error(err, "assemble", "object", name)
		select {
		case <-ctx.Done():
		case <-time.After(retryStart):
		}
	}
}

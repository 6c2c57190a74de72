package rule

import (
	"context"
	"errors"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// start compiles every object once before the registry is ready. Nodes that were evaluated with half of the rules would lose
// what the other half gives them.
type start struct {
	reconciler *Reconciler
	cache      cache.Cache
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: standbys compile too.
func (*start) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (s *start) Start(ctx context.Context) error {
	if !s.cache.WaitForCacheSync(ctx) {
		return errors.New("stopped before the caches were filled")
	}
	var list nfdv1alpha1.NodeFeatureRuleList
	if err := s.cache.List(ctx, &list); err != nil {
		return err
	}
	for i := range list.Items {
		s.reconciler.compile(ctx, &list.Items[i])
	}
	s.reconciler.registry.Ready()
	logf.FromContext(ctx).Info("rules are ready", "objects", len(list.Items))
	<-ctx.Done()
	return nil
}

// statusDelay is how long reports of nodes are gathered before the status of an object is written: one write a second and
// object is as much as anybody can read.
const statusDelay = time.Second

// reports remember the compiled state of objects between the two reconcilers.
type reports struct {
	mu     sync.Mutex
	byName map[string]*compiled
}

func newReports() *reports { return &reports{byName: map[string]*compiled{}} }

func (d *reports) put(name string, c *compiled) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c == nil {
		delete(d.byName, name)
		return
	}
	d.byName[name] = c
}

func (d *reports) get(name string) *compiled {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.byName[name]
}

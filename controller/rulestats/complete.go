package rulestats

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/assay-project/assay/internal/fleet/nodecache"
)

// maxCounting is how long Complete waits for nodes that have not reported, so that one hanging node does not block all status.
const maxCounting = time.Minute

// completeness tracks whether all nodes have reported once since this process became the leader.
type completeness struct {
	mu    sync.Mutex
	since time.Time // of the first call of Complete
	done  bool
}

// Complete reports whether every Node has been evaluated once since this process became the leader. Until then, counts are lower
// than those in the status.
func (t *Stats) Complete(ctx context.Context, nodes cache.Informers) bool {
	c := &t.complete
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return true
	}
	if c.since.IsZero() {
		c.since = time.Now()
	}
	names, err := nodecache.Names(ctx, nodes)
	if err != nil {
		return false
	}
	c.done = t.Nodes() >= len(names) || time.Since(c.since) > maxCounting
	return c.done
}

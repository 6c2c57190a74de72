package rulestats

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
func (t *Stats) Complete(ctx context.Context, nodes client.Reader) bool {
	c := &t.complete
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return true
	}
	if c.since.IsZero() {
		c.since = time.Now()
	}
	var list corev1.NodeList
	if err := nodes.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return false
	}
	c.done = t.Nodes() >= len(list.Items) || time.Since(c.since) > maxCounting
	return c.done
}

package rulestats

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxCounting is how long a census waits for nodes that have not reported: one node that hangs must not silence everything.
const maxCounting = time.Minute

// Census knows whether all nodes have been looked at once since this process began to lead. Until then counts are on their
// way up to what a status says already. It is safe for concurrent use.
type Census struct {
	tally *Tally
	mu    sync.Mutex
	since time.Time // when it was first asked
	done  bool
}

// NewCensus returns a census of the nodes that report to a tally.
func NewCensus(t *Tally) *Census { return &Census{tally: t} }

// Complete reports whether every Node has been looked at once.
func (c *Census) Complete(ctx context.Context, nodes client.Reader) bool {
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
	c.done = c.tally.Nodes() >= len(list.Items) || time.Since(c.since) > maxCounting
	return c.done
}

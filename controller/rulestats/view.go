package rulestats

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/rules"
)

// View is what the rules were last given of each node, for others who ask questions about nodes. It is safe for concurrent
// use.
type View struct {
	mu      sync.Mutex
	nodes   map[string]rules.Input
	changed func()
}

// NewView returns an empty view that calls changed, outside of any lock, whenever a node has other features or is gone.
func NewView(changed func()) *View {
	return &View{nodes: map[string]rules.Input{}, changed: changed}
}

// Put shows a node.
func (v *View) Put(in rules.Input) {
	v.mu.Lock()
	old, known := v.nodes[in.Node.Name]
	same := known && old.Facts.Same(in.Facts)
	if same {
		in.Facts = old.Facts // others hold on to it already
	}
	v.nodes[in.Node.Name] = in
	v.mu.Unlock()
	if !same || !maps.Equal(old.Node.Labels, in.Node.Labels) {
		v.changed()
	}
}

// Forget drops a node.
func (v *View) Forget(node string) {
	v.mu.Lock()
	_, known := v.nodes[node]
	delete(v.nodes, node)
	v.mu.Unlock()
	if known {
		v.changed()
	}
}

// Nodes returns all nodes by name.
func (v *View) Nodes() []rules.Input {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make([]rules.Input, 0, len(v.nodes))
	for _, name := range slices.Sorted(maps.Keys(v.nodes)) {
		out = append(out, v.nodes[name])
	}
	return out
}

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

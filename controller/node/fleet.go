package node

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/controller/node/decide"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/nodecache"
)

// fleet is all Nodes of the cluster, as the cache has them. It is safe for concurrent use.
type fleet struct {
	cache  cache.Informers
	client client.Reader
	clock  clock.PassiveClock

	mu    sync.Mutex
	nodes int                // number of Nodes
	at    time.Time          // when they were counted
	have  map[string]counted // number of nodes that have some features
}

// counted is a number, and when it was counted.
type counted struct {
	nodes int
	at    time.Time
}

// countAge is how long a count of Nodes is used for the budget: counting lists their names, and each label that changes needs it.
const countAge = time.Second

// size returns the number of Nodes in the cluster not long ago, to compute the share that can lose keys.
func (f *fleet) size(ctx context.Context) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.clock.Now(); f.nodes == 0 || now.Sub(f.at) >= countAge {
		f.nodes, f.at = f.count(ctx), now
	}
	return f.nodes
}

// having returns the number of nodes, not long ago, of which all these features are known; without features, that of all nodes.
func (f *fleet) having(ctx context.Context, nodes *inputs.Nodes, features []string) int {
	if len(features) == 0 {
		return f.size(ctx)
	}
	features = slices.Compact(slices.Sorted(slices.Values(features)))
	f.mu.Lock()
	defer f.mu.Unlock()
	id, now := strings.Join(features, " "), f.clock.Now()
	last, known := f.have[id]
	if !known || now.Sub(last.at) >= countAge {
		last = counted{at: now}
		for _, s := range nodes.All() {
			if !slices.ContainsFunc(features, func(name string) bool { return s.Input.Facts.Feature(name) == nil }) {
				last.nodes++
			}
		}
		if f.have == nil || len(f.have) >= maxCounts {
			f.have = map[string]counted{}
		}
		f.have[id] = last
	}
	return last.nodes
}

// maxCounts is the maximum number of sets of features whose nodes are counted at a time: rules can come and go.
const maxCounts = 64

// count returns the number of Nodes in the cluster.
func (f *fleet) count(ctx context.Context) int { return len(f.names(ctx)) }

// names returns the names of all Nodes; none before the cache has started, after which every node is reconciled anyway.
func (f *fleet) names(ctx context.Context) []string {
	names, err := nodecache.Names(ctx, f.cache)
	if err != nil {
		return nil
	}
	return names
}

// requests returns a request for each Node.
func (f *fleet) requests(ctx context.Context) []reconcile.Request {
	names := f.names(ctx)
	out := make([]reconcile.Request, len(names))
	for i, name := range names {
		out[i].Name = name
	}
	return out
}

// evicted returns the nodes with taints that are added at the pace of evictions.
func (f *fleet) evicted(ctx context.Context, settings *decide.Settings) budget.Fleet {
	names := f.names(ctx)
	out := budget.Fleet{Nodes: len(names), Zones: map[string]string{}}
	for _, name := range names { // one after another: see nodecache
		if node := nodecache.Get(ctx, f.client, name); node != nil && settings.Evicted(node) {
			out.Zones[name] = node.Labels[corev1.LabelTopologyZone]
		}
	}
	return out
}

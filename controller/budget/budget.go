// Package budget delays removals of keys when many nodes would lose keys at once, and taints and conditions that many nodes would get at once
// because of their health.
package budget

import (
	"math"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/assay-project/assay/settings"
)

// Budget is the number of nodes that can lose keys, or be hit by what rules do because of their health, in a time window.
type Budget = settings.RemovalBudget

// OfHealth returns the budget of what rules do because of the health of nodes: no time releases it, only a confirmation, or room in a later
// window.
func OfHealth(b settings.HealthBudget) Budget {
	return Budget{Nodes: b.Nodes, Share: b.Share, Window: b.Window, Hold: Forever}
}

// Forever is the Hold of a budget without a time after which it does not count.
const Forever time.Duration = math.MaxInt64 / 4

// Default is the budget by default.
var Default = settings.Default().RemovalBudget

// Breaker delays removals of keys that no change of the rules explains, or additions because of health, when too many nodes are affected. It is
// safe for concurrent use.
type Breaker struct {
	budget Budget
	clock  clock.PassiveClock

	mu      sync.Mutex
	allowed map[string]time.Time            // by node: when it was last allowed to lose keys
	wishes  map[string]map[string]time.Time // by node and key: when its removal was first held
	holding chan struct{}
}

// NewBreaker returns a breaker that has counted no removals yet.
func NewBreaker(budget Budget, c clock.PassiveClock) *Breaker {
	return &Breaker{budget: budget, clock: c, allowed: map[string]time.Time{}, wishes: map[string]map[string]time.Time{}, holding: make(chan struct{}, 1)}
}

// Allow reports whether a node can lose keys now, given the number of nodes in the cluster. If not, it returns when to retry. Over the
// budget, a node can lose keys once one of them has been due for the hold time, without a call for the node without this key meanwhile.
func (b *Breaker) Allow(node string, nodes int, keys ...string) (ok bool, again time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	b.expire(now)
	_, counted := b.allowed[node]
	if counted || len(b.allowed) < b.limit(nodes) {
		b.allow(node, now)
		return true, 0
	}
	if wait := b.wish(node, keys, now); wait > 0 {
		if b.budget.Hold == Forever {
			for _, at := range b.allowed { // the first of them that leaves the window makes room
				wait = min(wait, at.Add(b.budget.Window).Sub(now)+1)
			}
		}
		return false, wait
	}
	b.allow(node, now)
	return true, 0
}

// AllowUnattributed is like Allow for keys whose owner is unknown: a node can lose them only after one has been due for the hold time.
func (b *Breaker) AllowUnattributed(node string, keys ...string) (ok bool, again time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait := b.wish(node, keys, b.clock.Now())
	return wait == 0, wait
}

// wish records that a node is due to lose keys, and no others, and returns how long it has to wait. The caller holds the lock.
func (b *Breaker) wish(node string, keys []string, now time.Time) time.Duration {
	before, wishes, oldest := b.wishes[node], map[string]time.Time{}, now
	if len(keys) == 0 {
		keys = []string{""}
	}
	for _, key := range keys {
		since, waiting := before[key]
		if !waiting {
			since = now
		}
		if wishes[key] = since; since.Before(oldest) {
			oldest = since
		}
	}
	if b.wishes[node] = wishes; before == nil {
		select {
		case b.holding <- struct{}{}:
		default:
		}
	}
	return max(0, b.budget.Hold-now.Sub(oldest))
}

// Holding returns a channel that receives a value after removals of a node were held. It has a single reader.
func (b *Breaker) Holding() <-chan struct{} { return b.holding }

// Hold returns the duration for which removals over the budget are held.
func (b *Breaker) Hold() time.Duration { return b.budget.Hold }

// Withdraw records that a node has no pending removals. The breaker may be nil.
func (b *Breaker) Withdraw(node string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.wishes, node)
}

// Confirm releases all held removals and resets the count. It returns the nodes that were waiting.
func (b *Breaker) Confirm() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var nodes []string
	past := b.clock.Now().Add(-b.budget.Hold)
	for node, wishes := range b.wishes {
		nodes = append(nodes, node)
		for key := range wishes {
			wishes[key] = past
		}
	}
	clear(b.allowed)
	return nodes
}

// Held returns the number of nodes with held removals and the time at which the first of them was held.
func (b *Breaker) Held() (nodes int, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, wishes := range b.wishes {
		for _, at := range wishes {
			if since.IsZero() || at.Before(since) {
				since = at
			}
		}
	}
	return len(b.wishes), since
}

func (b *Breaker) limit(nodes int) int {
	return max(b.budget.Nodes, int(b.budget.Share*float64(nodes)))
}

func (b *Breaker) allow(node string, now time.Time) {
	b.allowed[node] = now
	delete(b.wishes, node)
}

func (b *Breaker) expire(now time.Time) {
	for node, at := range b.allowed {
		if now.Sub(at) > b.budget.Window {
			delete(b.allowed, node)
		}
	}
}

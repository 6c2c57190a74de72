// Package budget holds removals back once they come in masses.
package budget

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Budget says how many nodes may lose keys before somebody should look.
type Budget struct {
	// Nodes and Share of all of them: the larger of the two is allowed in Window.
	Nodes int
	Share float64
	// Window is the time over which removals are counted.
	Window time.Duration
	// Hold is how long a removal past the budget must be wished for before it is carried out all the same.
	Hold time.Duration
}

// Default lets ten nodes or one in twenty lose keys within ten minutes. A cluster that loses more at once has more
// likely lost its publishers than its hardware. Five minutes are enough to look, and short enough that nobody who meant it
// has to know about the budget.
var Default = Budget{Nodes: 10, Share: 0.05, Window: 10 * time.Minute, Hold: 5 * time.Minute}

// Breaker holds back removals of keys that no change of the rules explains, once they come in masses. It is safe for
// concurrent use.
type Breaker struct {
	budget Budget
	clock  clock.PassiveClock

	mu      sync.Mutex
	allowed map[string]time.Time // node -> when it was last allowed to lose keys
	wishes  map[string]time.Time // node -> since when it has been held back
}

// NewBreaker returns a breaker with nothing counted.
func NewBreaker(budget Budget, c clock.PassiveClock) *Breaker {
	return &Breaker{budget: budget, clock: c, allowed: map[string]time.Time{}, wishes: map[string]time.Time{}}
}

// Allow says whether a node may lose keys now, in a cluster of so many nodes; if not, when to ask again.
func (b *Breaker) Allow(node string, nodes int) (ok bool, again time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	b.expire(now)
	_, counted := b.allowed[node]
	if counted || len(b.allowed) < b.limit(nodes) {
		b.allow(node, now)
		return true, 0
	}
	if wait := b.wish(node, now); wait > 0 {
		return false, wait
	}
	b.allow(node, now)
	return true, 0
}

// Insist says whether a node may lose keys whose giver is unknown: only once that has been due for the whole hold time. If
// not, it says when to ask again.
func (b *Breaker) Insist(node string) (ok bool, again time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait := b.wish(node, b.clock.Now())
	return wait == 0, wait
}

// wish notes that a node is to lose keys, and returns for how long it has to wait. It is called with the lock held.
func (b *Breaker) wish(node string, now time.Time) time.Duration {
	since, waiting := b.wishes[node]
	if !waiting {
		b.wishes[node], since = now, now
	}
	return max(0, b.budget.Hold-now.Sub(since))
}

// Hold is how long something is held back.
func (b *Breaker) Hold() time.Duration { return b.budget.Hold }

// Withdraw says that a node no longer wants to lose anything.
func (b *Breaker) Withdraw(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.wishes, node)
}

// Confirm lets everything that is held back go on, and starts counting anew. It returns the nodes that were waiting.
func (b *Breaker) Confirm() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var nodes []string
	past := b.clock.Now().Add(-b.budget.Hold)
	for node := range b.wishes {
		nodes = append(nodes, node)
		b.wishes[node] = past
	}
	clear(b.allowed)
	return nodes
}

// Held is how many nodes are held back, and since when the first of them.
func (b *Breaker) Held() (nodes int, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, at := range b.wishes {
		if since.IsZero() || at.Before(since) {
			since = at
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

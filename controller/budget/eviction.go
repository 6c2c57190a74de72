package budget

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Evictions says how fast, and how far, nodes may be given taints that evict pods. The zero Evictions has no bounds, as NFD.
type Evictions struct {
	// Every is how long it takes at least from one node to the next; 0: there are no bounds at all.
	Every time.Duration
	// Canary is how long the first node of a wave is alone.
	Canary time.Duration
	// Share of all nodes that may bear such taints at once; one node always may.
	Share float64
	// OneZone lets nodes of one zone alone bear them at once.
	OneZone bool
}

// DefaultShare is the share of nodes that may be evicted at once if none is set: where more are, there is no room for their pods.
const DefaultShare = 0.05

// beyond is how long a node waits that would be one too many, until it asks again: others must lose their taints first.
const beyond = time.Minute

// Gate lets nodes have taints that evict pods, one after another. It is safe for concurrent use.
type Gate struct {
	limits Evictions
	clock  clock.PassiveClock

	mu    sync.Mutex
	last  time.Time // when a node was let through
	began time.Time // the wave: when the first of the nodes that bear such taints was let through
	fleet Fleet     // as of seen
	seen  time.Time
}

// NewGate returns a gate that lets the first node through once the time from one node to the next has passed: nobody knows
// what the process before this one did last.
func NewGate(limits Evictions, c clock.PassiveClock) *Gate {
	return &Gate{limits: limits, clock: c, last: c.Now(), began: c.Now()}
}

// Fleet is how many nodes there are, and which bear such taints: their zones, one for each node.
type Fleet struct {
	Nodes int
	Zones []string
}

// Held is why something has to wait, and for how long before it is asked for again.
type Held struct {
	Why  string
	Wait time.Duration
}

// Allow says whether a node of a zone may have a taint that evicts its pods, and if not, why. The fleet is
// looked at only if it matters, and not more often than nodes may be let through.
func (g *Gate) Allow(zone string, look func() Fleet) (ok bool, held Held) {
	if g.limits.Every <= 0 {
		return true, Held{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	if wait := g.limits.Every - now.Sub(g.last); wait > 0 {
		return false, Held{"one node is evicted every " + g.limits.Every.String(), wait}
	}
	if g.seen.IsZero() || now.Sub(g.seen) >= g.limits.Every {
		g.fleet, g.seen = look(), now
	}
	bearers := len(g.fleet.Zones)
	if bearers == 0 {
		g.began = now
	} else if wait := g.limits.Canary - now.Sub(g.began); wait > 0 {
		return false, Held{"the first node is alone for " + g.limits.Canary.String(), wait}
	}
	if bearers >= max(1, int(g.limits.Share*float64(g.fleet.Nodes))) {
		return false, Held{"as many nodes as may be are evicted already", beyond}
	}
	for _, other := range g.fleet.Zones {
		if g.limits.OneZone && other != zone {
			return false, Held{"nodes of another zone are evicted already", beyond}
		}
	}
	g.last, g.seen = now, time.Time{}
	return true, Held{}
}

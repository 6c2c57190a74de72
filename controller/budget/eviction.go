package budget

import (
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/assay-project/assay/settings"
)

// Evictions limits how fast nodes get taints that evict pods, and how many nodes have them.
type Evictions = settings.NoExecuteBudget

// beyond is the time after which a node over the limit is retried: other nodes must lose their taints first.
const beyond = time.Minute

// maxLag is how long an allowed node counts as tainted before its taint shows up in the cache, from the permission on, and again from the
// end of a successful write on. After that, and after the pass, the write is considered failed.
const maxLag = time.Minute

// Gate allows nodes to have taints that evict pods, one after another. It is safe for concurrent use.
type Gate struct {
	limits Evictions
	clock  clock.PassiveClock

	mu      sync.Mutex
	last    time.Time // when a node was allowed
	began   time.Time // when the first node of the current wave was allowed
	fleet   Fleet     // as of seen
	seen    time.Time
	allowed map[string]allowed // by node, until the fleet shows the taint
}

type allowed struct {
	zone    string
	at      time.Time
	passing bool // the pass goes on
}

// lagging reports whether the taint may still show up.
func (a allowed) lagging(now time.Time) bool { return a.passing || now.Sub(a.at) < maxLag }

// NewGate returns a gate for a process that begins to lead: see Lead.
func NewGate(limits Evictions, c clock.PassiveClock) *Gate {
	return &Gate{limits: limits, clock: c, last: c.Now(), began: c.Now(), allowed: map[string]allowed{}}
}

// Lead lets the gate allow the first node only after the minimum interval, because the previous leader may have just allowed one.
func (g *Gate) Lead() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last, g.began = g.clock.Now(), g.clock.Now()
}

// Fleet is the number of nodes, and by node name the zone of each node that has a taint that evicts pods.
type Fleet struct {
	Nodes int
	Zones map[string]string
}

// Held is why something has to wait, and when to retry.
type Held struct {
	Why  string
	Wait time.Duration
}

// Allow reports whether a node of a zone can get a taint that evicts its pods, and if not, why. It calls look only when necessary: at most
// as often as it allows nodes, and once more when an allowed node ceases to count. It allows a node again that look does not show yet.
// An allowed node counts as tainted until its pass ends, which the caller reports with Passed: other requests of the pass can take minutes.
func (g *Gate) Allow(node, zone string, look func() Fleet) (ok bool, held Held) {
	if g.limits.Every <= 0 {
		return true, Held{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	if a, found := g.allowed[node]; found && a.lagging(now) {
		a.passing = true
		g.allowed[node] = a
		return true, Held{}
	}
	if wait := g.limits.Every - now.Sub(g.last); wait > 0 {
		return false, Held{"one node is evicted every " + g.limits.Every.String(), wait}
	}
	if g.seen.IsZero() || now.Sub(g.seen) >= g.limits.Every || g.lagged(now) {
		g.fleet, g.seen = look(), now
	}
	zones := g.zones(now)
	if len(zones) == 0 {
		g.began = now
	} else if wait := g.limits.Canary - now.Sub(g.began); wait > 0 {
		return false, Held{"the first node is alone for " + g.limits.Canary.String(), wait}
	}
	if len(zones) >= max(1, int(g.limits.Share*float64(g.fleet.Nodes))) {
		return false, Held{"as many nodes as may be are evicted already", beyond}
	}
	for _, other := range zones {
		if g.limits.OneZone && other != zone {
			return false, Held{"nodes of another zone are evicted already", beyond}
		}
	}
	g.last, g.seen = now, time.Time{}
	g.allowed[node] = allowed{zone: zone, at: now, passing: true}
	return true, Held{}
}

// Wrote records that the taint of a node that was allowed was written. Other writes of its taints must not be recorded: they would extend
// the permission.
func (g *Gate) Wrote(node string) { g.note(node, func(a *allowed) { a.at = g.clock.Now() }) }

// Passed records that the pass over a node has ended.
func (g *Gate) Passed(node string) { g.note(node, func(a *allowed) { a.passing = false }) }

func (g *Gate) note(node string, change func(*allowed)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a, ok := g.allowed[node]; ok {
		change(&a)
		g.allowed[node] = a
	}
}

// lagged reports whether an allowed node has just ceased to count as such. It counts further if the fleet shows its taint by now.
func (g *Gate) lagged(now time.Time) bool {
	for _, a := range g.allowed {
		if !a.lagging(now) {
			return true
		}
	}
	return false
}

// zones returns the zone of each node that has such a taint, or was allowed one that the fleet does not show yet.
func (g *Gate) zones(now time.Time) map[string]string {
	zones := maps.Clone(g.fleet.Zones)
	if zones == nil {
		zones = map[string]string{}
	}
	for node, a := range g.allowed {
		if _, shown := g.fleet.Zones[node]; shown || !a.lagging(now) {
			delete(g.allowed, node)
			continue
		}
		zones[node] = a.zone
	}
	return zones
}

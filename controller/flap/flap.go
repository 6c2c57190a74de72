// Package flap detects keys of nodes that change too often.
package flap

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// A key that changed Limit times within Window is left alone until Window after the last of these changes, so that flapping does not
// move pods. The first changes are always applied immediately.
const (
	Limit  = 3
	Window = 60 * time.Second
)

// Changes records when the keys of nodes changed. It is safe for concurrent use.
type Changes struct {
	clock clock.PassiveClock
	seed  maphash.Seed

	mu    sync.Mutex
	nodes map[string][]write  // those of twice Window, oldest first
	lists map[uint64][]uint64 // keys of writes, by their sum: all nodes of a kind are written alike
	swept time.Time           // when the writes of all nodes were last checked for their age
}

// write is one write to a node. Keys are hashes, since the first write to a node has a hundred keys, and all nodes are written
// when the controller starts for the first time.
type write struct {
	at   time.Time
	keys []uint64
}

// NewChanges returns an empty Changes.
func NewChanges(c clock.PassiveClock) *Changes {
	return &Changes{clock: c, seed: maphash.MakeSeed(), nodes: map[string][]write{}, lists: map[uint64][]uint64{}, swept: c.Now()}
}

// History is when the keys of one node changed, as of one time. It does not change.
type History struct {
	writes []write
	seed   maphash.Seed
}

// Of returns the history of a node.
func (c *Changes) Of(node string) History {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.nodes[node]) < Limit {
		return History{} // of almost all nodes
	}
	return History{writes: slices.Clone(c.nodes[node]), seed: c.seed}
}

// Any reports whether a key of the node can be flapping.
func (h History) Any() bool { return len(h.writes) >= Limit }

// Held returns how long to leave a key alone that flaps; 0: it does not.
func (h History) Held(key string, now time.Time) time.Duration {
	if !h.Any() {
		return 0
	}
	hash, found := maphash.String(h.seed, key), 0
	var last time.Time
	for _, w := range slices.Backward(h.writes) {
		if !slices.Contains(w.keys, hash) {
			continue
		}
		if found++; found == 1 {
			last = w.at
		}
		if last.Sub(w.at) > Window {
			return 0
		}
		if found == Limit {
			return max(0, Window-now.Sub(last))
		}
	}
	return 0
}

// Add records that keys of a node were written or removed.
func (c *Changes) Add(node string, keys []string) {
	if len(keys) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if now.Sub(c.swept) > Window {
		for node, writes := range c.nodes {
			if now.Sub(writes[len(writes)-1].at) > Window {
				delete(c.nodes, node)
			}
		}
		clear(c.lists)
		c.swept = now
	}
	hashes := make([]uint64, len(keys))
	for i, key := range keys {
		hashes[i] = maphash.String(c.seed, key)
	}
	writes := slices.DeleteFunc(c.nodes[node], func(w write) bool { return now.Sub(w.at) > 2*Window })
	c.nodes[node] = append(writes, write{now, c.share(hashes)})
}

// share returns an equal list of another write, if there is one: a thousand nodes that are labeled at the same time have a MB of keys.
func (c *Changes) share(keys []uint64) []uint64 {
	var sum uint64
	for _, key := range keys {
		sum = sum*31 + key
	}
	if known := c.lists[sum]; slices.Equal(known, keys) {
		return known
	}
	c.lists[sum] = keys
	return keys
}

// Forget deletes the records of a node.
func (c *Changes) Forget(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.nodes, node)
}

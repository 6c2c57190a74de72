// Package flap detects keys of nodes that change too often.
package flap

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// A key that changed Limit times within Window is left alone until it has been stable for that long, so that flapping does not move
// pods. The first changes are always applied immediately.
const (
	Limit  = 3
	Window = 60 * time.Second
)

// Changes records when the keys of nodes changed. It is safe for concurrent use.
type Changes struct {
	clock clock.PassiveClock
	seed  maphash.Seed

	mu    sync.Mutex
	nodes map[string][]write  // those within Window, oldest first
	lists map[uint64][]uint64 // keys of writes, by their sum: all nodes of a kind are written alike
	swept time.Time           // when the writes of all nodes were last checked for their age
}

// write is one write to a node. Keys are hashes, since the first write to a node has a hundred keys, and all nodes are written
// when the controller starts for the first time.
type write struct {
	at   time.Time
	keys []uint64
}

// times holds the most recent times of an event, oldest first. It is never empty.
type times []time.Time

func (t times) last() time.Time { return t[len(t)-1] }

// add appends a time and keeps the last limit entries.
func (t times) add(now time.Time, limit int) times {
	t = append(t, now)
	return t[max(0, len(t)-limit):]
}

// NewChanges returns an empty Changes.
func NewChanges(c clock.PassiveClock) *Changes {
	return &Changes{clock: c, seed: maphash.MakeSeed(), nodes: map[string][]write{}, lists: map[uint64][]uint64{}, swept: c.Now()}
}

// Any reports whether a key of the node can be flapping.
func (c *Changes) Any(node string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.nodes[node]) >= Limit
}

// Held reports whether a key is flapping, and how long to leave it alone.
func (c *Changes) Held(node, key string) (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	writes, found := c.nodes[node], 0
	if len(writes) < Limit {
		return 0, false
	}
	hash, now := maphash.String(c.seed, key), c.clock.Now()
	var last time.Time
	for i := len(writes) - 1; i >= 0 && now.Sub(writes[i].at) <= Window; i-- {
		if !slices.Contains(writes[i].keys, hash) {
			continue
		}
		if found++; found == 1 {
			last = writes[i].at
		}
		if found == Limit {
			quiet := now.Sub(last)
			return Window - quiet, quiet < Window
		}
	}
	return 0, false
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
	writes := slices.DeleteFunc(c.nodes[node], func(w write) bool { return now.Sub(w.at) > Window })
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

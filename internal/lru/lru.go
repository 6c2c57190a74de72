// Package lru remembers values within a number of bytes, and forgets those first that were used the longest ago.
package lru

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Cache maps strings to values. It is safe for concurrent use.
type Cache[V any] struct {
	most int

	mu      sync.RWMutex
	entries map[string]*entry[V]
	bytes   int
	clock   atomic.Uint64 // counts uses
	mark    uint64        // the clock at the last Sweep
}

type entry[V any] struct {
	value V
	bytes int
	used  atomic.Uint64
}

// entryBytes is the memory in bytes that an entry takes in addition to its key and value.
const entryBytes = 128

// New returns an empty cache of at most so many bytes.
func New[V any](most int) *Cache[V] { return &Cache[V]{most: most, entries: map[string]*entry[V]{}} }

// Get returns the value of a key. It does not allocate.
func (c *Cache[V]) Get(key []byte) (value V, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e := c.entries[string(key)]
	if e == nil {
		return value, false
	}
	e.used.Store(c.clock.Add(1))
	return e.value, true
}

// Put remembers a value of so many bytes. One that is larger than a quarter of the cache is not remembered: it would displace what
// many others use.
func (c *Cache[V]) Put(key string, value V, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(key)
	e := &entry[V]{value: value, bytes: bytes + len(key) + entryBytes}
	if e.bytes > c.most/4 {
		return
	}
	if c.bytes+e.bytes > c.most {
		c.shrink()
	}
	e.used.Store(c.clock.Add(1))
	c.entries[key], c.bytes = e, c.bytes+e.bytes
}

// shrink forgets what was used the longest ago until three quarters are left, so that it is not done for each new entry.
func (c *Cache[V]) shrink() {
	keys := slices.SortedFunc(maps.Keys(c.entries), func(a, b string) int {
		return cmp.Compare(c.entries[a].used.Load(), c.entries[b].used.Load())
	})
	for _, key := range keys {
		if c.bytes <= c.most/4*3 {
			return
		}
		c.remove(key)
	}
}

// Remove forgets a key.
func (c *Cache[V]) Remove(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(key)
}

func (c *Cache[V]) remove(key string) {
	if e := c.entries[key]; e != nil {
		c.bytes -= e.bytes
		delete(c.entries, key)
	}
}

// Clear forgets everything.
func (c *Cache[V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries, c.bytes = map[string]*entry[V]{}, 0
}

// Sweep forgets what was not used since the last Sweep.
func (c *Cache[V]) Sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, e := range c.entries {
		if e.used.Load() <= c.mark {
			c.remove(key)
		}
	}
	c.mark = c.clock.Load()
}

// Bytes returns how much memory the entries take.
func (c *Cache[V]) Bytes() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.bytes
}

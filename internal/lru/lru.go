// Package lru provides a cache with a maximum size that evicts the least recently used values.
package lru

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Cache maps keys to values. It is safe for concurrent use.
type Cache[V any] struct {
	most int

	mu      sync.RWMutex
	entries map[string]*entry[V]
	bytes   int
	clock   atomic.Uint64 // incremented on each use
	mark    uint64        // clock at the last Sweep
}

type entry[V any] struct {
	value V
	bytes int
	used  atomic.Uint64
}

// entryBytes is the size of an entry in addition to its key and value.
const entryBytes = 128

// New returns an empty cache with a maximum size of most bytes.
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

// Put adds a value with the given size. It does not add values larger than a quarter of the cache, which would evict many others.
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

// shrink evicts the least recently used values until three quarters of the maximum size are left, so that it does not run for each
// new entry.
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

// Remove removes a key.
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

// Clear removes all entries.
func (c *Cache[V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries, c.bytes = map[string]*entry[V]{}, 0
}

// Sweep removes entries that were not used since the last Sweep.
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

// Bytes returns the size of all entries.
func (c *Cache[V]) Bytes() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.bytes
}

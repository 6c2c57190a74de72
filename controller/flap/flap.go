// Package flap detects keys of nodes that change too often.
package flap

import (
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
	mu    sync.Mutex
	nodes map[string]map[string]times // by node and key: the last changes
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
	return &Changes{clock: c, nodes: map[string]map[string]times{}}
}

// Held reports whether a key is flapping, and how long to leave it alone.
func (c *Changes) Held(node, key string) (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.nodes[node][key]
	if len(known) < Limit {
		return 0, false
	}
	now := c.clock.Now()
	if now.Sub(known[len(known)-Limit]) > Window {
		return 0, false
	}
	quiet := now.Sub(known.last())
	return Window - quiet, quiet < Window
}

// Add records that keys of a node were written or removed.
func (c *Changes) Add(node string, keys []string) {
	if len(keys) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	record := c.nodes[node]
	if record == nil {
		record = map[string]times{}
		c.nodes[node] = record
	}
	for key, known := range record {
		if now.Sub(known.last()) > Window {
			delete(record, key)
		}
	}
	for _, key := range keys {
		record[key] = record[key].add(now, Limit)
	}
}

// Forget deletes the records of a node.
func (c *Changes) Forget(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.nodes, node)
}

package node

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// A key that changed flapLimit times within flapWindow is left alone until it has been quiet for as long: whatever makes it
// flap, pods should not be moved by it. The first changes are always immediate.
const (
	flapLimit  = 3
	flapWindow = 60 * time.Second
)

// damper remembers when the keys of nodes changed. It is safe for concurrent use.
type damper struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	nodes map[string]map[string][]time.Time // node -> kind and key -> the last changes
}

func newDamper(c clock.PassiveClock) *damper {
	return &damper{clock: c, nodes: map[string]map[string][]time.Time{}}
}

// held reports whether a key flaps, and for how long to leave it alone.
func (d *damper) held(node, key string) (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	times := d.nodes[node][key]
	if len(times) < flapLimit {
		return 0, false
	}
	now := d.clock.Now()
	if now.Sub(times[len(times)-flapLimit]) > flapWindow {
		return 0, false
	}
	quiet := now.Sub(times[len(times)-1])
	return flapWindow - quiet, quiet < flapWindow
}

// changed records that keys of a node were written or removed.
func (d *damper) changed(node string, keys []string) {
	if len(keys) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	record := d.nodes[node]
	if record == nil {
		record = map[string][]time.Time{}
		d.nodes[node] = record
	}
	for key, times := range record {
		if now.Sub(times[len(times)-1]) > flapWindow {
			delete(record, key)
		}
	}
	for _, key := range keys {
		record[key] = append(record[key], now)
		record[key] = record[key][max(0, len(record[key])-flapLimit):]
	}
}

func (d *damper) forget(node string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.nodes, node)
}

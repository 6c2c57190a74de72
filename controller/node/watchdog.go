package node

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// stuckAfter is the maximum duration of one pass over one node. A pass waits for at most two requests, each of which times out
// after 30 s.
const stuckAfter = 2 * time.Minute

// Watchdog tracks the duration of running passes. It is safe for concurrent use.
type Watchdog struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	since map[string]time.Time
}

// NewWatchdog returns an empty watchdog.
func NewWatchdog(c clock.PassiveClock) *Watchdog {
	return &Watchdog{clock: c, since: map[string]time.Time{}}
}

// begin records the start of a pass over a node, and returns a function to call at its end.
func (w *Watchdog) begin(node string) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since[node] = w.clock.Now()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.since, node)
	}
}

// Check is a health check that fails while a pass is stuck.
func (w *Watchdog) Check(*http.Request) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for node, since := range w.since {
		if took := w.clock.Since(since); took > stuckAfter {
			return fmt.Errorf("the pass over node %s has been running for %s", node, took.Round(time.Second))
		}
	}
	return nil
}

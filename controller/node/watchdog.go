package node

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// stuckAfter is how long one pass over one node may take. It waits for two requests at most, and those give up after 30 s.
const stuckAfter = 2 * time.Minute

// Watchdog knows how long the passes at hand have been running. It is safe for concurrent use.
type Watchdog struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	since map[string]time.Time
}

// NewWatchdog returns a watchdog with nothing to watch.
func NewWatchdog(c clock.PassiveClock) *Watchdog {
	return &Watchdog{clock: c, since: map[string]time.Time{}}
}

// begin notes that a pass over a node begins, and returns what to call at its end.
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

// Check is a health check that fails while a pass does not end.
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

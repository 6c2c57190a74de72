// Package watchhealth detects watches of the API server that have stalled, and restarts them.
//
// A watch stalls if a proxy or a load balancer keeps the connection open and forwards nothing. This looks like a cluster in which
// nothing happens. Two signals reveal it without a request: a connection answers pings, which the transport sends, and the API
// server sends a bookmark to every watch each minute. A Monitor wraps the transport of a client and records when each watch last
// received data.
package watchhealth

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

const (
	// DefaultSilence is the maximum time for which an open watch may receive nothing before it is opened again: one and a half
	// times the interval of bookmarks. An API server without a watch cache sends none; each interval then costs one request.
	DefaultSilence = 90 * time.Second
	// DefaultPatience is the maximum time for which a watch may be closed. A server that restarts takes less; together with the
	// 15 seconds in which pings detect a dead connection, data that is used is at most half a minute old.
	DefaultPatience = 15 * time.Second
	// beat is the number of times that a Monitor checks its watches within its patience.
	beat = 5
)

// Options configure what a Monitor tolerates. The zero value is valid.
type Options struct {
	// Silence is the maximum time for which an open watch may receive nothing before it is opened again; 0: DefaultSilence. A value
	// below the interval of bookmarks, one minute, costs a request each time nothing happens for so long.
	Silence time.Duration
	// Patience is the maximum time for which a watch may be closed before Check fails; 0: DefaultPatience.
	Patience time.Duration
	// Reconnect closes all connections; it is called when the server does not answer on them. Nil: they are kept.
	Reconnect func()
	// Report is called with each Stall. It must return quickly. Nil ignores stalls.
	Report func(Stall)
	// Clock; nil: the real one.
	Clock clock.WithTicker
}

// Stall describes a watch that has stalled.
type Stall struct {
	// Resource is the plural name of the watched resource.
	Resource string
	// Opening is true for a watch whose request was not answered, and false for one that was open.
	Opening bool
	// For is the time since it last received data.
	For time.Duration
}

// Monitor records which watches receive data. It is safe for concurrent use.
type Monitor struct {
	opts Options

	mu          sync.Mutex
	watches     map[string]*watch
	reconnected time.Time
}

// watch is the sequence of streams that watch one list.
type watch struct {
	resource string
	open     *stream // nil: none is
	opening  *stream // nil: none has been asked for
	opened   bool    // at least once
	down     time.Time
	problem  string // why it could not be opened the last time
}

// stream is one request.
type stream struct {
	watch  *watch
	key    string
	since  time.Time
	cancel context.CancelFunc
	heard  atomic.Int64 // in nanoseconds since 1970
	frozen atomic.Bool  // the Monitor has ended it
}

// New returns a Monitor of no watches.
func New(o Options) *Monitor {
	o.Silence, o.Patience = cmp.Or(o.Silence, DefaultSilence), cmp.Or(o.Patience, DefaultPatience)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Report == nil {
		o.Report = func(Stall) {}
	}
	if o.Reconnect == nil {
		o.Reconnect = func() {}
	}
	return &Monitor{opts: o, watches: map[string]*watch{}}
}

// Check returns an error that names the watches that have been closed for too long, so that cached objects may be out of date. The
// message stays the same as long as the condition lasts, because it is copied to events of pods.
func (m *Monitor) Check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var closed []string
	for _, w := range m.watches {
		if m.closed(w) <= m.opts.Patience {
			continue
		}
		text := w.resource
		if w.problem != "" {
			text += " (" + w.problem + ")"
		}
		closed = append(closed, text)
	}
	if len(closed) == 0 {
		return nil
	}
	slices.Sort(closed)
	return fmt.Errorf("watches of the API server are interrupted: %s", strings.Join(slices.Compact(closed), ", "))
}

// Closed returns the longest time for which a watch has been closed; 0 if all are open.
func (m *Monitor) Closed() (longest time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.watches {
		longest = max(longest, m.closed(w))
	}
	return longest
}

// closed returns the time for which a watch has been closed. It is 0 for a watch that was never open: its client still waits for the
// first data.
func (m *Monitor) closed(w *watch) time.Duration {
	if w.open != nil || !w.opened {
		return 0
	}
	return m.opts.Clock.Since(w.down)
}

// Run opens stalled watches again until the context ends.
func (m *Monitor) Run(ctx context.Context) {
	ticker := m.opts.Clock.NewTicker(min(m.opts.Patience, m.opts.Silence) / beat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			m.look()
		}
	}
}

// look ends stalled streams; their clients open the watch again at the last resourceVersion.
func (m *Monitor) look() {
	stalls, reconnect := m.stalls()
	for _, s := range stalls {
		m.opts.Report(s)
	}
	if reconnect {
		m.opts.Reconnect()
	}
}

func (m *Monitor) stalls() (found []Stall, reconnect bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.opts.Clock.Now()
	for _, w := range m.watches {
		if s := w.open; s != nil {
			if silent := now.Sub(time.Unix(0, s.heard.Load())); silent > m.opts.Silence {
				s.freeze()
				found = append(found, Stall{Resource: w.resource, For: silent})
			}
		}
		s := w.opening
		if s == nil {
			continue
		}
		waits := now.Sub(s.since)
		// The connection may have stalled. All watches share it, so reconnect at most once per silence.
		if waits > m.opts.Patience && now.Sub(m.reconnected) > m.opts.Silence {
			m.reconnected, reconnect = now, true
			found = append(found, Stall{Resource: w.resource, Opening: true, For: waits})
		}
		// There are proxies that hold back the beginning of an answer until the first event, which a bookmark is.
		if waits > m.opts.Silence {
			s.freeze()
		}
	}
	return found, reconnect
}

func (s *stream) freeze() {
	s.frozen.Store(true)
	s.cancel()
}

// begin records that a watch is being opened.
func (m *Monitor) begin(r *http.Request, cancel context.CancelFunc) *stream {
	q := r.URL.Query()
	key := strings.Join([]string{r.URL.Path, q.Get("labelSelector"), q.Get("fieldSelector"), r.Header.Get("Accept")}, "\x00")
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.watches[key]
	if w == nil {
		w = &watch{resource: path.Base(r.URL.Path), down: m.opts.Clock.Now()}
		m.watches[key] = w
	}
	w.opening = &stream{watch: w, key: key, since: m.opts.Clock.Now(), cancel: cancel}
	return w.opening
}

// answered records the result of opening a watch. It is open if problem is empty.
func (m *Monitor) answered(s *stream, problem string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.watch.opening == s {
		s.watch.opening = nil
	}
	s.watch.problem = problem
	if problem == "" {
		s.hear(m.opts.Clock)
		s.watch.open, s.watch.opened = s, true
	}
}

func (s *stream) hear(c clock.PassiveClock) { s.heard.Store(c.Now().UnixNano()) }

// end notes that a stream has ended. If it is the caller who wants no more, the watch is forgotten.
func (m *Monitor) end(s *stream, wanted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !wanted && (s.watch.open == s || s.watch.open == nil) {
		delete(m.watches, s.key)
	}
	if s.watch.open == s {
		s.watch.open, s.watch.down = nil, m.opts.Clock.Now()
	}
}

// Package watchhealth detects and restarts stalled watches of the API server.
//
// A watch stalls if a proxy or a load balancer keeps the connection open but forwards nothing. This looks like a cluster without
// changes. There are two ways to detect it without requests: the server answers HTTP/2 pings, and the API server sends a bookmark
// to every watch each minute. A Monitor wraps the transport of a client and records when each watch last received data.
package watchhealth

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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
	// DefaultSilence is the maximum time for which an open watch may receive nothing before it is reopened. The API server sends a
	// bookmark each minute, but skips those to resources that do not change if etcd does not report its progress (its flag
	// --watch-progress-notify-interval, 5 s with kubeadm): Kubernetes 1.36.3 was then silent for two minutes, and sometimes more. Without
	// a watch cache it sends no bookmarks. Each interval then costs one request.
	DefaultSilence = 150 * time.Second
	// DefaultPatience is the maximum time for which a watch may be closed. A restart of the API server takes less. Together with
	// the 15 seconds in which pings detect a dead connection, data is at most half a minute old.
	DefaultPatience = 15 * time.Second
	// beat is the number of checks within the patience.
	beat = 5
)

// Options configure a Monitor. The zero value is valid.
type Options struct {
	// Silence is the maximum time for which an open watch may receive nothing before it is reopened. It defaults to DefaultSilence.
	// A value below two minutes, the longest time between bookmarks, costs a request whenever there are no events for that time.
	Silence time.Duration
	// Patience is the maximum time for which a watch may be closed before Check fails. It defaults to DefaultPatience.
	Patience time.Duration
	// Reconnect closes all connections. It is called when the server does not respond on them. Nil keeps them open.
	Reconnect func()
	// Report is called for each Stall. It must return quickly. It may be nil.
	Report func(Stall)
	// Clock defaults to the real clock.
	Clock clock.WithTicker
}

// Stall describes a stalled watch.
type Stall struct {
	// Resource is the plural name of the watched resource.
	Resource string
	// Opening is set if the watch request got no response, and not set if an open watch stalled.
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

// watch is the sequence of streams of one watch.
type watch struct {
	resource string
	open     *stream // nil if no stream is open
	opening  *stream // nil if no stream is being opened
	opened   bool    // was open at least once
	down     time.Time
	problem  string // error of the last attempt to open it
	relist   bool   // its client is to list the objects again
}

// stream is one watch request.
type stream struct {
	watch  *watch
	key    string
	since  time.Time
	cancel context.CancelFunc
	heard  atomic.Int64 // in nanoseconds since 1970
	frozen atomic.Bool  // the Monitor has closed it
}

// New returns a Monitor without watches.
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

// Check returns an error that names the watches that have been closed for too long, so that cached objects may be outdated. The
// message does not change as long as the condition lasts, because it is copied to Events of pods.
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

// Closed returns the longest time for which a watch has been closed, or 0 if all are open.
func (m *Monitor) Closed() (longest time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.watches {
		longest = max(longest, m.closed(w))
	}
	return longest
}

// closed returns the time for which a watch has been closed. It is 0 for a watch that was never open, because its client still
// waits for the first data.
func (m *Monitor) closed(w *watch) time.Duration {
	if w.open != nil || !w.opened {
		return 0
	}
	return m.opts.Clock.Since(w.down)
}

// Relist makes the clients that watch a resource list its objects again: their watches end, and the request for the next one is answered with
// 410 (Gone), as if the resourceVersion were too old.
func (m *Monitor) Relist(resource string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(m.watches)) { // in one order, so that simulated schedules repeat
		w := m.watches[key]
		if w.resource != resource {
			continue
		}
		w.relist = true
		if s := w.open; s != nil {
			s.freeze()
		}
	}
}

// takeRelist reports whether the client of a watch is to list the objects again, once. A watch that begins with a list does so.
func (m *Monitor) takeRelist(s *stream, lists bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	relist := s.watch.relist
	s.watch.relist = false
	return relist && !lists
}

// Run reopens stalled watches until the context ends.
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

// look closes stalled streams. Clients then reopen the watch at the last resourceVersion.
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
		// The connection may have stalled. All watches share it, so reconnect at most once per silence interval.
		if waits > m.opts.Patience && now.Sub(m.reconnected) > m.opts.Silence {
			m.reconnected, reconnect = now, true
			found = append(found, Stall{Resource: w.resource, Opening: true, For: waits})
		}
		// Some proxies hold back the start of a response until the first event, which may be a bookmark.
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

// end records that a stream has ended. If the client has closed it, the watch is removed.
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

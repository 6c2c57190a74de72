// Package watchhealth detects watches of the API server that have stalled, and restarts them.
//
// A watch that is frozen, by a proxy or a load balancer that keeps the connection and forwards nothing, looks like a cluster in
// which nothing happens. Two things give it away, and neither costs a request: a connection answers pings, which the transport
// sees to, and the API server writes a bookmark into every watch each minute. A Monitor stands between a client and its
// transport and notes when each watch was last heard of.
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
	// DefaultSilence is how long an open watch may be silent before it is opened anew: one and a half of the minute in which
	// a bookmark comes. Where the API server sends none, because its watch cache is off, it is a request each time, and no harm.
	DefaultSilence = 90 * time.Second
	// DefaultPatience is how long a watch may be closed. A server that restarts takes less; together with the 15 seconds in
	// which pings find a dead connection, nobody relies on what is older than half a minute.
	DefaultPatience = 15 * time.Second
	// beat is how often a Monitor looks at its watches, as a part of its patience.
	beat = 5
)

// Options say what a Monitor tolerates. The zero value is good.
type Options struct {
	// Silence is how long an open watch may be silent until it is opened anew; 0: DefaultSilence. Less than the minute of
	// bookmarks costs a request each time nothing happens for so long.
	Silence time.Duration
	// Patience is how long a watch may be closed until Check fails; 0: DefaultPatience.
	Patience time.Duration
	// Reconnect closes all connections, when a server does not answer on those that there are. Nil: nobody does.
	Reconnect func()
	// Report is told of each Stall. It must be quick. Nil ignores it.
	Report func(Stall)
	// Clock; nil: the real one.
	Clock clock.WithTicker
}

// Stall is a watch that was found frozen.
type Stall struct {
	// Resource is the plural name of what is watched.
	Resource string
	// Opening tells a watch that was asked for and not answered from one that had been open.
	Opening bool
	// For is how long nothing has been heard of it.
	For time.Duration
}

// Monitor knows which watches are alive. It is safe for concurrent use.
type Monitor struct {
	opts Options

	mu          sync.Mutex
	watches     map[string]*watch
	reconnected time.Time
}

// watch is everything that is asked of one list, one stream after the other.
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

// Check says which watches have been closed for too long, so that what is known of their objects may be out of date. While it
// lasts the text stays the same: it ends up in events of pods.
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

// Closed returns how long the watch that has been closed the longest has been so; 0 if all are open.
func (m *Monitor) Closed() (longest time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.watches {
		longest = max(longest, m.closed(w))
	}
	return longest
}

// closed returns how long a watch has been closed. One that was never open is no loss: whoever asked for it still waits.
func (m *Monitor) closed(w *watch) time.Duration {
	if w.open != nil || !w.opened {
		return 0
	}
	return m.opts.Clock.Since(w.down)
}

// Run opens frozen watches anew until the context ends.
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

// look ends what is frozen: whoever watches asks again where he stopped.
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
		// The connection may be what is frozen. All watches share it, so that one of them may ask for another now and then.
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

// begin notes that a watch is asked for.
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

// answered notes what became of it: no problem, and it is open.
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

package worker

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/internal/build"
)

// buckets are the upper bounds of the discovery histogram in seconds. They are smaller than NFD's, because discovery is faster.
var buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// configurationHelp describes the metric that the controller has too.
const configurationHelp = "1 if the configuration is valid; 0 if a change has errors and the previous configuration is used."

// stuckAfter is the time after which /healthz reports a running discovery as stuck. Each source has two seconds.
const stuckAfter = 2 * time.Minute

// metrics holds and serves the metrics of the worker. It writes Prometheus' text format itself: these few lines replace a library
// of 3 MB on every node. It is safe for concurrent use.
type metrics struct {
	node  string
	start time.Time

	mu          sync.Mutex
	counts      []uint64 // by bucket; the last bucket is infinity
	sum         float64
	discovery   time.Time // start of the running discovery; zero if none is running
	discoveries uint64
	changes     map[publish.Change]uint64
	failures    uint64
	bytes       uint64
	failing     error // the reason why the latest content is not published
	pending     bool  // nothing has been published yet
	invalid     bool  // the configuration has errors, and the previous one is used
	missing     error // a file system of the kernel that is not mounted; nil if there is none
	dropped     int
	suppressed  int             // elements that keep their published value because they change too often
	waiting     string          // the sources that the first publication waits for
	sources     map[string]bool // whether a source has no result of its own
}

func newMetrics(node string) *metrics {
	return &metrics{
		node: node, start: time.Now(), pending: true,
		counts:  make([]uint64, len(buckets)+1),
		changes: map[publish.Change]uint64{publish.Created: 0, publish.Patched: 0, publish.Unchanged: 0},
	}
}

// discovering records the start of a discovery.
func (m *metrics) discovering() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.discovery = time.Now()
}

// discovered records the end of a discovery.
func (m *metrics) discovered(took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.discovery = time.Time{}
	m.discoveries++
	m.sum += took.Seconds()
	i := 0
	for i < len(buckets) && took.Seconds() > buckets[i] {
		i++
	}
	m.counts[i]++
}

// published records an event of the publisher.
func (m *metrics) published(e publish.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case e.Err != nil:
		m.failures++
		m.failing = e.Err
	case e.Change != "":
		m.changes[e.Change]++
		m.bytes += uint64(e.Bytes)
		m.failing, m.pending = nil, false
	}
	if e.Dropped != nil {
		m.dropped = len(e.Dropped)
	}
}

// suppress records how many elements keep their published value because they change too often.
func (m *metrics) suppress(elements int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.suppressed = elements
}

// waitFor records the sources that the first publication waits for; none: it does not wait.
func (m *metrics) waitFor(sources string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting = sources
}

// unfound records which of all sources have no result.
func (m *metrics) unfound(all, without []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sources = make(map[string]bool, len(all))
	for _, name := range all {
		m.sources[name] = slices.Contains(without, name)
	}
}

// nothingToPublish marks the worker as ready without a cluster.
func (m *metrics) nothingToPublish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending = false
}

// configured records whether the configuration is valid.
func (m *metrics) configured(valid bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.invalid = !valid
}

// mounted records which file system of the kernel is missing; nil if none is.
func (m *metrics) mounted(missing error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.missing = missing
}

// listen opens the port and returns a function that serves it until ctx is done. Opening it first reports a port that is in use as
// a startup error.
func listen(ctx context.Context, port int, handler http.Handler) (func(context.Context), error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	srv := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		MaxHeaderBytes:    8 << 10,
	}
	return func(ctx context.Context) {
		stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
		defer stop()
		_ = srv.Serve(l) // returns ErrServerClosed
	}, nil
}

// probes serves /healthz and /readyz, which fail with the problem that a function returns, and /metrics.
func probes(healthz, readyz func() (problem string), metrics func(io.Writer) error) http.Handler {
	probe := func(check func() string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if problem := check(); problem != "" {
				http.Error(w, problem, http.StatusServiceUnavailable)
				return
			}
			_, _ = io.WriteString(w, "ok\n")
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", probe(healthz))
	mux.HandleFunc("GET /readyz", probe(readyz))
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_ = metrics(w)
	})
	return mux
}

func (m *metrics) handler() http.Handler { return probes(m.healthz, m.readyz, m.write) }

// healthz fails if a discovery hangs, because a restart may help. It does not fail if the API server is unavailable.
func (m *metrics) healthz() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.discovery.IsZero() && time.Since(m.discovery) > stuckAfter {
		return "a discovery is stuck"
	}
	return ""
}

// readyz fails while the published features are not up to date, or without those of a missing /proc or /sys: a rollout of the DaemonSet
// stops at the first node.
func (m *metrics) readyz() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.missing != nil:
		return m.missing.Error() + "; mount the host's directory there"
	case m.waiting != "":
		return "waiting for sources: " + m.waiting
	case m.failing != nil:
		return "not published: " + m.failing.Error()
	case m.pending:
		return "nothing published yet"
	}
	return ""
}

// write writes all metrics in Prometheus' text format, those with NFD's names first.
func (m *metrics) write(w io.Writer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	head := func(name, kind, help string) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	}
	head("nfd_worker_build_info", "gauge", "Version of the worker.")
	fmt.Fprintf(&b, "nfd_worker_build_info{version=%q,goversion=%q} 1\n", build.Version(), runtime.Version())
	head("assay_build_info", "gauge", "Always 1, with the version of the program.")
	fmt.Fprintf(&b, "assay_build_info{component=\"worker\",version=%q,goversion=%q} 1\n", build.Version(), runtime.Version())
	const duration = "nfd_worker_feature_discovery_duration_seconds"
	head(duration, "histogram", "Time that a discovery took.")
	total := uint64(0)
	for i, n := range m.counts {
		total += n
		le := "+Inf"
		if i < len(buckets) {
			le = strconv.FormatFloat(buckets[i], 'g', -1, 64)
		}
		fmt.Fprintf(&b, "%s_bucket{node=%q,le=%q} %d\n", duration, m.node, le, total)
	}
	fmt.Fprintf(&b, "%s_sum{node=%q} %g\n%s_count{node=%q} %d\n", duration, m.node, m.sum, duration, m.node, m.discoveries)
	head("assay_worker_publish_total", "counter", "Attempts to publish, by what they did to the NodeFeature.")
	for _, c := range []publish.Change{publish.Created, publish.Patched, publish.Unchanged} {
		fmt.Fprintf(&b, "assay_worker_publish_total{change=%q} %d\n", c, m.changes[c])
	}
	head("assay_worker_publish_failures_total", "counter", "Attempts to publish that failed.")
	fmt.Fprintf(&b, "assay_worker_publish_failures_total %d\n", m.failures)
	head("assay_worker_publish_bytes_total", "counter", "Bytes sent to create and patch the NodeFeature.")
	fmt.Fprintf(&b, "assay_worker_publish_bytes_total %d\n", m.bytes)
	head("assay_worker_dropped_features", "gauge", "Features left out because the NodeFeature would be too large.")
	fmt.Fprintf(&b, "assay_worker_dropped_features %d\n", m.dropped)
	head("assay_worker_suppressed_elements", "gauge", "Elements of features that keep their published value because they change too often.")
	fmt.Fprintf(&b, "assay_worker_suppressed_elements %d\n", m.suppressed)
	head("assay_worker_source_missing", "gauge", "1 if a source has had no result since the worker started: its features are those of an earlier worker, or absent.")
	for _, name := range slices.Sorted(maps.Keys(m.sources)) {
		n := 0
		if m.sources[name] {
			n = 1
		}
		fmt.Fprintf(&b, "assay_worker_source_missing{source=%q} %d\n", name, n)
	}
	valid := 1
	if m.invalid {
		valid = 0
	}
	head("assay_configuration_valid", "gauge", configurationHelp)
	fmt.Fprintf(&b, "assay_configuration_valid %d\n", valid)
	head("process_start_time_seconds", "gauge", "When the process started, in seconds since 1970.")
	fmt.Fprintf(&b, "process_start_time_seconds %d\n", m.start.Unix())
	_, err := io.WriteString(w, b.String())
	return err
}

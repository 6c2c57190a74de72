package worker

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/discovery/topology"
	"github.com/assay-project/assay/internal/build"
)

// topologyMetrics holds and serves the metrics of assay-worker topology. It is safe for concurrent use.
type topologyMetrics struct {
	node  string
	start time.Time

	mu        sync.Mutex
	step      time.Time // start of the running read; zero: none is running
	seen      time.Time // when the kubelet answered last
	away      error     // why the kubelet could not be read
	errors    uint64
	retries   uint64
	limited   uint64
	negatives int
	unknown   int
	claims    int
	events    map[string]uint64 // by source
	changes   map[publish.Change]uint64
	failures  uint64
	failing   error // why the latest content is not published
	invalid   bool  // the configuration has errors, and the previous one is used
	pending   bool  // nothing has been published yet
}

func newTopologyMetrics(node string) *topologyMetrics {
	return &topologyMetrics{
		node: node, start: time.Now(), pending: true, events: map[string]uint64{},
		changes: map[publish.Change]uint64{publish.Created: 0, publish.Patched: 0, publish.Unchanged: 0},
	}
}

// lock runs f with the lock.
func (m *topologyMetrics) lock(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// reading records the start and the end of a read.
func (m *topologyMetrics) reading(on bool) {
	m.lock(func() {
		m.step = time.Time{}
		if on {
			m.step = time.Now()
		}
	})
}

func (m *topologyMetrics) read(reads int) { m.lock(func() { m.retries += uint64(max(reads-1, 0)) }) }
func (m *topologyMetrics) busy()          { m.lock(func() { m.limited++ }) }

// heard records an event of these sources.
func (m *topologyMetrics) heard(sources []string) {
	m.lock(func() {
		for _, s := range sources {
			m.events[s]++
		}
	})
}

// found records what the topology does not show.
func (m *topologyMetrics) found(r *topology.Result) {
	m.lock(func() { m.negatives, m.unknown, m.claims = r.Negative, len(r.Unknown), len(r.Claims) })
}

func (m *topologyMetrics) configured(valid bool) { m.lock(func() { m.invalid = !valid }) }

func (m *topologyMetrics) failed(err error) { m.lock(func() { m.errors++; m.away = err }) }

func (m *topologyMetrics) answered(at time.Time) { m.lock(func() { m.seen, m.away = at, nil }) }

// published records an event of the publisher.
func (m *topologyMetrics) published(e publish.Event) {
	m.lock(func() {
		switch {
		case e.Err != nil:
			m.failures++
			m.failing = e.Err
		case e.Change != "":
			m.changes[e.Change]++
			m.failing, m.pending = nil, false
		}
	})
}

func (m *topologyMetrics) handler() http.Handler {
	return probes(m.healthz, m.readyz, m.write)
}

// healthz fails if a read hangs: each call of the kubelet has a timeout.
func (m *topologyMetrics) healthz() (problem string) {
	m.lock(func() {
		if !m.step.IsZero() && time.Since(m.step) > stuckAfter {
			problem = "reading the kubelet is stuck"
		}
	})
	return problem
}

// readyz fails until the object is published, and while a newer one is not. A kubelet that restarts does not make it fail: the published
// object stays.
func (m *topologyMetrics) readyz() (problem string) {
	m.lock(func() {
		switch {
		case m.failing != nil:
			problem = "not published: " + m.failing.Error()
		case m.pending && m.away != nil:
			problem = m.away.Error()
		case m.pending:
			problem = "nothing published yet"
		}
	})
	return problem
}

// write writes all metrics in Prometheus' text format, those with NFD's names first.
func (m *topologyMetrics) write(w io.Writer) error {
	var b strings.Builder
	value := func(name, kind, help string, v any) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n%s %v\n", name, help, name, kind, name, v)
	}
	m.lock(func() {
		fmt.Fprintf(&b, "# HELP nfd_topology_updater_build_info Version of the program.\n# TYPE nfd_topology_updater_build_info gauge\n"+
			"nfd_topology_updater_build_info{version=%q,goversion=%q} 1\n", build.Version(), runtime.Version())
		value("nfd_topology_updater_scan_errors_total", "counter", "Reads of the kubelet that failed.", m.errors)
		up := 0
		if m.away == nil && !m.seen.IsZero() {
			up = 1
		}
		value("assay_topology_kubelet_up", "gauge", "1 if the last read of the kubelet succeeded.", up)
		if !m.seen.IsZero() {
			value("assay_topology_last_read_timestamp_seconds", "gauge", "When the kubelet answered last, in seconds since 1970.", m.seen.Unix())
		}
		value("assay_topology_retries_total", "counter", "Reads that were repeated because the kubelet's answers were of different times.", m.retries)
		value("assay_topology_rate_limited_total", "counter", "Calls that the kubelet's rate limit rejected.", m.limited)
		value("assay_topology_negative", "gauge", "Resources of zones of which pods hold more than is allocatable; 0 is published as available.", m.negatives)
		value("assay_topology_unknown_devices", "gauge", "Devices that pods hold and the kubelet does not list as allocatable; no zone has them.", m.unknown)
		value("assay_topology_claimed_devices", "gauge", "Devices of DRA claims, which the kubelet lists without a NUMA node; no zone has them.", m.claims)
		const events = "assay_topology_events_total"
		fmt.Fprintf(&b, "# HELP %s Events after which everything was read again, by source.\n# TYPE %s counter\n", events, events)
		for _, s := range topologySources {
			fmt.Fprintf(&b, "%s{source=%q} %d\n", events, s, m.events[s])
		}
		const changes = "assay_topology_publish_total"
		fmt.Fprintf(&b, "# HELP %s Attempts to publish, by what they did to the NodeResourceTopology.\n# TYPE %s counter\n", changes, changes)
		for _, c := range []publish.Change{publish.Created, publish.Patched, publish.Unchanged} {
			fmt.Fprintf(&b, "%s{change=%q} %d\n", changes, c, m.changes[c])
		}
		value("assay_topology_publish_failures_total", "counter", "Attempts to publish that failed.", m.failures)
		valid := 1
		if m.invalid {
			valid = 0
		}
		value("assay_configuration_valid", "gauge", configurationHelp, valid)
		value("process_start_time_seconds", "gauge", "When the process started, in seconds since 1970.", m.start.Unix())
	})
	_, err := io.WriteString(w, b.String())
	return err
}

package node

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
)

// metrics have NFD's names where NFD has the metric, so that dashboards continue to work. No metric has a label for a rule or a
// node: the product of the two would overload Prometheus.
type metrics struct {
	requests, updates, failures, held prometheus.Counter
	failedOpen, inconsistent          prometheus.Counter
	waiting, waitingHealth            prometheus.Gauge
	errors                            prometheus.Counter
	labels, resources, taints         prometheus.Counter
	evaluation                        prometheus.Histogram
}

// sharedMetrics are the metrics of the process, even if it starts several managers one after another.
var sharedMetrics = sync.OnceValue(newMetrics)

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		requests: counter("nfd_master_node_update_requests_total", "Writes to Nodes that were tried."),
		updates:  counter("nfd_master_node_updates_total", "Nodes that were written."),
		failures: counter("nfd_master_node_update_failures_total", "Writes to Nodes that failed for another reason than a conflict."),
		held:     counter("assay_removals_held_total", "Passes over a node whose removals were held back by the budget."),
		failedOpen: counter("assay_startup_taint_timeouts_total",
			"Start-up taints removed from nodes that were not ready in time."),
		labels:    counter("nfd_master_node_labels_rejected_total", "Labels that rules asked for and may not write."),
		resources: counter("nfd_master_node_extendedresources_rejected_total", "Extended resources that rules asked for and may not write."),
		taints:    counter("nfd_master_node_taints_rejected_total", "Taints that rules asked for and may not write."),
		errors:    counter("nfd_master_nodefeaturerule_processing_errors_total", "Rules that could not be evaluated on a node."),
		evaluation: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "nfd_master_nodefeaturerule_processing_duration_seconds",
			Help:    "Time to evaluate all rules for one node.",
			Buckets: prometheus.ExponentialBuckets(1e-6, 10, 6), // 100 rules take 0.15 ms on a node, costly ones up to 10 ms
		}),
	}
	m.inconsistent = counter("assay_inconsistent_facts_total", "Plans that were dropped because the features in memory gave another result than those of the API server.")
	m.waiting = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "assay_removals_waiting_nodes", Help: "Nodes whose removals are held back by the budget.",
	})
	m.waitingHealth = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "assay_additions_waiting_nodes", Help: "Nodes whose taints or conditions because of their health are held back by the budget.",
	})
	for _, c := range []prometheus.Collector{
		m.waiting, m.waitingHealth, m.failedOpen, m.inconsistent,
		m.requests, m.updates, m.failures, m.held, m.labels, m.resources, m.taints, m.errors, m.evaluation,
	} {
		ctrlmetrics.Registry.MustRegister(c)
	}
	return m
}

// rejections counts, for one node, rules that fail and outputs that are not written.
type rejections struct{ errors, labels, resources, taints int }

func rejectionsOf(o *rules.Outcome) (n rejections) {
	for _, r := range o.Faulty() {
		if r.Err != nil {
			n.errors++
		}
	}
	for _, r := range o.Rejected() {
		if r.Missing {
			continue
		}
		switch r.Kind {
		case keys.Label:
			n.labels++
		case keys.Resource:
			n.resources++
		case keys.Taint:
			n.taints++
		}
	}
	return n
}

// count adds them.
func (m *metrics) count(n rejections) {
	m.errors.Add(float64(n.errors))
	m.labels.Add(float64(n.labels))
	m.resources.Add(float64(n.resources))
	m.taints.Add(float64(n.taints))
}

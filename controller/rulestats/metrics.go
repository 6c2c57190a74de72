package rulestats

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	// failedNodes counts nodes whose labels are frozen by a fail action: no other metric shows that they can be out of date.
	failedNodes = gauge("assay_nodes_failed", "Nodes whose labels are frozen by the fail action of a rule and may be out of date.")
	// flappingNodes counts nodes with keys that are left as they are because they change too often.
	flappingNodes = gauge("assay_nodes_flapping", "Nodes on which the controller leaves keys as they are because a feature changes too often.")
)

// gauge returns a function that registers a gauge when it is called for the first time, and returns it.
func gauge(name, help string) func() prometheus.Gauge {
	return sync.OnceValue(func() prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		ctrlmetrics.Registry.MustRegister(g)
		return g
	})
}

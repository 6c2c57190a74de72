package rulestats

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// failedNodes counts nodes whose labels are frozen by a fail action: no other metric shows that they can be out of date.
var failedNodes = sync.OnceValue(func() prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "assay_nodes_failed",
		Help: "Nodes whose labels are frozen by the fail action of a rule and may be out of date.",
	})
	ctrlmetrics.Registry.MustRegister(g)
	return g
})

// flappingNodes counts nodes with keys that are left as they are because they change too often.
var flappingNodes = sync.OnceValue(func() prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "assay_nodes_flapping",
		Help: "Nodes on which the controller leaves keys as they are because a feature changes too often.",
	})
	ctrlmetrics.Registry.MustRegister(g)
	return g
})

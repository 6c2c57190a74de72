package rulestats

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// failedNodes counts nodes whose labels a fail action keeps as they were: nobody else sees that they may be out of date.
var failedNodes = sync.OnceValue(func() prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "assay_nodes_failed",
		Help: "Nodes that the fail action of a rule keeps as they were; their labels may be out of date.",
	})
	ctrlmetrics.Registry.MustRegister(g)
	return g
})

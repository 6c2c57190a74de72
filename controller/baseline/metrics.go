package baseline

import (
	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/assay-project/assay/rules/baseline"
)

var (
	nodes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "assay_baseline_nodes", Help: "Nodes that a NodeBaseline selects, by state: conforming, deviating or unknown.",
	}, []string{"baseline", "state"})
	deviating = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "assay_baseline_deviating", Help: "Nodes that fail a check of a NodeBaseline.",
	}, []string{"baseline", "check"})
)

func init() { ctrlmetrics.Registry.MustRegister(nodes, deviating) }

// report exposes the result of a baseline.
func report(name string, r *baseline.Result) {
	deviating.DeletePartialMatch(prometheus.Labels{"baseline": name})
	for state, list := range map[string][]string{"conforming": r.Conforming, "deviating": r.Deviating, "unknown": r.Unknown} {
		nodes.WithLabelValues(name, state).Set(float64(len(list)))
	}
	for _, c := range r.Checks {
		deviating.WithLabelValues(name, c.Name).Set(float64(c.Deviating))
	}
}

// withdraw removes the metrics of a baseline.
func withdraw(name string) {
	nodes.DeletePartialMatch(prometheus.Labels{"baseline": name})
	deviating.DeletePartialMatch(prometheus.Labels{"baseline": name})
}

package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/assay-project/assay/internal/build"
)

// NFD's programs tell their versions by metrics of these names; the controller is two of them in one.
func init() {
	for _, name := range []string{"nfd_master_build_info", "nfd_gc_build_info"} {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: "1, with the version of the program."}, []string{"version"})
		g.WithLabelValues(build.Version()).Set(1)
		ctrlmetrics.Registry.MustRegister(g)
	}
}

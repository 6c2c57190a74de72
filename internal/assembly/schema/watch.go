package schema

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// DefaultEvery is the interval at which the CRD is read. An informer would notice changes at once, but would prevent the manager
// from starting without the permission to list CRDs.
const DefaultEvery = 10 * time.Second

// Watch reads the CRD periodically.
type Watch struct {
	Guard *Guard
	// Every is the interval between two reads. It defaults to DefaultEvery.
	Every time.Duration
	// Changed is called when the missing fields have changed.
	Changed func(context.Context)

	failed bool
}

// missingFields is shared by the managers of this process, which may run one after the other.
var missingFields = sync.OnceValue(func() prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "assay_schema_missing_fields",
		Help: "Fields of NodeFeatureRule that the API server drops, because another chart has installed the definition.",
	})
	ctrlmetrics.Registry.MustRegister(g)
	return g
})

// Start reads the CRD until the context ends.
func (w *Watch) Start(ctx context.Context) error {
	_ = wait.PollUntilContextCancel(ctx, cmp.Or(w.Every, DefaultEvery), false, func(ctx context.Context) (bool, error) {
		if w.Look(ctx) {
			w.Changed(ctx)
		}
		return false, nil
	})
	return nil
}

// Look reads the CRD once, reports missing fields in the log and in a metric, and returns whether they have changed. If the CRD
// cannot be read, Look assumes that it is complete or unchanged: without this permission Assay still writes labels.
func (w *Watch) Look(ctx context.Context) (changed bool) {
	log := logf.FromContext(ctx)
	changed, err := w.Guard.Refresh(ctx)
	if err != nil {
		if !w.failed && ctx.Err() == nil {
			log.Error(err, "Cannot compare the CustomResourceDefinition of NodeFeatureRule; assuming that it is current")
		}
		w.failed = true
		return false
	}
	w.failed = false
	missing := w.Guard.Missing()
	missingFields().Set(float64(len(missing)))
	switch {
	case changed && len(missing) > 0:
		log.Info("NodeFeatureRule CRD is missing fields; the API server drops them", "missing", missing)
	case changed:
		log.Info("NodeFeatureRule CRD has all fields again")
	}
	return changed
}

package schema

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// DefaultEvery is the interval at which the definition is read. An informer would notice changes at once, but would keep the
// manager from starting where it may not list definitions.
const DefaultEvery = 10 * time.Second

// Watch reads the definition periodically, on every replica. It implements manager.Runnable.
type Watch struct {
	Guard *Guard
	// Every is the interval between two reads; 0: DefaultEvery.
	Every time.Duration
	// Changed is called when other fields are missing than before.
	Changed func(context.Context)

	failed bool
}

// missingFields is of the process: managers may follow one another in it.
var missingFields = sync.OnceValue(func() prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "assay_schema_missing_fields",
		Help: "Fields of NodeFeatureRule that the API server drops, because another chart has installed the definition.",
	})
	ctrlmetrics.Registry.MustRegister(g)
	return g
})

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Watch) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (w *Watch) Start(ctx context.Context) error {
	every := w.Every
	if every == 0 {
		every = DefaultEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if w.Look(ctx) {
				w.Changed(ctx)
			}
		}
	}
}

// Look reads the definition once, reports missing fields in the log and in a metric, and returns whether they have changed. A
// definition that cannot be read is assumed to be current, or unchanged: without that permission Assay still writes labels.
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
		log.Info("WARNING: the CustomResourceDefinition of NodeFeatureRule lacks fields of Assay; the API server drops them silently",
			"missing", missing)
	case changed:
		log.Info("The CustomResourceDefinition of NodeFeatureRule has all fields again")
	}
	return changed
}

package schema

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// DefaultEvery is the interval at which the CRD is read while it cannot be watched, and the delay before it is watched again. An informer
// would prevent the manager from starting without the permission to list CRDs.
const DefaultEvery = 10 * time.Second

// Watch reads the CRD when it changes.
type Watch struct {
	Guard *Guard
	// Events opens a watch of the CRD that begins with its present state; see WatchDefinition. nil: the CRD is read every interval.
	Events func(context.Context) (watch.Interface, error)
	// Every is the interval between two reads if the CRD cannot be watched. It defaults to DefaultEvery.
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

// Start watches the CRD until the context ends.
func (w *Watch) Start(ctx context.Context) error {
	_ = wait.PollUntilContextCancel(ctx, cmp.Or(w.Every, DefaultEvery), true, func(ctx context.Context) (bool, error) {
		w.follow(ctx)
		return false, nil
	})
	return nil
}

// follow reads the CRD at every event until the watch ends. If it cannot be watched, follow reads it once.
func (w *Watch) follow(ctx context.Context) {
	read := func() {
		if w.Look(ctx) {
			w.Changed(ctx)
		}
	}
	if w.Events == nil {
		read()
		return
	}
	events, err := w.Events(ctx)
	if err != nil {
		logf.FromContext(ctx).V(1).Info("Cannot watch the CustomResourceDefinition of NodeFeatureRule; reading it periodically", "error", err.Error())
		read()
		return
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-events.ResultChan():
			if !open {
				return
			}
			read()
		}
	}
}

// WatchDefinition returns the Events of a Watch.
func WatchDefinition(c client.WithWatch) func(context.Context) (watch.Interface, error) {
	return func(ctx context.Context) (watch.Interface, error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(Kind)
		return c.Watch(ctx, list, client.MatchingFields{"metadata.name": Definition})
	}
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

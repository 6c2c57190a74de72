package controller

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/nodefeature"
)

// reportBuild registers the metrics with which NFD's programs report their versions; the controller replaces two of these programs.
// The webhook is the same binary and must not have them: an alert fires when they are absent.
var reportBuild = sync.OnceFunc(func() {
	for _, name := range []string{"nfd_master_build_info", "nfd_gc_build_info"} {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: "Always 1, with the version of the program as a label."}, []string{"version"})
		g.WithLabelValues(build.Version()).Set(1)
		ctrlmetrics.Registry.MustRegister(g)
	}
})

func init() {
	ctrlmetrics.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "assay_published_nodes", Help: "Nodes whose features a worker has published, whether or not the worker still runs.",
	}, published.count), LeftOut(features.Load), Dropped(storedSets.Load))
}

// features is the budget of the manager that was started last.
var features atomic.Pointer[nodefeature.Budget]

// NewBudget returns the budget of the NodeFeatures in this process, and exposes it as a metric. Namespace is Assay's own.
func NewBudget(namespace string) *nodefeature.Budget {
	b := nodefeature.NewBudget(namespace)
	features.Store(b)
	return b
}

// LeftOut is the name of the metric of NodeFeatures that are ignored because of a budget.
func LeftOut(budget func() *nodefeature.Budget) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "assay_nodefeatures_left_out", Help: "NodeFeatures that are ignored because they exceed the budget.",
	}, func() float64 {
		if b := budget(); b != nil {
			return float64(b.LeftOut())
		}
		return 0
	})
}

// storedSets are the feature sets of the manager that was started last.
var storedSets atomic.Pointer[featuresets.Store]

// Dropped is the metric of NodeFeatureSets that are not kept in memory because of a budget.
func Dropped(sets func() *featuresets.Store) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "assay_nodefeaturesets_dropped", Help: "NodeFeatureSets whose features are not in memory because no NodeFeature names them and there are too many.",
	}, func() float64 {
		if s := sets(); s != nil {
			return float64(s.Dropped())
		}
		return 0
	})
}

// published counts the nodes that workers have published, from the cache of the manager that was started last.
var published publishedNodes

type publishedNodes struct{ cache atomic.Pointer[client.Reader] }

// scrapePatience is the maximum time that a scrape waits for a cache to be filled.
const scrapePatience = time.Second

// count returns NaN while the NodeFeatures are not known, so that no alert fires.
func (p *publishedNodes) count() float64 {
	cache := p.cache.Load()
	if cache == nil {
		return math.NaN()
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapePatience)
	defer cancel()
	var list nodefeature.NodeFeatureList
	if err := (*cache).List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return math.NaN()
	}
	nodes := map[string]bool{}
	for i := range list.Items {
		if list.Items[i].Annotations[nfdv1alpha1.WorkerVersionAnnotation] != "" {
			nodes[list.Items[i].NodeName()] = true
		}
	}
	return float64(len(nodes))
}

package controller

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/internal/fleet/devices"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/plan"
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
	}, published.count), LeftOut(features.Load), Dropped(storedSets.Load), nodesByReady{}, ignoredSlices{ignoredDesc})
}

// nodesByReady counts the Nodes by the status of their condition FeaturesReady, from the cache of the manager that was started last.
type nodesByReady struct{}

var nodesDesc = prometheus.NewDesc("assay_nodes", "Nodes by the status of the condition FeaturesReady: True, False, Unknown, or None.", []string{"features_ready"}, nil)

// Describe implements prometheus.Collector.
func (nodesByReady) Describe(c chan<- *prometheus.Desc) { c <- nodesDesc }

// Collect implements prometheus.Collector. It sends nothing until the Nodes are known.
func (nodesByReady) Collect(c chan<- prometheus.Metric) {
	cache := published.cache.Load()
	if cache == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapePatience)
	defer cancel()
	var list corev1.NodeList
	if err := (*cache).List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	const none = "None"
	count := map[string]int{string(corev1.ConditionTrue): 0, string(corev1.ConditionFalse): 0, string(corev1.ConditionUnknown): 0, none: 0}
	for i := range list.Items {
		status := none
		if ready := plan.StateOf(&list.Items[i]).Ready(); ready != nil {
			status = string(ready.Status)
		}
		count[status]++
	}
	for status, n := range count {
		c <- prometheus.MustNewConstMetric(nodesDesc, prometheus.GaugeValue, float64(n), status)
	}
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

// slicesOf are the devices of the manager that was started last.
var slicesOf atomic.Pointer[devices.Devices]

// ignoredSlices is the metric of ResourceSlices that no rule reads.
type ignoredSlices struct{ desc *prometheus.Desc }

var ignoredDesc = prometheus.NewDesc("assay_resourceslices_ignored",
	"ResourceSlices that no rule reads, by reason: SeveralNodes, Driver, OldGeneration or TooMany. Absent until a rule reads devices.", []string{"reason"}, nil)

// Describe implements prometheus.Collector.
func (i ignoredSlices) Describe(to chan<- *prometheus.Desc) { to <- i.desc }

// Collect implements prometheus.Collector.
func (i ignoredSlices) Collect(to chan<- prometheus.Metric) {
	d := slicesOf.Load()
	if d == nil || !d.Read() {
		return
	}
	for reason, n := range d.Ignored() {
		to <- prometheus.MustNewConstMetric(i.desc, prometheus.GaugeValue, float64(n), reason)
	}
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

package rule

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// scrapePatience is the maximum time that a scrape waits for a cache to be filled.
const scrapePatience = time.Second

// counted are the conditions that are counted, with their two meaningful statuses: 18 series, independent of the number of rules.
var (
	counted  = []string{nfdv1alpha1.ConditionReady, nfdv1alpha1.ConditionStalled, nfdv1alpha1.ConditionAccepted, nfdv1alpha1.ConditionResolved, nfdv1alpha1.ConditionHealthy, nfdv1alpha1.ConditionConflicted, nfdv1alpha1.ConditionRejecting, nfdv1alpha1.ConditionFlapping, nfdv1alpha1.ConditionWithheld}
	statuses = []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse}
)

// conditionCounter counts NodeFeatureRules by their conditions on each scrape. It reads the status of the objects, so that all
// replicas report the same numbers.
type conditionCounter struct {
	desc   *prometheus.Desc
	reader atomic.Pointer[client.Reader]
}

// sharedCounter is the counter of the process, even if it starts several managers one after another.
var sharedCounter = sync.OnceValue(func() *conditionCounter {
	c := &conditionCounter{desc: prometheus.NewDesc("assay_rules", "NodeFeatureRules by condition and status.", []string{"condition", "status"}, nil)}
	ctrlmetrics.Registry.MustRegister(c)
	return c
})

// countConditions counts the NodeFeatureRules that a client reads.
func countConditions(rules client.Reader) { sharedCounter().reader.Store(&rules) }

// Describe implements prometheus.Collector.
func (c *conditionCounter) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector.
func (c *conditionCounter) Collect(ch chan<- prometheus.Metric) {
	reader := c.reader.Load()
	if reader == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapePatience)
	defer cancel()
	var list nfdv1alpha1.NodeFeatureRuleList
	if err := (*reader).List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return // the cache is not filled yet: no count is better than a wrong one
	}
	type key struct {
		kind   string
		status metav1.ConditionStatus
	}
	n := map[key]int{}
	for i := range list.Items {
		for _, c := range list.Items[i].Status.Conditions {
			n[key{c.Type, c.Status}]++
		}
	}
	for _, kind := range counted {
		for _, status := range statuses {
			ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n[key{kind, status}]), kind, string(status))
		}
	}
}

package shape

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"

	"github.com/assay-project/assay/settings"
)

// BenchmarkFleet measures 15,000 nodes in 200 shapes, each node with 60 labels of rules: one pass over all shapes, without the API server;
// what the index of nodes by shape takes of memory; and how large the objects are.
//
//	go test ./controller/shape -run '^$' -bench Fleet
func BenchmarkFleet(b *testing.B) {
	const nodes, shapes, labels = 15_000, 200, 60
	r := &Reconciler{opt: Options{Labels: settings.DefaultNodeShapeLabels}}
	indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{})
	for i := range nodes {
		if err := indexer.Add(fleetNode(i, i%shapes, labels)); err != nil {
			b.Fatal(err)
		}
	}
	before := heap()
	if err := indexer.AddIndexers(toolscache.Indexers{byShape: r.shapeOf}); err != nil {
		b.Fatal(err)
	}
	index := heap() - before
	names := indexer.ListIndexFuncValues(byShape)
	if len(names) != shapes {
		b.Fatalf("%d shapes", len(names))
	}
	statuses := map[string]assayv1alpha1.NodeShapeStatus{}
	for b.Loop() {
		for _, name := range names {
			of, err := indexer.IndexKeys(byShape, name)
			if err != nil {
				b.Fatal(err)
			}
			nodes, _ := r.members(name, of, func(name string) *corev1.Node {
				o, _, _ := indexer.GetByKey(name)
				return o.(*corev1.Node)
			})
			s, _ := decide(statuses[name], nodes, metav1.NewTime(time.Unix(1, 0)))
			if s.LastSeen == nil || len(s.Labels) != labels {
				b.Fatalf("the status is %+v", s)
			}
			statuses[name] = s
		}
	}
	largest := 0
	for _, s := range statuses {
		text, err := json.Marshal(s)
		if err != nil {
			b.Fatal(err)
		}
		largest = max(largest, len(text))
	}
	b.ReportMetric(float64(index)/nodes, "index-B/node")
	b.ReportMetric(float64(largest), "B/shape")
	b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N), "ms/pass")
	runtime.KeepAlive(indexer)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func fleetNode(i, shape, labels int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("ip-10-%d-%d.eu-west-1.compute.internal", i/250, i%250), UID: types.UID(fmt.Sprintf("%08d-7a3b-4a56-9f1b-0c2a2f6f5f10", i)),
		CreationTimestamp: metav1.NewTime(time.Unix(int64(i), 0)),
		Labels: m{
			assayv1alpha1.NodePoolLabel: fmt.Sprintf("pool-%d", shape%20), corev1.LabelInstanceTypeStable: fmt.Sprintf("c%d.large", shape),
			corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
		},
	}}
	var record []string
	for l := range labels {
		name := fmt.Sprintf("cpu-cpuid.FEATURE%d", l)
		n.Labels[nfdv1alpha1.FeatureLabelNamespace+"/"+name] = "true"
		record = append(record, name)
	}
	n.Annotations = m{nfdv1alpha1.FeatureLabelsAnnotation: strings.Join(record, ",")}
	n.Status.Conditions = []corev1.NodeCondition{{Type: assayv1alpha1.FeaturesReadyCondition, Status: corev1.ConditionTrue}}
	return n
}

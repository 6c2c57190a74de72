//go:build linux

package scheduling

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/asks"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/admit"
)

// BenchmarkThroughput measures how many pods a second the real kube-scheduler places on 5,000 nodes: without an extender, with
// one for pods that ask for nothing, with one for pods that ask, and with one that does nothing. Beside that it prints how often
// the extender was asked for each pod, and the processor time that all programs together took for it: kube-apiserver, etcd, the
// scheduler, and the extender. That is the better figure on a machine that does other things too.
//
//	bin/cluster run -- go test ./test/scheduling -run '^$' -bench . -benchtime 1x
//
// $NODES and $PODS change the size.
func BenchmarkThroughput(b *testing.B) {
	nodes, pods := number("NODES", 5000), number("PODS", 1000)
	w := newWorld(b, nodes)
	for i := range 2 {
		node := fmt.Sprintf("n%d", nodes/3+i)
		w.publish(b, node, "AVX", "Rare")
		if err := w.api.Patch(b.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"feature.node.kubernetes.io/rare":"true"}}}`))); err != nil {
			b.Fatal(err)
		}
	}
	nothing := echo(b)
	schedulers := map[string]func(name string){
		"none": func(name string) {
			config := fmt.Sprintf("profiles: [{schedulerName: %s}]\nclientConnection: {qps: 5000, burst: 5000}\n", name)
			if err := w.RunScheduler(b.Context(), name, []byte(config)); err != nil {
				b.Fatal(err)
			}
		},
		"marked":  func(name string) { w.markingScheduler(b, name, "", w.direct, w.direct) },
		"nothing": func(name string) { w.schedulerAt(b, name, nothing, "", "", true) },
		"sampled": func(name string) { w.schedulerAt(b, name, w.direct, "", "", true) },
		"full":    func(name string) { w.schedulerAt(b, name, w.direct, ", percentageOfNodesToScore: 100", "", true) },
	}
	for i, run := range []struct {
		name, scheduler string
		pods            int
		change          []func(*corev1.Pod)
	}{
		{"WithoutExtender", "none", pods, nil},
		{"AskForNothingMarked", "marked", pods, nil},
		{"ExtenderThatDoesNothing", "nothing", pods, nil},
		{"AskForNothing", "sampled", pods, nil},
		{"Required", "sampled", pods, []func(*corev1.Pod){requires("AVX")}},
		{"RequiredAndPreferred", "sampled", pods, []func(*corev1.Pod){requires("AVX"), prefers("Rare")}},
		{"RequiredMarked", "marked", pods, []func(*corev1.Pod){requires("AVX"), requests(assayv1alpha1.MarkerResource, "1")}},
		{"WithoutExtenderAgain", "none", pods, nil},
		{"RequiredAgain", "sampled", pods, []func(*corev1.Pod){requires("AVX")}},
		{"RareOn2NodesSampled", "sampled", 100, []func(*corev1.Pod){requires("Rare")}},
		{"RareOn2NodesFull", "full", 100, []func(*corev1.Pod){requires("Rare")}},
		{"RareOn2NodesLabelled", "sampled", 100, []func(*corev1.Pod){requires("Rare"), w.admitted(b, rare)}},
	} {
		b.Run(run.name, func(b *testing.B) {
			// One scheduler at a time: each follows all nodes and pods, and four of them would take more than the extender.
			scheduler := fmt.Sprintf("%s-%d", run.scheduler, i)
			schedulers[run.scheduler](scheduler)
			first := newPod(w.namespace(b, nil), "first", scheduler) // until it knows the nodes
			w.create(b, first)
			w.placed(b, first)
			for b.Loop() {
				w.measure(b, scheduler, run.pods, run.change...)
			}
			if err := w.Terminate(b.Context(), scheduler); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// echo is the least that an extender can do: it names all nodes that it was asked about. What pods are placed slower with it
// than without any is the price of the protocol, which no extender can undercut.
func echo(b *testing.B) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answer := []byte("[]")
		if _, names, ok := bytes.Cut(body, []byte(`"NodeNames":`)); ok && r.URL.Path == "/filter" {
			answer = append([]byte(`{"NodeNames":`), names...)
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer)
	}))
	b.Cleanup(s.Close)
	return s.URL
}

// rare is the rule that labels the nodes of the rare feature. The nodes are labelled by hand here, no controller runs.
var rare = &nfdv1alpha1.NodeFeatureRule{
	ObjectMeta: metav1.ObjectMeta{Name: "rare"},
	Spec: nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{
		Name: "rare", Labels: map[string]string{"rare": "true"}, MatchFeatures: requirement("Rare").MatchFeatures,
	}}},
}

// admitted changes pods as admission does while a rule is in force: a requirement that is the same as a label becomes node
// affinity, which the scheduler looks at before it samples nodes.
func (w *world) admitted(b *testing.B, rule *nfdv1alpha1.NodeFeatureRule) func(*corev1.Pod) {
	set, report := rules.Compile(rule, rules.Options{})
	if err := report.Errors.ToAggregate(); err != nil {
		b.Fatal(err)
	}
	labels := admit.LabelsOf([]admit.Rules{{Set: set, Spec: &rule.Spec}}, rules.Options{})
	known := asks.New(rules.Options{})
	return func(p *corev1.Pod) {
		ask, _ := known.Of(p.Namespace, p.Labels, p.Annotations)
		for _, step := range admit.Decide(admit.Input{Pod: p, Ask: ask, Labels: labels}) {
			if affinity, ok := step.Value.(*corev1.Affinity); ok {
				p.Spec.Affinity = affinity
			}
		}
	}
}

// processorTime is what this process and the programs that it has started have taken so far (proc(5), stat, fields 14 and 15).
func processorTime(b *testing.B) time.Duration {
	const parent, user, system = 1, 11, 12 // counted from field 3
	const tick = 10 * time.Millisecond     // USER_HZ, the same on all architectures that matter
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	var total time.Duration
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		self := strconv.Itoa(os.Getpid())
		if fields[parent] != self && path != "/proc/"+self+"/stat" {
			continue
		}
		for _, field := range []int{user, system} {
			ticks, err := strconv.Atoi(fields[field])
			if err != nil {
				b.Fatal(err)
			}
			total += time.Duration(ticks) * tick
		}
	}
	return total
}

func number(name string, fallback int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return fallback
}

// patience is how long pods may take before those that are left count as not placed.
const patience = time.Minute

// measure creates pods and prints how fast they are placed.
func (w *world) measure(b *testing.B, scheduler string, n int, change ...func(*corev1.Pod)) {
	ns := w.namespace(b, nil)
	watch, err := w.api.Watch(b.Context(), &corev1.PodList{}, client.InNamespace(ns))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { watch.Stop() }()
	before, spent, cpu := w.answers.Load(), w.spent.Load(), processorTime(b)
	start := time.Now()
	var g errgroup.Group
	g.SetLimit(16)
	go func() {
		for i := range n {
			g.Go(func() error {
				return w.api.Create(b.Context(), newPod(ns, fmt.Sprintf("p%d", i), scheduler, change...))
			})
		}
	}()
	placed := map[string]bool{}
	var last time.Time
	end := time.After(patience)
loop:
	for len(placed) < n {
		select {
		case <-end:
			break loop
		case e, ok := <-watch.ResultChan():
			if !ok { // the API server may end a watch at any time; a new one begins with what there is
				if watch, err = w.api.Watch(b.Context(), &corev1.PodList{}, client.InNamespace(ns)); err != nil {
					b.Fatal(err)
				}
				continue
			}
			if p, ok := e.Object.(*corev1.Pod); ok && p.Spec.NodeName != "" && !placed[p.Name] {
				placed[p.Name], last = true, time.Now()
			}
		}
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(len(placed))/last.Sub(start).Seconds(), "pods/s")
	b.ReportMetric(last.Sub(start).Seconds(), "s-until-last")
	b.ReportMetric(float64(w.answers.Load()-before)/float64(n), "requests/pod")
	b.ReportMetric(float64(w.spent.Load()-spent)/1000/float64(n), "µs-in-extender/pod")
	b.ReportMetric(float64((processorTime(b)-cpu).Microseconds())/1000/float64(n), "cpu-ms/pod")
	b.ReportMetric(float64(n-len(placed)), "not-placed")
	b.ReportMetric(0, "ns/op")
	if err := w.api.DeleteAllOf(b.Context(), &corev1.Pod{}, client.InNamespace(ns), client.GracePeriodSeconds(0)); err != nil {
		b.Fatal(err)
	}
	testkit.Eventually(b, "the pods are gone", func(ctx context.Context) error {
		var list corev1.PodList
		if err := w.api.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return err
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("%d are left", len(list.Items))
		}
		return nil
	})
}

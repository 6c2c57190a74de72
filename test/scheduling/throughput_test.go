//go:build linux

package scheduling

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/internal/testkit"
)

// BenchmarkThroughput measures how many pods a second the real kube-scheduler places on 5,000 nodes: without an extender, with
// one for pods that ask for nothing, and with one for pods that ask. It prints how often the extender was asked for each pod.
//
//	bin/cluster run -- go test ./test/scheduling -run '^$' -bench . -benchtime 1x
//
// $NODES and $PODS change the size.
func BenchmarkThroughput(b *testing.B) {
	nodes, pods := number("NODES", 5000), number("PODS", 1000)
	w := newWorld(b, nodes)
	if err := w.RunScheduler(b.Context(), "none", []byte("profiles: [{schedulerName: none}]\nclientConnection: {qps: 5000, burst: 5000}\n")); err != nil {
		b.Fatal(err)
	}
	w.schedulerAt(b, "sampled", w.direct, "", "", true)
	w.schedulerAt(b, "marked", w.direct, "", "  managedResources: [{name: assay.dev/features, ignoredByScheduler: true}]\n", true)
	w.schedulerAt(b, "full", w.direct, ", percentageOfNodesToScore: 100", "", true)
	for i := range 2 {
		w.publish(b, fmt.Sprintf("n%d", nodes/3+i), "AVX", "Rare")
	}
	warm := w.namespace(b, nil)
	for _, name := range []string{"none", "marked", "sampled", "full"} { // until it knows the nodes
		p := newPod(warm, name, name)
		w.create(b, p)
		w.placed(b, p)
	}
	for _, run := range []struct {
		name, scheduler string
		pods            int
		change          []func(*corev1.Pod)
	}{
		{"WithoutExtender", "none", pods, nil},
		{"AskForNothingMarked", "marked", pods, nil},
		{"AskForNothing", "sampled", pods, nil},
		{"Required", "sampled", pods, []func(*corev1.Pod){requires("AVX")}},
		{"RequiredAndPreferred", "sampled", pods, []func(*corev1.Pod){requires("AVX"), prefers("Rare")}},
		{"AskForNothingAgain", "sampled", pods, nil},
		{"RequiredAgain", "sampled", pods, []func(*corev1.Pod){requires("AVX")}},
		{"WithoutExtenderAgain", "none", pods, nil},
		{"RareOn2NodesSampled", "sampled", 100, []func(*corev1.Pod){requires("Rare")}},
		{"RareOn2NodesFull", "full", 100, []func(*corev1.Pod){requires("Rare")}},
	} {
		b.Run(run.name, func(b *testing.B) {
			for b.Loop() {
				w.measure(b, run.scheduler, run.pods, run.change...)
			}
		})
	}
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
	before, spent := w.answers.Load(), w.spent.Load()
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
	b.ReportMetric(float64(w.answers.Load()-before)/float64(n), "requests/pod")
	b.ReportMetric(float64(w.spent.Load()-spent)/1000/float64(n), "µs-in-extender/pod")
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

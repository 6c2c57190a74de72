//go:build linux

package scheduling

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/podadmission"
	"github.com/assay-project/assay/rules/requirements"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

// BenchmarkThroughput measures the number of pending pods per second that the real kube-scheduler places on 5,000 nodes: without an
// extender, with one for pods without requirements, with one for pods with requirements, and with one that does nothing. Every
// program is a separate process, as under a kubelet.
//
// It also prints the number and duration of extender requests per pod, and the CPU time of the programs. CPU time is the better
// figure on a loaded machine: with as few processors as programs, each program takes time from the others.
//
//	bin/cluster run -- go test ./test/scheduling -run '^$' -bench . -benchtime 1x
//
// $NODES and $PODS change the size. $ROUNDS repeats all of it: on a shared machine the speed varies by a quarter from minute to
// minute, so only medians of several rounds can be compared. They are printed at the end, also relative to those without an
// extender.
func BenchmarkThroughput(b *testing.B) {
	nodes, pods := number("NODES", 5000), number("PODS", 1000)
	w := newNodes(b, nodes)
	for i := range 2 {
		node := fmt.Sprintf("n%d", nodes/3+i)
		w.setFlags(b, node, "AVX", "Rare")
		if err := w.api.Patch(b.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"feature.node.kubernetes.io/rare":"true"}}}`))); err != nil {
			b.Fatal(err)
		}
	}
	url := runManager(b, w.Cluster, programs(b), stage.Extender).Health
	nothing := w.echo(b)
	schedulers := map[string]func(name string){
		"none":    func(name string) { w.plainScheduler(b, name) },
		"nothing": func(name string) { w.schedulerAt(b, name, nothing, "", "", true) },
		"sampled": func(name string) { w.schedulerAt(b, name, url, "", "", true) },
		"batches": func(name string) {
			config := fmt.Sprintf("profiles: [{schedulerName: %s%s}]\nclientConnection: {qps: 5000, burst: 5000}\n", name, signable)
			if err := w.RunScheduler(b.Context(), name, []byte(config)); err != nil {
				b.Fatal(err)
			}
		},
		"identical": func(name string) { w.schedulerAt(b, name, url, signable, "", true) }, // without batches, because of the extender
		"full":      func(name string) { w.schedulerAt(b, name, url, ", percentageOfNodesToScore: 100", "", true) },
	}
	runs := []struct {
		name, scheduler string
		pods            int
		change          []func(*corev1.Pod)
	}{
		{without, "none", pods, nil},
		{"ExtenderThatDoesNothing", "nothing", pods, nil},
		{"AskForNothing", "sampled", pods, nil},
		{"Required", "sampled", pods, []func(*corev1.Pod){requires("AVX")}},
		{"RequiredAndPreferred", "sampled", pods, []func(*corev1.Pod){requires("AVX"), prefers("Rare")}},
		{"RequiredLabelled", "none", pods, []func(*corev1.Pod){requires("AVX"), admitted(b, labeling("avx", "AVX"))}},
		{"RequiredMaterialized", "none", pods, []func(*corev1.Pod){selects("avx")}},
		{"Identical", "batches", pods, []func(*corev1.Pod){wholeNode}},
		{"IdenticalRequired", "identical", pods, []func(*corev1.Pod){wholeNode, requires("AVX")}},
		{"IdenticalMaterialized", "batches", pods, []func(*corev1.Pod){wholeNode, selects("avx")}},
		{"RareOn2NodesSampled", "sampled", 100, []func(*corev1.Pod){requires("Rare")}},
		{"RareOn2NodesFull", "full", 100, []func(*corev1.Pod){requires("Rare")}},
		{"RareOn2NodesLabelled", "sampled", 100, []func(*corev1.Pod){requires("Rare"), admitted(b, labeling("rare", "Rare"))}},
	}
	figures := map[string][]figure{}
	for round := range number("ROUNDS", 1) {
		for i, run := range runs {
			b.Run(run.name, func(b *testing.B) {
				for n := 0; b.Loop(); n++ {
					// One scheduler at a time: each watches all nodes and pods, and four of them would use more CPU time than the
					// extender.
					scheduler := fmt.Sprintf("%s-%d-%d-%d", run.scheduler, i, round, n)
					figures[run.name] = append(figures[run.name], w.measure(b, url, scheduler, schedulers[run.scheduler], run.pods, run.change...))
				}
			})
		}
	}
	for _, run := range runs {
		if all := figures[run.name]; len(all) > 0 {
			speed, processor := medians(all)
			free, _ := medians(figures[without])
			fmt.Printf("%-24s median of %d: %4.0f pods/s, %3.0f %%; %5.2f ms of processor time a pod\n",
				run.name, len(all), speed, 100*speed/free, processor)
		}
	}
}

// without is the run with which others are compared.
const without = "WithoutExtender"

// figure is the number of pods placed per second, and the CPU time of all programs per pod in milliseconds.
type figure struct{ speed, processor float64 }

func medians(all []figure) (speed, processor float64) {
	median := func(of func(figure) float64) float64 {
		if len(all) == 0 {
			return math.NaN()
		}
		values := make([]float64, len(all))
		for i, f := range all {
			values[i] = of(f)
		}
		slices.Sort(values)
		return (values[len(values)/2] + values[(len(values)-1)/2]) / 2
	}
	return median(func(f figure) float64 { return f.speed }), median(func(f figure) float64 { return f.processor })
}

// echoAt is the environment variable that turns this program into an extender that does nothing, at that address.
const echoAt = "ASSAY_TEST_ECHO_AT"

// echo runs a minimal extender, which returns all nodes in a request. The difference to a run without an extender is the cost of
// the protocol, which no extender can avoid.
func (w *world) echo(b *testing.B) (url string) {
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	address := testkit.FreeAddress(b)
	url = "http://" + address
	err = w.Run(b.Context(), cluster.Program{
		Name: "echo", Path: program, Env: []string{echoAt + "=" + address},
		Ready: func(ctx context.Context) error { _, err := testkit.Get(ctx, url); return err },
	})
	if err != nil {
		b.Fatal(err)
	}
	return url
}

func serveEcho(address string) error {
	return http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // of a benchmark
		body, _ := io.ReadAll(r.Body)
		answer := []byte("[]")
		if _, names, ok := bytes.Cut(body, []byte(`"NodeNames":`)); ok && r.URL.Path == "/filter" {
			answer = append([]byte(`{"NodeNames":`), names...)
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer)
	}))
}

// labeling is a rule that labels the nodes with a flag. The test labels the nodes itself, since no controller is running.
func labeling(label, flag string) *nfdv1alpha1.NodeFeatureRule {
	return &nfdv1alpha1.NodeFeatureRule{
		ObjectMeta: metav1.ObjectMeta{Name: label},
		Spec: nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{
			Name: label, Labels: map[string]string{label: "true"}, MatchFeatures: requirement(flag).MatchFeatures,
		}}},
	}
}

// admitted mutates pods like admission with these rules: a requirement that is equivalent to a label becomes a node selector, which
// the scheduler evaluates before it samples nodes.
func admitted(b *testing.B, active ...*nfdv1alpha1.NodeFeatureRule) func(*corev1.Pod) {
	var known []podadmission.Rules
	for _, rule := range active {
		set, report := rules.Compile(rule, rules.Options{})
		if err := report.Errors.ToAggregate(); err != nil {
			b.Fatal(err)
		}
		known = append(known, podadmission.Rules{Set: set, Spec: &rule.Spec})
	}
	in := podadmission.Input{Labels: podadmission.LabelsOf(known, rules.Options{})}
	requests := podrequirements.New(rules.Options{})
	return func(p *corev1.Pod) {
		in := in
		in.Requirements, _ = requests.Of(p.Namespace, p.Labels, p.Annotations)
		in.Pod = p
		for _, step := range podadmission.Decide(in) {
			if selector, ok := step.Value.(map[string]string); ok && step.Path == "/spec/nodeSelector" {
				p.Spec.NodeSelector = selector
			}
		}
		if p.Spec.NodeSelector == nil {
			b.Fatal("admission has not added a node selector")
		}
	}
}

// selects is the node selector of the label of a materialized NodeFeatureRequest.
func selects(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.NodeSelector = map[string]string{requirements.LabelOf(requestNamespace, name): "true"}
	}
}

func number(name string, fallback int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return fallback
}

// patience is the time after which unplaced pods are counted as not placed.
const patience = time.Minute

// ordinary adds CPU and memory requests to pods, as in most pods, and in Kubernetes' scheduler benchmarks.
func ordinary(p *corev1.Pod) {
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("500Mi"),
	}}
}

// signable is the part of a profile without which kube-scheduler 1.36 schedules no pods in batches: pods with default topology spread
// constraints, which every pod has by default, have no signature (SignPod of PodTopologySpread).
const signable = ", pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List}}]"

// wholeNode makes a pod so large that a node has room for one: kube-scheduler schedules such pods in batches if they are identical
// (KEP-5598).
func wholeNode(p *corev1.Pod) {
	p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("40")
}

// measure creates pods, starts a scheduler for them, and prints how fast they are placed. The clock starts when a tenth of them is
// placed, since the first ones wait for the scheduler's caches.
func (w *world) measure(b *testing.B, extender, scheduler string, start func(scheduler string), n int, change ...func(*corev1.Pod)) figure {
	ns := w.namespace(b, nil)
	var g errgroup.Group
	g.SetLimit(16)
	for i := range n {
		g.Go(func() error {
			p := newPod(ns, fmt.Sprintf("p%d", i), scheduler, append([]func(*corev1.Pod){ordinary}, change...)...)
			return w.api.Create(b.Context(), p)
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	watch, err := w.api.Watch(b.Context(), &corev1.PodList{}, client.InNamespace(ns))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { watch.Stop() }()
	start(scheduler)
	placed := map[string]bool{}
	warm := n / 10
	var begin, last time.Time
	var before spent
	end := time.After(patience)
loop:
	for len(placed) < n {
		select {
		case <-end:
			break loop
		case e, ok := <-watch.ResultChan():
			if !ok { // the API server can end a watch at any time; a new one starts with the current state
				if watch, err = w.api.Watch(b.Context(), &corev1.PodList{}, client.InNamespace(ns)); err != nil {
					b.Fatal(err)
				}
				continue
			}
			if p, ok := e.Object.(*corev1.Pod); ok && p.Spec.NodeName != "" && !placed[p.Name] {
				placed[p.Name], last = true, time.Now()
				if len(placed) == warm {
					begin, before = last, spentUntilNow(b, extender)
				}
			}
		}
	}
	after := spentUntilNow(b, extender)
	pods := float64(len(placed) - warm)
	speed := pods / last.Sub(begin).Seconds()
	b.ReportMetric(speed, "pods/s")
	b.ReportMetric(last.Sub(begin).Seconds(), "s-until-last")
	b.ReportMetric((after.answers-before.answers)/pods, "requests/pod")
	b.ReportMetric((after.answering-before.answering)*1000/pods, "ms-in-extender/pod")
	var all time.Duration
	for program, until := range after.processor {
		took := until - before.processor[program]
		all += took
		b.ReportMetric(float64(took.Microseconds())/1000/pods, program+"-ms/pod")
	}
	processor := float64(all.Microseconds()) / 1000 / pods
	b.ReportMetric(processor, "cpu-ms/pod")
	b.ReportMetric(float64(n-len(placed)), "not-placed")
	b.ReportMetric(0, "ns/op")
	if err := w.Terminate(b.Context(), scheduler); err != nil {
		b.Fatal(err)
	}
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
	return figure{speed, processor}
}

// spent is the usage so far: responses of the extender, their total duration in seconds, and the CPU time of the programs.
type spent struct {
	answers, answering float64
	processor          map[string]time.Duration
}

func spentUntilNow(b *testing.B, extender string) spent {
	metrics, err := testkit.Get(b.Context(), extender+"/metrics")
	if err != nil {
		b.Fatal(err)
	}
	total := func(name string) (sum float64) {
		for line := range strings.Lines(metrics) {
			if strings.HasPrefix(line, "assay_extender_request_duration_seconds_"+name+"{") {
				value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
				if err != nil {
					b.Fatal(err)
				}
				sum += value
			}
		}
		return sum
	}
	return spent{total("count"), total("sum"), processorTimes(b)}
}

// processorTimes returns the CPU time of this process ("test") and its child processes, by command name (proc(5), stat, fields 14
// and 15).
func processorTimes(b *testing.B) map[string]time.Duration {
	const parent, user, system = 1, 11, 12 // counted from field 3
	const tick = 10 * time.Millisecond     // USER_HZ, the same on all relevant architectures
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	times := map[string]time.Duration{}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		end := bytes.LastIndexByte(data, ')')
		name, fields := string(data[bytes.IndexByte(data, '(')+1:end]), strings.Fields(string(data[end+1:]))
		self := strconv.Itoa(os.Getpid())
		switch {
		case path == "/proc/"+self+"/stat":
			name = "test"
		case fields[parent] != self:
			continue
		}
		for _, field := range []int{user, system} {
			ticks, err := strconv.Atoi(fields[field])
			if err != nil {
				b.Fatal(err)
			}
			times[name] += time.Duration(ticks) * tick
		}
	}
	return times
}

//go:build linux

// Package scheduling tests the extender with the real kube-scheduler.
package scheduling

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/extender"
	"github.com/assay-project/assay/internal/fleet/follow"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/gather"
	"github.com/assay-project/assay/rules/requirements"
	"github.com/assay-project/assay/test/cluster"
)

// ownNamespace is the namespace of NodeFeatures.
const ownNamespace = "assay-system"

// world is a cluster with many nodes without kubelets, an extender, and a proxy in front of it that counts requests and can fail.
type world struct {
	*cluster.Cluster
	api     client.WithWatch
	proxy   *proxy
	view    *index.Index
	decider *extender.Decider
}

// newWorld starts a cluster with n nodes and an extender.
func newWorld(t testing.TB, n int) *world {
	t.Helper()
	w := newNodes(t, n)
	w.startExtender(t, n)
	return w
}

// newNodes starts a cluster with n nodes, n0, n1, …, all of which have the flag AVX and a label for it. Nothing else runs: a
// controller-manager would take half a minute to untaint 1,000 nodes.
func newNodes(t testing.TB, n int) *world {
	t.Helper()
	c := testkit.PrivateCluster(t, cluster.Options{
		FakeNodes: true, DisableAdmission: []string{"TaintNodesByCondition", "ServiceAccount"},
	})
	config := rest.CopyConfig(c.RESTConfig())
	config.QPS = -1
	api, err := client.NewWithWatch(config, client.Options{Scheme: testkit.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Cluster: c, api: api, view: index.New()}
	w.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ownNamespace}})
	var g errgroup.Group
	g.SetLimit(8)
	for i := range n {
		g.Go(func() error {
			name := fmt.Sprintf("n%d", i)
			return errors.Join(api.Create(t.Context(), bigNode(name)), api.Create(t.Context(), nodeFeature(name, "AVX")))
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return w
}

// startExtender runs the extender in this process, behind the proxy, and waits until it has n nodes in its cache.
func (w *world) startExtender(t testing.TB, n int) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, nodefeature.AddToScheme, assayv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	objects, err := cache.New(w.RESTConfig(), cache.Options{Scheme: scheme, ByObject: map[client.Object]cache.ByObject{
		&corev1.Node{}: {Transform: follow.SlimNode}, &nodefeature.NodeFeature{}: {Transform: nodefeature.Slim},
	}})
	if err != nil {
		t.Fatal(err)
	}
	known := podrequirements.New(rules.Options{})
	nodes := inputs.New(inputs.Options{Policy: gather.Policy{Namespace: ownNamespace}})
	follower := follow.New(w.view, nodes, follow.Options{})
	if err := nodes.Watch(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
	w.decider = &extender.Decider{Index: w.view, Requirements: known}
	server, err := extender.New(w.decider, extender.Options{
		Addr: "127.0.0.1:0",
		Pod: func(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
			var pod corev1.Pod
			return &pod, w.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{
		objects.Start,
		nodes.Start,
		func(ctx context.Context) error {
			if err := errors.Join(follow.Requirements(ctx, objects, known), follower.Sync(ctx, objects)); err != nil {
				return err
			}
			return follower.Run(ctx)
		},
		server.Run,
	} {
		running.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("the extender stops: %v", err)
			}
		})
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	testkit.Eventually(t, "the extender knows all nodes", func(context.Context) error {
		if !w.view.Synced() || w.view.Len() != n || server.Addr() == "" {
			return fmt.Errorf("it knows %d", w.view.Len())
		}
		return nil
	})
	w.proxy = newProxy(t, "http://"+server.Addr())
}

// scheduler runs a kube-scheduler of that name that uses the proxy as its extender.
func (w *world) scheduler(t testing.TB, name, extra string, ignorable bool) {
	t.Helper()
	w.schedulerAt(t, name, w.proxy.url+"/by/"+name, ", percentageOfNodesToScore: 100", extra, ignorable)
}

// schedulerAt is scheduler with another address and profile.
func (w *world) schedulerAt(t testing.TB, name, url, profile, extra string, ignorable bool) {
	t.Helper()
	config := fmt.Sprintf(`
profiles: [{schedulerName: %s%s}]
clientConnection: {qps: 5000, burst: 5000}
extenders:
- urlPrefix: %s
  filterVerb: filter
  prioritizeVerb: prioritize
  preemptVerb: preempt
  weight: 5
  nodeCacheCapable: true
  httpTimeout: 1s
  ignorable: %t
%s`, name, profile, url, ignorable, extra)
	if err := w.RunScheduler(t.Context(), name, []byte(config)); err != nil {
		t.Fatal(err)
	}
}

// plainScheduler runs a kube-scheduler of that name without an extender.
func (w *world) plainScheduler(t testing.TB, name string) {
	t.Helper()
	config := fmt.Sprintf("profiles: [{schedulerName: %s}]\nclientConnection: {qps: 5000, burst: 5000}\n", name)
	if err := w.RunScheduler(t.Context(), name, []byte(config)); err != nil {
		t.Fatal(err)
	}
}

// requestNamespace is the namespace of the materialized NodeFeatureRequest avx, whose label all nodes have.
const requestNamespace = "ml"

func bigNode(name string) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceCPU: resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("256Gi"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, "feature.node.kubernetes.io/avx": "true", requirements.LabelOf(requestNamespace, "avx"): "true",
		}},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room.DeepCopy(), Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test",
		}}},
	}
}

func nodeFeature(node string, flags ...string) *nfdv1alpha1.NodeFeature {
	set := nfdv1alpha1.FlagFeatureSet{Elements: map[string]nfdv1alpha1.Nil{}}
	for _, f := range flags {
		set.Elements[f] = nfdv1alpha1.Nil{}
	}
	return &nfdv1alpha1.NodeFeature{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ownNamespace, Name: node, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: node},
		},
		Spec: nfdv1alpha1.NodeFeatureSpec{Features: nfdv1alpha1.Features{
			Flags:      map[string]nfdv1alpha1.FlagFeatureSet{"cpu.cpuid": set},
			Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{}, Instances: map[string]nfdv1alpha1.InstanceFeatureSet{},
		}},
	}
}

func (w *world) create(t testing.TB, o client.Object) {
	t.Helper()
	if err := w.api.Create(t.Context(), o); err != nil {
		t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

// publish changes the flags of a node, and waits until the extender has processed the change.
func (w *world) publish(t testing.TB, node string, flags ...string) {
	t.Helper()
	w.setFlags(t, node, flags...)
	testkit.Eventually(t, "the extender hears of it", func(context.Context) error {
		in, _, _ := w.view.Input(node)
		if n := in.Facts.Feature("cpu.cpuid").Flags.Len(); n != len(flags) {
			return fmt.Errorf("it knows %d flags", n)
		}
		return nil
	})
}

// setFlags changes the flags of a node.
func (w *world) setFlags(t testing.TB, node string, flags ...string) {
	t.Helper()
	current := &nfdv1alpha1.NodeFeature{}
	if err := w.api.Get(t.Context(), client.ObjectKey{Namespace: ownNamespace, Name: node}, current); err != nil {
		t.Fatal(err)
	}
	current.Spec = nodeFeature(node, flags...).Spec
	if err := w.api.Update(t.Context(), current); err != nil {
		t.Fatal(err)
	}
}

// namespace creates a namespace with labels.
func (w *world) namespace(t testing.TB, labels map[string]string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: labels}}
	w.create(t, ns)
	return ns.Name
}

// newPod returns a pod for a scheduler of that name.
func newPod(namespace, name, scheduler string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{SchedulerName: scheduler, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func requires(flag string) func(*corev1.Pod) {
	return annotated(assayv1alpha1.RequiredFeaturesAnnotation,
		fmt.Sprintf("matchFeatures: [{feature: cpu.cpuid, matchExpressions: {%s: {op: Exists}}}]", flag))
}

func prefers(flag string) func(*corev1.Pod) {
	return annotated(assayv1alpha1.PreferredFeaturesAnnotation,
		fmt.Sprintf("- weight: 50\n  matchFeatures: [{feature: cpu.cpuid, matchExpressions: {%s: {op: Exists}}}]", flag))
}

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[key] = value
	}
}

func requests(name corev1.ResourceName, amount string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		list := corev1.ResourceList{name: resource.MustParse(amount)}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
	}
}

// placed waits until a pod is bound and returns its node.
func (w *world) placed(t testing.TB, p *corev1.Pod) string {
	t.Helper()
	testkit.Eventually(t, "pod "+p.Name+" is bound", func(ctx context.Context) error {
		if err := w.api.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if p.Spec.NodeName == "" {
			return fmt.Errorf("it is not: %s", message(p))
		}
		return nil
	})
	return p.Spec.NodeName
}

// rejected waits until the scheduler has reported why a pod cannot be placed, in a message that contains text.
func (w *world) rejected(t testing.TB, p *corev1.Pod, text string) {
	t.Helper()
	testkit.Eventually(t, "pod "+p.Name+" is rejected", func(ctx context.Context) error {
		if err := w.api.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if m := message(p); !strings.Contains(m, text) {
			return fmt.Errorf("the scheduler says %q, want %q", m, text)
		}
		return nil
	})
}

// message returns the scheduler's message about a pod.
func message(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Message
		}
	}
	return ""
}

// proxy forwards requests of schedulers to the extender.
type proxy struct {
	url    string
	counts sync.Map // *atomic.Int64 by name of the scheduler
	broken atomic.Pointer[http.HandlerFunc]
}

// count returns the number of requests of a scheduler.
func (p *proxy) count(scheduler string) *atomic.Int64 {
	n, _ := p.counts.LoadOrStore(scheduler, &atomic.Int64{})
	return n.(*atomic.Int64)
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(u)
	p := &proxy{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rest, ok := strings.CutPrefix(r.URL.Path, "/by/"); ok { // /by/SCHEDULER/VERB
			name, verb, _ := strings.Cut(rest, "/")
			p.count(name).Add(1)
			r.URL.Path = "/" + verb
		}
		if b := p.broken.Load(); b != nil {
			(*b)(w, r)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	p.url = s.URL
	return p
}

// breakBy makes the extender fail until mended is called.
func (p *proxy) breakBy(f http.HandlerFunc) { p.broken.Store(&f) }
func (p *proxy) mend()                      { p.broken.Store(nil) }

// The ways in which an extender can fail.
var failures = map[string]http.HandlerFunc{
	"killed": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	"slow": func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
		case <-time.After(3 * time.Second): // longer than the scheduler's timeout
		}
	},
	"garbage": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"NodeNames":[[}`) },
}

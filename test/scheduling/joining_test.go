//go:build linux

package scheduling

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	informers "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/rules/requirements"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

const (
	// joiningNodes is the number of nodes that join unless JOIN_NODES is set: enough for many to join at the same time.
	joiningNodes = 40
	// joiningAtOnce is the number of nodes that register at the same time.
	joiningAtOnce = 16
	pendingTaint  = "example.com/features-pending"
	avxLabel      = "example.com/avx" // of avxRule
)

// TestNoPodIsBoundBeforeTheLabelsOfItsNodeAreThere: nodes join with the start-up taint while pods wait, each with a worker that
// publishes a moment later. A pod that requires nothing would otherwise be bound at once.
func TestNoPodIsBoundBeforeTheLabelsOfItsNodeAreThere(t *testing.T) {
	n := joiningNodes
	if text := os.Getenv("JOIN_NODES"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("JOIN_NODES: %v", err)
		}
	}
	c := testkit.PrivateCluster(t, cluster.Options{FakeNodes: true, DisableAdmission: []string{"ServiceAccount"}})
	config := rest.CopyConfig(c.RESTConfig())
	config.QPS = -1
	api, err := client.NewWithWatch(config, client.Options{Scheme: testkit.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	in := &installation{Cluster: c, api: api, bin: programs(t)}
	in.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ownNamespace}})
	in.create(t, avxRule())
	runManager(t, c, in.bin, stage.Controller, "--startup-taint="+pendingTaint, "--fail-open-after=1h")
	seen := watchJoins(t, c)
	if err := c.RunScheduler(t.Context(), "kube-scheduler", []byte("clientConnection: {qps: 5000, burst: 5000}\n")); err != nil {
		t.Fatal(err)
	}
	for i := range n { // one for each node
		in.create(t, newPod("default", fmt.Sprintf("p%d", i), "", requests(corev1.ResourceCPU, "40")))
	}
	var g errgroup.Group
	g.SetLimit(joiningAtOnce)
	for i := range n {
		g.Go(func() error { return in.join(t.Context(), seen, fmt.Sprintf("n%d", i)) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "all nodes are open, and all pods bound", seen.complete(n))
	seen.report(t)
}

// join registers a node as a kubelet does, with the taint, and publishes its features as its worker does.
func (in *installation) join(ctx context.Context, seen *joins, name string) error {
	boot := "boot-of-" + name
	node := bigNode(name)
	delete(node.Labels, "feature.node.kubernetes.io/avx")
	delete(node.Labels, requirements.LabelOf(requestNamespace, "avx")) // otherwise it would wait until it meets the request
	node.Spec.Taints = []corev1.Taint{{Key: pendingTaint, Effect: corev1.TaintEffectNoSchedule}}
	node.Status.NodeInfo.BootID = boot
	seen.start(name)
	features := nodeFeature(name, "AVX")
	features.Spec.Features.Attributes["system.boot"] = nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{"id": boot}}
	return errors.Join(in.api.Create(ctx, node), in.api.Create(ctx, features))
}

// joins records what a watch reports of nodes and pods. Resource versions order the events of both kinds.
type joins struct {
	mu                     sync.Mutex
	started                map[string]time.Time
	open                   map[string]time.Duration // from the registration of a node until a watch reports it without the taint
	labeled, opened, bound map[string]uint64        // resource versions by node; bound: of its first pod
	pods                   map[string]bool          // bound
}

// watchJoins watches nodes and pods until the test ends.
func watchJoins(t *testing.T, c *cluster.Cluster) *joins {
	t.Helper()
	j := &joins{
		started: map[string]time.Time{}, open: map[string]time.Duration{},
		labeled: map[string]uint64{}, opened: map[string]uint64{}, bound: map[string]uint64{}, pods: map[string]bool{},
	}
	watcher, err := informers.New(c.RESTConfig(), informers.Options{Scheme: testkit.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	for object, see := range map[client.Object]func(any){&corev1.Node{}: j.node, &corev1.Pod{}: j.pod} {
		informer, err := watcher.GetInformer(t.Context(), object, informers.BlockUntilSynced(false))
		if err != nil {
			t.Fatal(err)
		}
		_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, o any) { see(o) }})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- watcher.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return j
}

func version(o client.Object) uint64 {
	v, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	return v
}

func first(of map[string]uint64, name string, v uint64) {
	if _, known := of[name]; !known {
		of[name] = v
	}
}

func (j *joins) start(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.started[name] = time.Now()
}

func (j *joins) node(o any) {
	node, ok := o.(*corev1.Node)
	if !ok {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if node.Labels[avxLabel] != "" {
		first(j.labeled, node.Name, version(node))
	}
	tainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == pendingTaint })
	if _, known := j.opened[node.Name]; !known && !tainted {
		j.opened[node.Name] = version(node)
		j.open[node.Name] = time.Since(j.started[node.Name])
	}
}

func (j *joins) pod(o any) {
	pod, ok := o.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	first(j.bound, pod.Spec.NodeName, version(pod))
	j.pods[pod.Name] = true
}

// complete returns a condition that holds once n nodes are open and n pods are bound.
func (j *joins) complete(n int) func(context.Context) error {
	return func(context.Context) error {
		j.mu.Lock()
		defer j.mu.Unlock()
		if len(j.opened) < n || len(j.pods) < n {
			return fmt.Errorf("%d of %d nodes are open, %d pods are bound", len(j.opened), n, len(j.pods))
		}
		return nil
	}
}

// report checks the order of the events, and prints how long nodes were closed.
func (j *joins) report(t *testing.T) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	var early []string
	for name, opened := range j.opened {
		if labeled, ok := j.labeled[name]; !ok || labeled >= opened {
			t.Errorf("node %s is open at resource version %d, and labeled at %d", name, opened, labeled)
		}
	}
	for name, bound := range j.bound {
		if labeled, ok := j.labeled[name]; !ok || bound < labeled {
			early = append(early, name)
		}
	}
	if len(early) > 0 {
		t.Errorf("pods were bound before the labels were there on nodes %s", strings.Join(early, ", "))
	}
	var list []time.Duration
	for _, d := range j.open {
		list = append(list, d)
	}
	slices.Sort(list)
	at := func(share float64) time.Duration {
		return list[min(len(list)-1, int(share*float64(len(list))))].Round(time.Millisecond)
	}
	t.Logf("%d nodes joined, %d at a time: %d pods bound before the labels of their node; join to schedulable p50 %s, p99 %s, at most %s",
		len(list), joiningAtOnce, len(early), at(0.5), at(0.99), at(1))
}

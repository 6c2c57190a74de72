package nodecache_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/internal/fleet/nodecache"
	"github.com/assay-project/assay/internal/testkit"
)

// source is a source of Nodes that lists before it watches.
type source struct {
	*cachetesting.FakeControllerSource
}

// IsWatchListSemanticsUnSupported is the method by which client-go checks for streaming support.
func (source) IsWatchListSemanticsUnSupported() bool { return true }

// patience is how long a test waits for an event.
const patience = 2 * time.Minute

// seen are the events that a handler received.
type seen chan string

func (s seen) handler() toolscache.ResourceEventHandler {
	text := func(o any) string {
		if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		n := o.(*corev1.Node)
		return fmt.Sprint(n.Name, n.Labels, n.Annotations)
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s <- "add " + text(o) },
		UpdateFunc: func(before, o any) { s <- "update " + text(before) + " to " + text(o) },
		DeleteFunc: func(o any) { s <- "delete " + text(o) },
	}
}

func (s seen) want(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-s:
		if got != want {
			t.Errorf("event %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("no event, want %q", want)
	}
}

func node(name, kind, note string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Labels: map[string]string{"kind": kind}, Annotations: map[string]string{"note": note},
		},
		Spec:   corev1.NodeSpec{ProviderID: "p://" + name, Taints: []corev1.Taint{{Key: "t", Effect: "NoSchedule"}}},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "b"}},
	}
}

// byKind is an index of Nodes by a label.
const byKind = "kind"

func kindOf(o any) ([]string, error) { return []string{o.(*corev1.Node).Labels["kind"]}, nil }

// started returns a running informer of Nodes whose second transform drops the boot ID.
func started(t *testing.T, from toolscache.ListerWatcher, handlers ...toolscache.ResourceEventHandler) toolscache.SharedIndexInformer {
	t.Helper()
	i := nodecache.Informers(toolscache.NewSharedIndexInformer)(from, &corev1.Node{}, 0, toolscache.Indexers{byKind: kindOf})
	if err := i.SetTransform(func(o any) (any, error) {
		if n, ok := o.(*corev1.Node); ok {
			n.Status.NodeInfo.BootID = ""
		}
		return o, nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, h := range handlers {
		if _, err := i.AddEventHandler(h); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		i.RunWithContext(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	if !toolscache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
		t.Fatal("the informer has not synced")
	}
	return i
}

// TestHandlersGetCompleteNodes: created, changed and deleted, and deleted while the watch was broken.
func TestHandlersGetCompleteNodes(t *testing.T) {
	from, events := source{cachetesting.NewFakeControllerSource()}, make(seen, 10)
	from.Add(node("a", "x", "1"))
	started(t, from, events.handler())
	events.want(t, "add amap[kind:x] map[note:1]")
	from.Modify(node("a", "y", "2"))
	events.want(t, "update amap[kind:x] map[note:1] to amap[kind:y] map[note:2]")
	from.Delete(node("a", "y", "2"))
	events.want(t, "delete amap[kind:y] map[note:2]")
	from.Add(node("b", "z", "3"))
	events.want(t, "add bmap[kind:z] map[note:3]")
	from.DeleteDropWatch(node("b", "z", "3"))
	from.ResetWatch()
	events.want(t, "delete bmap[kind:z] map[note:3]")
}

// TestReadersGetCompleteNodes: everything that the transform leaves.
func TestReadersGetCompleteNodes(t *testing.T) {
	from := source{cachetesting.NewFakeControllerSource()}
	a, b, none := node("a", "x", "1"), node("b", "y", "1"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "none"}}
	large := node("large", "x", "1")
	large.Generation, large.Finalizers = 3, []string{"f"}
	large.Spec.PodCIDR, large.Spec.Unschedulable = "10.0.0.0/24", true
	large.Status = corev1.NodeStatus{
		Capacity:    corev1.ResourceList{"a.example/x": resource.MustParse("3"), "memory": resource.MustParse("1536Mi")},
		Allocatable: corev1.ResourceList{"a.example/x": resource.MustParse("2"), "cpu": resource.MustParse("1500m")},
		Conditions: []corev1.NodeCondition{
			{Type: "Ready", Status: "True", Reason: "KubeletReady"}, {Type: "DiskPressure", Status: "False"},
			{Type: "a.example/Good", Status: "True", LastTransitionTime: metav1.Unix(1e9, 0)},
		},
		NodeInfo:         corev1.NodeSystemInfo{KernelVersion: "6.8", MachineID: "m", Swap: &corev1.NodeSwapStatus{}},
		Images:           []corev1.ContainerImage{{Names: []string{"i"}}},
		DeclaredFeatures: []string{"A", "B"},
		RuntimeHandlers: []corev1.NodeRuntimeHandler{
			{}, {Name: "nvidia", Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: new(true), UserNamespaces: new(false)}},
		},
	}
	for k := range 200 { // more than a Node has in most clusters
		large.Labels[fmt.Sprint("l", k)], large.Annotations[fmt.Sprint("a", k)] = fmt.Sprint(k), fmt.Sprint(k)
		large.Status.Capacity[corev1.ResourceName(fmt.Sprint("r.example/", k))] = *resource.NewQuantity(int64(k), resource.DecimalSI)
	}
	for _, n := range []*corev1.Node{a, b, none, large} {
		from.Add(n)
	}
	i := started(t, from)
	if err := i.AddIndexers(toolscache.Indexers{"later": kindOf}); err != nil {
		t.Fatal(err)
	}
	names := func(objects []any, err error) []string {
		t.Helper()
		var out []string
		for _, o := range objects {
			n := o.(*corev1.Node)
			out = append(out, n.Name+" "+n.Labels["kind"])
		}
		slices.Sort(out)
		if err != nil {
			t.Error(err)
		}
		return out
	}
	for name, tc := range map[string]struct{ got, want []string }{
		"List":    {names(i.GetStore().List(), nil), []string{"a x", "b y", "large x", "none "}},
		"ByIndex": {names(i.GetIndexer().ByIndex(byKind, "y")), []string{"b y"}},
		"Index":   {names(i.GetIndexer().Index(byKind, b)), []string{"b y"}},
		"Later":   {names(i.GetIndexer().ByIndex("later", "x")), []string{"a x", "large x"}},
	} {
		t.Run(name, func(t *testing.T) {
			if !slices.Equal(tc.got, tc.want) {
				t.Errorf("%q, want %q", tc.got, tc.want)
			}
		})
	}
	for _, want := range []*corev1.Node{a, none, large} {
		got, ok, err := i.GetIndexer().GetByKey(want.Name)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		want = want.DeepCopy()
		want.ResourceVersion, want.Status.NodeInfo.BootID = got.(*corev1.Node).ResourceVersion, ""
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		same, _, _ := i.GetIndexer().Get(want)
		if !maps.Equal(same.(*corev1.Node).Labels, want.Labels) {
			t.Errorf("labels %v, want %v", same.(*corev1.Node).Labels, want.Labels)
		}
	}
	if got, ok, err := i.GetIndexer().GetByKey("gone"); got != nil || ok || err != nil {
		t.Errorf("%v, %t, %v of a Node that does not exist", got, ok, err)
	}
}

// informers are the informers of a cache.
type informers struct {
	cache.Informers
	of cache.Informer
}

// GetInformer implements cache.Informers.
func (i informers) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return i.of, nil
}

func TestNames(t *testing.T) {
	from := source{cachetesting.NewFakeControllerSource()}
	from.Add(node("a", "x", ""))
	i := started(t, from)
	from.Add(node("b", "y", ""))
	all := func(ctx context.Context) ([]string, error) { return nodecache.Names(ctx, informers{of: i}) }
	ofKind := func(ctx context.Context) ([]string, error) {
		return nodecache.NamesBy(ctx, informers{of: i}, byKind, "y")
	}
	for name, tc := range map[string]struct {
		read func(context.Context) ([]string, error)
		want []string
	}{"Names": {all, []string{"a", "b"}}, "NamesBy": {ofKind, []string{"b"}}} {
		t.Run(name, func(t *testing.T) {
			testkit.Eventually(t, "the cache is complete", func(ctx context.Context) error {
				names, err := tc.read(ctx)
				slices.Sort(names)
				if err == nil && !slices.Equal(names, tc.want) {
					err = fmt.Errorf("the names are %q", names)
				}
				return err
			})
		})
	}
}

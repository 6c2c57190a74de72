package nodefeature

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/gather"
)

// published returns a NodeFeature with features of the given size; a higher number means a later creation time.
func published(t testing.TB, namespace string, number int, node string, bytes int) *NodeFeature {
	t.Helper()
	f := &NodeFeature{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: fmt.Sprintf("f%03d", number), UID: "u", ResourceVersion: fmt.Sprint(number + 1),
		CreationTimestamp: metav1.Unix(int64(number), 0), Labels: map[string]string{nfdv1alpha1.NodeNameLabel: node},
	}}
	text := fmt.Sprintf(`{"features":{"attributes":{"a":{"elements":{"v":"%d"}}}}}`, number)
	if err := json.Unmarshal([]byte(text), &f.Spec); err != nil || f.Spec.Features.Err != nil {
		t.Fatal(err, f.Spec.Features.Err)
	}
	f.Spec.Features.Bytes = bytes
	return f
}

// apiServer is a fake API server with Nodes and NodeFeatures.
type apiServer struct {
	t               *testing.T
	nodes, features *watch.RaceFreeFakeWatcher
	stored          map[string]*NodeFeature
	store           cache.Store
}

func (s *apiServer) list(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list := &NodeFeatureList{ListMeta: metav1.ListMeta{ResourceVersion: "1000"}}
	for _, f := range s.stored {
		if o.FieldSelector == "" || strings.Contains(o.FieldSelector, "metadata.name="+f.Name) {
			list.Items = append(list.Items, *f)
		}
	}
	return list, nil
}

func serve(t *testing.T, nodes []corev1.Node, features ...*NodeFeature) *apiServer {
	s := &apiServer{t: t, nodes: watch.NewRaceFreeFake(), features: watch.NewRaceFreeFake(), stored: map[string]*NodeFeature{}}
	for _, f := range features {
		s.stored[f.Name] = f
	}
	watches := func(w watch.Interface) cache.WatchFuncWithContext {
		return func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil {
				return nil, fmt.Errorf("no streams")
			}
			return w, nil
		}
	}
	informers := NewBudget("assay").Informers(cache.NewSharedIndexInformer)
	ofNodes := informers(unstreamed{&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.NodeList{Items: nodes}, nil
		},
		WatchFuncWithContext: watches(s.nodes),
	}}, &corev1.Node{}, 0, nil)
	ofFeatures := informers(unstreamed{&cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: watches(s.features)}}, &NodeFeature{}, 0, nil)
	s.store = ofFeatures.GetStore()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(stop)
	go ofFeatures.RunWithContext(ctx)
	go ofNodes.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), ofFeatures.HasSynced) {
		t.Fatal("the informer has not listed")
	}
	return s
}

// unstreamed supports lists but not streaming.
type unstreamed struct{ *cache.ListWatch }

func (unstreamed) IsWatchListSemanticsUnSupported() bool { return true }

// counts waits until exactly the named objects have features.
func (s *apiServer) counts(names ...string) {
	s.t.Helper()
	want := strings.Join(names, " ")
	got := ""
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		var list []string
		for _, key := range s.store.ListKeys() {
			if o, ok, _ := s.store.GetByKey(key); ok {
				f := o.(*NodeFeature)
				if f.Spec.Features.Err == nil && f.Spec.Features.Facts != nil {
					list = append(list, f.Name)
				} else if !f.Spec.Features.Over() || f.Spec.Features.Facts != nil || f.Spec.Labels != nil {
					s.t.Errorf("%s is left out because of %v", key, f.Spec.Features.Err)
				}
			}
		}
		if got = strings.Join(slices.Sorted(slices.Values(list)), " "); got == want {
			return
		}
	}
	s.t.Fatalf("%s count, want %s", got, want)
}

func node(name string) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}}
}

// TestTheOldestFeaturesCount: which objects count depends on creation times alone, and ignored objects count as soon as there is
// room.
func TestTheOldestFeaturesCount(t *testing.T) {
	const third = MaxForeignBytes/3 - 2*objectBytes
	own := published(t, "assay", 9, "n1", third)
	own.Name = "n1"
	s := serve(t, []corev1.Node{node("n1")}, own,
		published(t, "t", 4, "n1", third), published(t, "t", 3, "n1", third), published(t, "t", 2, "n1", third), published(t, "t", 5, "n1", 5000))
	s.counts("f002", "f003", "f004", "n1")
	older := published(t, "t", 1, "n1", third)
	older.ResourceVersion = "1001"
	s.stored["f001"] = older
	s.features.Add(older)
	s.counts("f001", "f002", "f003", "n1")
	gone := *s.stored["f002"]
	delete(s.stored, "f002")
	gone.ResourceVersion = "1002"
	s.features.Delete(&gone)
	s.counts("f001", "f003", "f004", "n1")
	grown := published(t, "t", 3, "n1", 2*third)
	grown.ResourceVersion = "1003"
	s.stored["f003"] = grown
	s.features.Modify(grown)
	s.counts("f001", "f003", "n1")
	small := published(t, "t", 3, "n1", 10)
	small.ResourceVersion = "1004"
	s.stored["f003"] = small
	s.features.Modify(small)
	s.counts("f001", "f003", "f004", "f005", "n1")
}

// Features of Nodes that do not exist share one budget, and count for the Node once it is created.
func TestFeaturesOfMissingNodesShareABudget(t *testing.T) {
	const large = MaxMissingBytes/4 - 2*objectBytes
	s := serve(t, nil, published(t, "t", 1, "a", large), published(t, "t", 2, "b", large), published(t, "t", 3, "", large),
		published(t, "t", 4, "c", large), published(t, "t", 5, "d", 1<<20))
	s.counts("f001", "f002", "f003", "f004")
	d := node("d")
	s.nodes.Add(&d)
	s.counts("f001", "f002", "f003", "f004", "f005")
	s.nodes.Delete(&d)
	s.counts("f001", "f002", "f003", "f004")
}

// TestBudgetDoesNotDependOnTheOrder: after any sequence of events, the same objects count as in a process that starts now.
func TestBudgetDoesNotDependOnTheOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b := NewBudget("assay")
	objects := map[string]*NodeFeature{}
	nodes := map[string]bool{}
	for step := range 2000 {
		name := fmt.Sprint("n", r.IntN(3))
		switch r.IntN(10) {
		case 0:
			nodes[name] = !nodes[name]
			b.node(name, nodes[name])
		case 1, 2, 3:
			for _, f := range objects {
				b.forget(f)
				delete(objects, f.Name)
				break
			}
		default:
			f := published(t, "t", r.IntN(100), name, 10)
			f.Spec.Features.Bytes = r.IntN(MaxForeignBytes)
			objects[f.Name] = f
			b.admit(f)
		}
		fresh := NewBudget("assay")
		for name, exists := range nodes {
			fresh.node(name, exists)
		}
		for _, f := range objects {
			fresh.admit(f)
		}
		for key, e := range b.entries {
			if e.counts != fresh.entries[key].counts {
				t.Fatalf("step %d: %s counts: %v, and in a new process %v", step, key.Name, e.counts, !e.counts)
			}
			if e.counts != e.shown != b.due[e] {
				t.Fatalf("step %d: %s counts: %v, shown: %v, due: %v", step, key.Name, e.counts, e.shown, b.due[e])
			}
		}
		if len(b.entries) != len(objects) || len(fresh.entries) != len(objects) {
			t.Fatalf("%d objects are known, want %d", len(b.entries), len(objects))
		}
	}
}

// TestTheCommandLineHasTheLimitOfTheController compares the NodeFeatures over the limit in a list, in any order, with those over the
// budget of a controller that received them one after another.
func TestTheCommandLineHasTheLimitOfTheController(t *testing.T) {
	const seeds = 50
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 3))
		b := NewBudget("assay")
		b.node("n", true)
		var list []gather.Published
		for number := range MaxForeign + 10 {
			f := published(t, "t", number, "n", r.IntN(4*MaxForeignBytes/MaxForeign))
			f.CreationTimestamp = metav1.Unix(int64(r.IntN(20)), 0)
			b.admit(f)
			list = append(list, f.Published())
		}
		list = append(list, gather.Published{Namespace: "assay", Name: "n", Node: "n"}) // the worker's own always counts
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		Limit("assay", "n", list)
		left := 0
		for _, p := range list {
			e := b.entries[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}]
			if counts := e == nil || e.counts; counts != (p.Err == nil) {
				t.Errorf("seed %d: %s counts for the controller: %t; the command line leaves it out: %v", seed, p.Name, counts, p.Err)
			}
			if p.Err != nil {
				left++
			}
		}
		if left < 10 {
			t.Errorf("seed %d: %d are over the limit, want at least 10", seed, left)
		}
	}
}

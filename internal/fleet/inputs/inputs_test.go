package inputs_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/inputs/inputstest"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/rules/gather"
)

// server is a fake API server that has these NodeFeatures, or is unavailable.
type server struct {
	client.Reader
	features map[string]bool // namespace/name
	owners   []metav1.OwnerReference
	node     string // that the NodeFeatures describe; empty: n
	deleting bool
	away     error
}

func (s *server) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if s.away != nil {
		return s.away
	}
	if !s.features[key.String()] {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "nodefeatures"}, key.Name)
	}
	into.SetNamespace(key.Namespace)
	into.SetName(key.Name)
	into.SetLabels(map[string]string{nfdv1alpha1.NodeNameLabel: cmp.Or(s.node, "n")})
	into.SetOwnerReferences(s.owners)
	if s.deleting {
		into.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
	}
	return nil
}

func (s *server) List(ctx context.Context, into client.ObjectList, _ ...client.ListOption) error {
	list := into.(*metav1.PartialObjectMetadataList)
	for key := range s.features {
		f := metav1.PartialObjectMetadata{}
		namespace, name, _ := strings.Cut(key, "/")
		if err := s.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &f); err != nil {
			return err
		}
		list.Items = append(list.Items, f)
	}
	return nil
}

func published(namespace, name string) *nodefeature.NodeFeature {
	return &nodefeature.NodeFeature{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "n"},
	}}
}

func node(uid string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: types.UID(uid)}}
}

// watched returns Nodes that watch a cache.
func watched(t *testing.T, opt inputs.Options, cache *inputstest.Cache) *inputs.Nodes {
	t.Helper()
	opt.Policy.Namespace = "own"
	n := inputs.New(opt)
	if err := n.Watch(t.Context(), cache); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAnObjectIsGoneOnlyIfTheServerSaysSo: an object that is missing in the cache may exist, since a list can be incomplete.
func TestAnObjectIsGoneOnlyIfTheServerSaysSo(t *testing.T) {
	for name, tc := range map[string]struct {
		object string
		server server
		want   error
	}{
		"WorkersObjectIsThere":      {"own/n", server{features: map[string]bool{"own/n": true}}, inputs.ErrStale},
		"ThirdPartysObjectIsThere":  {"vendor/x", server{features: map[string]bool{"own/n": true, "vendor/x": true}}, inputs.ErrStale},
		"WorkersObjectIsGone":       {"own/n", server{features: map[string]bool{"vendor/x": true}}, nil},
		"ThirdPartysObjectIsGone":   {"vendor/x", server{features: map[string]bool{"own/n": true}}, nil},
		"ItIsBeingDeleted":          {"vendor/x", server{features: map[string]bool{"vendor/x": true}, deleting: true}, nil},
		"ItDescribesAnotherNode":    {"vendor/x", server{features: map[string]bool{"vendor/x": true}, node: "m"}, nil},
		"NobodyKnows":               {"own/n", server{away: errors.New("away")}, errors.New("away")},
		"NobodyKnowsOfThirdParties": {"vendor/x", server{away: errors.New("away")}, errors.New("away")},
	} {
		t.Run(name, func(t *testing.T) {
			all := []*nodefeature.NodeFeature{published("own", "n"), published("vendor", "x")}
			cache := inputstest.New(all[0], all[1])
			clock := clocktesting.NewFakeClock(time.Now())
			nodes := watched(t, inputs.Options{Live: &tc.server, Clock: clock, Grace: time.Minute}, cache)
			if _, err := nodes.Of(t.Context(), node("")); err != nil {
				t.Fatal(err)
			}
			for _, f := range all {
				if f.Publisher() == tc.object {
					cache.Remove(f)
				}
			}
			s, err := nodes.Of(t.Context(), node(""))
			if (err == nil) != (tc.want == nil) || err != nil && err.Error() != tc.want.Error() {
				t.Fatalf("error %v, want %v", err, tc.want)
			}
			if err != nil {
				return
			}
			if own := tc.object == "own/n"; own != s.HeldUntil.Equal(clock.Now().Add(time.Minute)) || own != (len(s.Features.All()) == 2) {
				t.Errorf("%d objects count, held until %s", len(s.Features.All()), s.HeldUntil)
			}
			if first := s.Features.All()[0].Publisher(); tc.object == "own/n" && first != "own/n" {
				t.Errorf("%s is merged before the worker's object, which then wins", first)
			}
			clock.Step(time.Minute)
			if s, err := nodes.Of(t.Context(), node("")); err != nil || s.Held() || len(s.Features.All()) != 1 {
				t.Errorf("after the grace period: %d objects, held until %s, %v", len(s.Features.All()), s.HeldUntil, err)
			}
		})
	}
}

func TestAnObjectThatCameAndWentBetweenTwoLooksIsHeld(t *testing.T) {
	cache := inputstest.New(published("own", "n"))
	nodes := watched(t, inputs.Options{Live: &server{}, Grace: time.Minute}, cache)
	if _, err := nodes.Of(t.Context(), node("")); err != nil {
		t.Fatal(err)
	}
	cache.Remove(published("own", "n"))
	again := published("own", "n")
	again.ResourceVersion = "2"
	cache.Put(again)
	cache.Remove(again)
	s, err := nodes.Of(t.Context(), node(""))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Features.All()) != 1 || s.Features.All()[0].ResourceVersion != "2" || !s.Held() {
		t.Errorf("not the last one is held until %s: %v", s.HeldUntil, s.Features.All())
	}
}

func TestTheFirstPassReadsTheWorkersObject(t *testing.T) {
	nodes := watched(t, inputs.Options{Live: &server{features: map[string]bool{"own/n": true}}}, inputstest.New())
	if _, err := nodes.Of(t.Context(), node("")); !errors.Is(err, inputs.ErrStale) {
		t.Errorf("error %v: the cache was believed", err)
	}
	nodes = watched(t, inputs.Options{Live: &server{}, Grace: time.Minute}, inputstest.New())
	if s, err := nodes.Of(t.Context(), node("")); err != nil || !s.Blind || !s.Held() {
		t.Errorf("a node whose worker was never seen: blind %t, held until %s, %v", s.Blind, s.HeldUntil, err)
	}
}

func TestConfirmFindsWhatTheCacheLacks(t *testing.T) {
	cache := inputstest.New(published("own", "n"))
	api := &server{features: map[string]bool{"own/n": true}}
	nodes := watched(t, inputs.Options{Live: api}, cache)
	s, err := nodes.Of(t.Context(), node(""))
	if err != nil {
		t.Fatal(err)
	}
	if err := nodes.Confirm(t.Context(), s); err != nil {
		t.Error(err)
	}
	api.features["vendor/x"] = true
	if err := nodes.Confirm(t.Context(), s); !errors.Is(err, inputs.ErrStale) {
		t.Errorf("error %v: the cache was believed", err)
	}
	cache.Put(published("vendor", "x")) // the State is older
	if err := nodes.Confirm(t.Context(), s); !errors.Is(err, inputs.ErrStale) {
		t.Errorf("error %v: what the cache has by now was not in the State", err)
	}
	api.deleting = true
	if err := nodes.Confirm(t.Context(), s); err != nil {
		t.Errorf("an object that is being deleted: %v", err)
	}
}

// counting is a server that counts its lists.
type counting struct {
	server
	lists int
}

func (c *counting) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	c.lists++
	return c.server.List(ctx, into, opts...)
}

func TestConfirmStartListsTheObjectsOfAllNodesOnce(t *testing.T) {
	cache := inputstest.New(published("own", "n"), published("vendor", "n"))
	api := &counting{server: server{features: map[string]bool{"own/n": true, "vendor/n": true}}}
	nodes := watched(t, inputs.Options{Live: api}, cache)
	complete, err := nodes.Of(t.Context(), node(""))
	if err != nil {
		t.Fatal(err)
	}
	lacking := complete
	lacking.Features, _ = gather.Select(gather.Policy{}, gather.Node{}, nil, complete.Features.All()[:1]) // the worker's, which is first
	if err := nodes.ConfirmStart(t.Context(), lacking); !errors.Is(err, inputs.ErrStale) {
		t.Errorf("error %v: the cache was believed", err)
	}
	before := api.lists
	for range 3 {
		if err := nodes.ConfirmStart(t.Context(), complete); err != nil {
			t.Error(err)
		}
	}
	if api.lists != before {
		t.Errorf("%d lists for a State that lacks nothing", api.lists-before)
	}
	workerless := complete
	workerless.Features, _ = gather.Select(gather.Policy{}, gather.Node{}, nil, complete.Features.All()[1:])
	if err := nodes.ConfirmStart(t.Context(), workerless); err != nil || api.lists != before {
		t.Errorf("%d lists for a State that lacks the worker's object, %v", api.lists-before, err)
	}
	delete(api.features, "vendor/n")
	if err := nodes.ConfirmStart(t.Context(), lacking); err != nil {
		t.Errorf("an object that has been deleted: %v", err)
	}
}

// TestAnObjectThatDoesNotCountHidesNoOther lists objects in the order of their names.
func TestAnObjectThatDoesNotCountHidesNoOther(t *testing.T) {
	leaving, wrong := published("vendor", "a"), published("vendor", "b")
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	wrong.Spec.Features.Err = errors.New("not JSON")
	nodes := watched(t, inputs.Options{}, inputstest.New(published("own", "n"), leaving, wrong, published("vendor", "c")))
	s, err := nodes.Of(t.Context(), node(""))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Features.All()) != 2 || s.Features.All()[1].Name != "c" {
		t.Errorf("objects count: %v", s.Features.All())
	}
	if len(s.LeftOut) != 1 || s.LeftOut[0].Object.Name != "b" || nodes.LeftOutOwn(s) != nil {
		t.Errorf("objects are left out: %v", s.LeftOut)
	}
}

// A pod of the worker, or its token, can outlive its Node for a while, and continue to publish.
func TestWhatBelongsToAnEarlierNodeOfTheNameDoesNotCount(t *testing.T) {
	owner := func(kind, uid string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, Name: "n", UID: types.UID(uid)}}
	}
	for name, tc := range map[string]struct {
		namespace string
		owners    []metav1.OwnerReference
		counts    bool
	}{
		"ThisNode":    {"own", owner("Node", "2"), true},
		"EarlierNode": {"own", owner("Node", "1"), false},
		"NoOwner":     {"own", nil, true}, // worker.ownerRefs can exclude the Node, and NFD's workers do not set it
		"Pod":         {"own", owner("Pod", "1"), true},
		"ThirdParty":  {"vendor", owner("Node", "1"), true},
	} {
		t.Run(name, func(t *testing.T) {
			object := published(tc.namespace, "n")
			object.OwnerReferences = tc.owners
			nodes := watched(t, inputs.Options{
				Live: &server{features: map[string]bool{tc.namespace + "/n": true}, owners: tc.owners},
			}, inputstest.New(object))
			s, err := nodes.Of(t.Context(), node("2"))
			if err != nil {
				t.Fatal(err)
			}
			if got := len(s.Features.All()) == 1; got != tc.counts {
				t.Errorf("counts: %t, want %t", got, tc.counts)
			}
		})
	}
}

// running starts Nodes without a live reader, and waits until they are synced.
func running(t *testing.T, opt inputs.Options, cache *inputstest.Cache) *inputs.Nodes {
	t.Helper()
	nodes := watched(t, opt, cache)
	start(t, nodes)
	return nodes
}

// start starts Nodes, and waits until they are synced.
func start(t *testing.T, nodes *inputs.Nodes) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- nodes.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if err := nodes.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// publishers waits until the features of the node n come from this many objects.
func publishers(t *testing.T, nodes *inputs.Nodes, want int) {
	t.Helper()
	testkit.Eventually(t, "the right number of objects count", func(context.Context) error {
		if s, ok := nodes.Get("n"); !ok || len(s.Input.Publishers) != want {
			return errors.New("another number counts")
		}
		return nil
	})
}

func TestKeepsUpWithItsCache(t *testing.T) {
	cache := inputstest.New(node("1"), published("own", "n"))
	clock := clocktesting.NewFakeClock(time.Now())
	nodes := running(t, inputs.Options{Clock: clock, Grace: time.Minute}, cache)
	publishers(t, nodes, 1)
	cache.Put(published("vendor", "x"))
	publishers(t, nodes, 2)
	elsewhere := published("vendor", "x")
	elsewhere.Labels = map[string]string{nfdv1alpha1.NodeNameLabel: "other"}
	cache.Put(elsewhere)
	publishers(t, nodes, 1)
	cache.Put(published("vendor", "x"))
	publishers(t, nodes, 2)

	cache.Remove(published("own", "n")) // held
	cache.Remove(published("vendor", "x"))
	publishers(t, nodes, 1)
	testkit.Eventually(t, "the end of the grace period is waited for", func(context.Context) error {
		if !clock.HasWaiters() {
			return errors.New("nothing waits")
		}
		return nil
	})
	clock.Step(time.Minute)
	publishers(t, nodes, 0)

	cache.Put(published("own", "n"))
	publishers(t, nodes, 1)
	moved := published("own", "n")
	moved.Labels = map[string]string{nfdv1alpha1.NodeNameLabel: "other"}
	cache.Put(moved)
	cache.Put(node("2")) // another Node of the same name: nothing is held for it
	publishers(t, nodes, 0)
	cache.Remove(node("2"))
	testkit.Eventually(t, "the node is forgotten", func(context.Context) error {
		if all := nodes.All(); len(all) > 0 {
			return errors.New("it is still there")
		}
		return nil
	})
}

func TestOnlyTrustedNamespacesCount(t *testing.T) {
	vendor := inputs.Namespace()
	vendor.Name = "vendor"
	cache := inputstest.New(node("1"), published("vendor", "x"), published("own", "n"), published("gone", "y"), vendor)
	nodes := running(t, inputs.Options{Policy: gather.Policy{Namespaces: labels.SelectorFromSet(labels.Set{"trusted": "yes"})}}, cache)
	publishers(t, nodes, 1)
	trusted := vendor.DeepCopy()
	trusted.Labels = map[string]string{"trusted": "yes"}
	cache.Put(trusted)
	publishers(t, nodes, 2)
	cache.Put(vendor)
	publishers(t, nodes, 1)
}

// TestAChangeOfMetadataIsNoneOfTheInput: a change of metadata alone causes no work for readers of inputs only.
func TestAChangeOfMetadataIsNoneOfTheInput(t *testing.T) {
	cache := inputstest.New(node("1"), published("own", "n"))
	nodes := watched(t, inputs.Options{}, cache)
	changes := make(chan inputs.Change, 8)
	nodes.OnChange(func(c inputs.Change) { changes <- c })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- nodes.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	next := func() inputs.Change {
		t.Helper()
		select {
		case c := <-changes:
			return c
		case <-time.After(time.Minute):
			t.Fatal("no change")
			return inputs.Change{}
		}
	}
	if c := next(); c != (inputs.Change{Node: "n", Input: true}) {
		t.Errorf("a new node: %+v", c)
	}
	ours := node("1")
	ours.Annotations = map[string]string{nfdv1alpha1.FeatureLabelsAnnotation: "a"}
	ours.Labels = map[string]string{"feature.node.kubernetes.io/a": "1"}
	cache.Put(ours)
	if c := next(); c != (inputs.Change{Node: "n"}) {
		t.Errorf("a label that rules wrote: %+v", c)
	}
	theirs := ours.DeepCopy()
	theirs.Labels["pool"] = "a"
	cache.Put(theirs)
	if c := next(); !c.Input {
		t.Errorf("a label of another client: %+v", c)
	}
	again := theirs.DeepCopy()
	again.UID = "2"
	cache.Put(again)
	if c := next(); c != (inputs.Change{Node: "n"}) {
		t.Errorf("another Node of the name, for which readers look at what they hold: %+v", c)
	}
}

// broken is a cache that cannot watch.
type broken struct{ *inputstest.Cache }

func (broken) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, errors.New("cannot watch")
}

func TestWatchFailsWithItsCache(t *testing.T) {
	err := inputs.New(inputs.Options{}).Watch(t.Context(), broken{inputstest.New()})
	if err == nil || !strings.Contains(err.Error(), "cannot watch") {
		t.Errorf("got %v", err)
	}
}

// TestAnObjectThatCannotBeReadIsUnknown: what a worker published is unknown while its object cannot be read, or while the sets that it names
// are missing, without a time limit.
func TestAnObjectThatCannotBeReadIsUnknown(t *testing.T) {
	missing := &featuresets.MissingError{Sets: []string{"kernel-1"}}
	for name, tc := range map[string]struct {
		object *nodefeature.NodeFeature
		err    error
		blind  bool
		held   bool
	}{
		"Missing":           {published("own", "n"), missing, true, false},
		"Unreadable":        {published("own", "n"), errors.New("not JSON"), true, false},
		"MissingOfAnother":  {published("vendor", "x"), missing, true, true},
		"UnreadableAnother": {published("vendor", "x"), errors.New("not JSON"), true, true},
	} {
		tc.object.Spec.Features.Err = tc.err
		nodes := watched(t, inputs.Options{Grace: time.Minute, Clock: clocktesting.NewFakeClock(time.Now())}, inputstest.New(tc.object))
		s, err := nodes.Of(t.Context(), node(""))
		if err != nil {
			t.Fatal(err)
		}
		if s.Blind != tc.blind || s.Held() != tc.held {
			t.Errorf("%s: blind %t, held until %s", name, s.Blind, s.HeldUntil)
		}
		if own := nodes.LeftOutOwn(s); (own != nil) != (tc.object.Namespace == "own") {
			t.Errorf("%s: the worker's object is left out because of %v", name, own)
		}
	}
}

// TestAnObjectThatCanNoLongerBeReadCountsAsItWas: the worker's object gets a content that this process cannot read, for example by a newer
// worker.
func TestAnObjectThatCanNoLongerBeReadCountsAsItWas(t *testing.T) {
	cache, clock := inputstest.New(published("own", "n")), clocktesting.NewFakeClock(time.Now())
	nodes := watched(t, inputs.Options{Grace: time.Minute, Clock: clock}, cache)
	if _, err := nodes.Of(t.Context(), node("")); err != nil {
		t.Fatal(err)
	}
	broken := published("own", "n")
	broken.Spec.Features.Err = errors.New("not JSON")
	cache.Put(broken)
	for range 2 {
		s, err := nodes.Of(t.Context(), node(""))
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Features.All()) != 1 || s.Features.All()[0].Spec.Features.Err != nil || s.Blind || s.Held() {
			t.Errorf("%d objects count, blind %t, held until %s", len(s.Features.All()), s.Blind, s.HeldUntil)
		}
		clock.Step(time.Hour)
	}
	cache.Remove(broken)
	if s, err := nodes.Of(t.Context(), node("")); err != nil || !s.HeldUntil.Equal(clock.Now().Add(time.Minute)) || len(s.Features.All()) != 1 {
		t.Errorf("after the deletion: %d objects count, held until %s, %v", len(s.Features.All()), s.HeldUntil, err)
	}
}

// trusting is a fake API server with namespaces.
type trusting struct {
	server
	namespaces map[string]map[string]string // the labels
}

func (s *trusting) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if key.Namespace != "" {
		return s.server.Get(ctx, key, into, opts...)
	}
	of, ok := s.namespaces[key.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, key.Name)
	}
	into.SetName(key.Name)
	into.SetLabels(of)
	return nil
}

// TestANamespaceThatOnlyTheCacheLacksTakesNothingAway: the NodeFeatures of a namespace cease to count if the API server says so.
func TestANamespaceThatOnlyTheCacheLacksTakesNothingAway(t *testing.T) {
	yes := map[string]string{"trusted": "yes"}
	vendor := inputs.Namespace()
	vendor.Name, vendor.Labels = "vendor", yes
	start := func(t *testing.T, cached ...client.Object) (*inputs.Nodes, *inputstest.Cache, *trusting) {
		api := &trusting{server{features: map[string]bool{"own/n": true, "vendor/x": true}}, map[string]map[string]string{"vendor": yes}}
		cache := inputstest.New(append(cached, published("own", "n"), published("vendor", "x"))...)
		return watched(t, inputs.Options{Live: api, Policy: gather.Policy{Namespaces: labels.SelectorFromSet(yes)}}, cache), cache, api
	}
	t.Run("Later", func(t *testing.T) {
		nodes, cache, api := start(t, vendor)
		if s, err := nodes.Of(t.Context(), node("")); err != nil || len(s.Features.All()) != 2 {
			t.Fatalf("%d objects count, %v", len(s.Features.All()), err)
		}
		cache.Remove(vendor)
		if _, err := nodes.Of(t.Context(), node("")); !errors.Is(err, inputs.ErrStale) {
			t.Errorf("error %v: the cache was believed", err)
		}
		api.namespaces["vendor"] = nil
		if s, err := nodes.Of(t.Context(), node("")); err != nil || len(s.Features.All()) != 1 {
			t.Errorf("without the label, %d objects count, %v", len(s.Features.All()), err)
		}
	})
	t.Run("AtTheStart", func(t *testing.T) {
		nodes, _, api := start(t)
		s, err := nodes.Of(t.Context(), node(""))
		if err != nil {
			t.Fatal(err)
		}
		if err := nodes.Confirm(t.Context(), s); !errors.Is(err, inputs.ErrStale) {
			t.Errorf("error %v: the cache was believed", err)
		}
		delete(api.namespaces, "vendor")
		if err := nodes.Confirm(t.Context(), s); err != nil {
			t.Errorf("without the namespace: %v", err)
		}
	})
}

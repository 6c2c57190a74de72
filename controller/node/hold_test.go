package node

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/nodefeature"
)

// cached is a cache that holds these NodeFeatures.
type cached struct {
	client.Client
	features []nodefeature.NodeFeature
}

func (c *cached) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.(*nodefeature.NodeFeatureList).Items = c.features
	return nil
}

// server is an API server that has these NodeFeatures, or is away.
type server struct {
	client.Reader
	features map[string]bool // namespace/name
	owners   []metav1.OwnerReference
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
	into.SetLabels(map[string]string{nfdv1alpha1.NodeNameLabel: "n"})
	into.SetOwnerReferences(s.owners)
	return nil
}

func published(namespace, name string) nodefeature.NodeFeature {
	return nodefeature.NodeFeature{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "n"},
	}}
}

// What a cache lacks is no evidence: a list may have been cut short.
func TestAnObjectIsGoneOnlyIfTheServerSaysSo(t *testing.T) {
	for name, tc := range map[string]struct {
		object string
		server server
		want   error
	}{
		"WorkersObjectIsThere":      {"own/n", server{features: map[string]bool{"own/n": true}}, errStale},
		"ThirdPartysObjectIsThere":  {"vendor/x", server{features: map[string]bool{"own/n": true, "vendor/x": true}}, errStale},
		"WorkersObjectIsGone":       {"own/n", server{features: map[string]bool{"vendor/x": true}}, nil},
		"ThirdPartysObjectIsGone":   {"vendor/x", server{features: map[string]bool{"own/n": true}}, nil},
		"NobodyKnows":               {"own/n", server{away: errors.New("away")}, errors.New("away")},
		"NobodyKnowsOfThirdParties": {"vendor/x", server{away: errors.New("away")}, errors.New("away")},
	} {
		t.Run(name, func(t *testing.T) {
			all := []nodefeature.NodeFeature{published("own", "n"), published("vendor", "x")}
			cache := &cached{features: all}
			clock := clocktesting.NewFakePassiveClock(time.Now())
			r := &Reconciler{
				client: cache, live: &tc.server, clock: clock, grace: time.Minute,
				sources: Sources{Namespace: "own"}, merge: nodefeature.Gather{Namespace: "own"},
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			known := &memo{stranger: true}
			if _, _, err := r.gather(t.Context(), node, known); err != nil {
				t.Fatal(err)
			}
			cache.features = nil
			for _, f := range all {
				if f.Publisher() != tc.object {
					cache.features = append(cache.features, f)
				}
			}
			list, held, err := r.gather(t.Context(), node, known)
			if (err == nil) != (tc.want == nil) || err != nil && err.Error() != tc.want.Error() {
				t.Fatalf("error %v, want %v", err, tc.want)
			}
			if err != nil {
				return
			}
			if own := tc.object == "own/n"; own != (held == time.Minute) || own != (len(list) == 2) {
				t.Errorf("%d objects count, held for %s", len(list), held)
			}
			clock.SetTime(clock.Now().Add(time.Minute))
			if list, held, err := r.gather(t.Context(), node, known); err != nil || held != 0 || len(list) != 1 {
				t.Errorf("after the grace period: %d objects, held for %s, %v", len(list), held, err)
			}
		})
	}
}

func TestTheFirstPassAsksForTheWorkersObject(t *testing.T) {
	r := &Reconciler{
		client: &cached{}, live: &server{features: map[string]bool{"own/n": true}}, clock: clocktesting.NewFakePassiveClock(time.Now()),
		sources: Sources{Namespace: "own"}, merge: nodefeature.Gather{Namespace: "own"},
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	if _, _, err := r.gather(t.Context(), node, &memo{stranger: true}); !errors.Is(err, errStale) {
		t.Errorf("error %v: the cache was believed", err)
	}
}

// A pod of the worker, or its token, may outlive its Node by a while, and go on to publish.
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
		"NoOwner":     {"own", nil, true}, // worker.ownerRefs may leave the Node out, and NFD's workers do
		"Pod":         {"own", owner("Pod", "1"), true},
		"ThirdParty":  {"vendor", owner("Node", "1"), true},
	} {
		t.Run(name, func(t *testing.T) {
			object := published(tc.namespace, "n")
			object.OwnerReferences = tc.owners
			r := &Reconciler{
				client: &cached{features: []nodefeature.NodeFeature{object}}, live: &server{features: map[string]bool{tc.namespace + "/n": true}, owners: tc.owners},
				clock: clocktesting.NewFakePassiveClock(time.Now()), sources: Sources{Namespace: "own"}, merge: nodefeature.Gather{Namespace: "own"},
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "2"}}
			list, _, err := r.gather(t.Context(), node, &memo{stranger: true})
			if err != nil {
				t.Fatal(err)
			}
			if got := len(list) == 1; got != tc.counts {
				t.Errorf("counts: %t, want %t", got, tc.counts)
			}
		})
	}
}

func TestWatchdogBarksAtAPassThatHangs(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w := NewWatchdog(clock)
	end := w.begin("n")
	if err := w.Check(nil); err != nil {
		t.Error(err)
	}
	clock.SetTime(clock.Now().Add(2 * stuckAfter))
	if err := w.Check(nil); err == nil {
		t.Error("silent")
	}
	end()
	if err := w.Check(nil); err != nil {
		t.Error(err)
	}
}

func TestDamperLetsGoOnceItIsQuiet(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	d := newDamper(clock)
	for i := range flapLimit {
		if _, held := d.held("n", "label a"); held {
			t.Fatalf("held after %d changes", i)
		}
		d.changed("n", []string{"label a"})
		clock.SetTime(clock.Now().Add(time.Second))
	}
	wait, held := d.held("n", "label a")
	if !held || wait != flapWindow-time.Second {
		t.Errorf("held %v, for %s", held, wait)
	}
	if _, held := d.held("n", "label b"); held {
		t.Error("another key is held")
	}
	clock.SetTime(clock.Now().Add(wait))
	if _, held := d.held("n", "label a"); held {
		t.Error("held although it is quiet")
	}
}

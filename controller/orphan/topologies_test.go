package orphan

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/controller/budget"
)

// fleetModel is a cache of Nodes, and an API server with Nodes and topologies.
type fleetModel struct {
	client.Client
	cached, nodes map[string]bool
	topologies    map[string]time.Time // by name, when they were created
	away          bool
}

func (f *fleetModel) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	nodes := f.nodes // *metav1.PartialObjectMetadata: a live read
	if _, ok := into.(*corev1.Node); ok {
		nodes = f.cached
	} else if f.away {
		return errors.New("away")
	}
	if nodes[key.Name] {
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, key.Name)
}

func (f *fleetModel) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	list := into.(*metav1.PartialObjectMetadataList)
	for name, at := range f.topologies {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(at)}})
	}
	return nil
}

func (f *fleetModel) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	if len(opts) != 1 {
		return errors.New("deleted without preconditions")
	}
	delete(f.topologies, o.GetName())
	return nil
}

// TestTopologiesAreDeletedOnEvidenceOnly: a Node has to be missing for the grace period, and the API server has to confirm it.
func TestTopologiesAreDeletedOnEvidenceOnly(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	old := clock.Now().Add(-48 * time.Hour)
	f := &fleetModel{
		cached: map[string]bool{"there": true}, nodes: map[string]bool{"there": true, "not-cached": true},
		topologies: map[string]time.Time{"there": old, "not-cached": old, "left": old, "early": clock.Now()},
	}
	c := newTopologies(f, f, Options{Interval: time.Hour, Grace: 10 * time.Minute, Breaker: budget.NewBreaker(budget.Default, clock), Clock: clock})
	pass := func(after time.Duration, wantErr bool, left int) {
		t.Helper()
		clock.SetTime(clock.Now().Add(after))
		if err := c.pass(t.Context()); (err != nil) != wantErr {
			t.Errorf("error %v", err)
		}
		if len(f.topologies) != left {
			t.Errorf("after %s: %v are left, want %d", after, f.topologies, left)
		}
	}
	pass(0, false, 4)
	pass(9*time.Minute, false, 4)
	f.away = true
	pass(2*time.Minute, true, 4)
	f.away = false
	pass(0, false, 3)
	if _, ok := f.topologies["left"]; ok {
		t.Errorf("%v are left", f.topologies)
	}
	pass(25*time.Hour, false, 2) // "early" was there for a day before any Node
	delete(f.nodes, "there")
	delete(f.cached, "there")
	f.topologies["there"] = clock.Now() // published again just before the Node was deleted
	pass(0, false, 2)
	pass(11*time.Minute, false, 1)
}

// TestMassDeletionOfTopologiesIsHeld: all Nodes of a zone may be missing because of an outage.
func TestMassDeletionOfTopologiesIsHeld(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	f := &fleetModel{topologies: map[string]time.Time{}}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		f.topologies[name] = clock.Now().Add(-48 * time.Hour)
	}
	limits := budget.Budget{Nodes: 2, Window: time.Hour, Hold: 30 * time.Minute}
	c := newTopologies(f, f, Options{Interval: time.Hour, Grace: time.Minute, Breaker: budget.NewBreaker(limits, clock), Clock: clock})
	for _, step := range []struct {
		after time.Duration
		left  int
	}{{0, 5}, {2 * time.Minute, 3}, {time.Minute, 3}, {30 * time.Minute, 0}} {
		clock.SetTime(clock.Now().Add(step.after))
		if err := c.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(f.topologies) != step.left {
			t.Errorf("after another %s: %d are left, want %d", step.after, len(f.topologies), step.left)
		}
	}
}

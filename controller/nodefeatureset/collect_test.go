package nodefeatureset

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/nodefeature"
)

// stored is an API server with one NodeFeature, which names a set, that records the deletions of sets.
type stored struct {
	client.Client
	names   []string
	deleted []string
}

func (s *stored) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*nodefeature.NodeFeatureList).Items = []nodefeature.NodeFeature{{Spec: nodefeature.Spec{FeatureSets: s.names}}}
	return nil
}

func (s *stored) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	s.deleted = append(s.deleted, o.GetName())
	return nil
}

// TestASetThatIsInUseAgainIsKept: the cache does not show yet that a NodeFeature names a set that was unused for long.
func TestASetThatIsInUseAgainIsKept(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	named := func(value string) assayv1alpha1.NodeFeatureSet {
		name, err := featureset.Name(&nfdv1alpha1.Features{Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{
			"a.b": {Elements: map[string]string{"c": value}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		set := assayv1alpha1.NodeFeatureSet{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(clock.Now().Add(-48 * time.Hour))}}
		set.Status.Nodes = new(int32)
		set.Annotations = map[string]string{assayv1alpha1.UnusedSinceAnnotation: clock.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)}
		return set
	}
	used, unused := named("used"), named("unused")
	server := &stored{names: []string{used.Name}}
	r := &reconciler{client: server, live: server, clock: clock, opt: Options{Unused: defaultUnused, Junk: defaultJunk}}
	for range 2 {
		server.deleted = nil
		if err := r.collect(t.Context(), []assayv1alpha1.NodeFeatureSet{used, unused}, featuresets.Usage{}); err != nil {
			t.Fatal(err)
		}
		if len(server.deleted) != 1 || server.deleted[0] != unused.Name {
			t.Errorf("deleted %v, want the unused %s and not %s", server.deleted, unused.Name, used.Name)
		}
		clock.Step(2 * collectInterval)
	}
}

// TestAClockThatIsOffByAnHourDeletesNoNewSet: the clock of this process and that of the API server, which created a set, differ, also because one
// of them jumped. A controller an hour ahead deleted each set before its worker could name it.
func TestAClockThatIsOffByAnHourDeletesNoNewSet(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, -5 * time.Minute, 0, 5 * time.Minute, time.Hour} {
		clock, server := clocktesting.NewFakeClock(time.Now()), &stored{}
		r := &reconciler{client: server, live: server, clock: clock, opt: Options{Unused: defaultUnused, Junk: defaultJunk}}
		created := assayv1alpha1.NodeFeatureSet{ObjectMeta: metav1.ObjectMeta{Name: "new", UID: "1", CreationTimestamp: metav1.NewTime(clock.Now().Add(-skew))}}
		for age := time.Duration(0); age <= defaultJunk+collectInterval; age += collectInterval {
			if err := r.collect(t.Context(), []assayv1alpha1.NodeFeatureSet{created}, featuresets.Usage{}); err != nil {
				t.Fatal(err)
			}
			if deleted := len(server.deleted) > 0; deleted && age < defaultJunk || !deleted && age > defaultJunk {
				t.Errorf("with a difference of %s and at an age of %s, deleted: %t", skew, age, deleted)
			}
			clock.Step(collectInterval)
		}
	}
}

// TestAClockThatIsOffByMinutesDeletesNoUnusedSetTooSoon compares the clock of this process with that of an earlier leader, which noted since when
// a set is unused.
func TestAClockThatIsOffByMinutesDeletesNoUnusedSetTooSoon(t *testing.T) {
	now := time.Now()
	r := &reconciler{opt: Options{Unused: defaultUnused, Junk: defaultJunk}}
	for _, skew := range []time.Duration{-5 * time.Minute, 0, 5 * time.Minute} {
		set := &assayv1alpha1.NodeFeatureSet{}
		set.Status.Nodes = new(int32)
		set.Annotations = map[string]string{assayv1alpha1.UnusedSinceAnnotation: now.Add(-skew).Format(time.RFC3339)}
		if r.expired(set, now.Add(defaultUnused-6*time.Minute)) || !r.expired(set, now.Add(defaultUnused+5*time.Minute)) {
			t.Errorf("with a difference of %s, an unused set is deleted too soon or kept too long", skew)
		}
	}
}

// TestNothingIsDoneWhileADefinitionIsNotWhole: sets in use were counted as unused while the API server dropped their names, and the annotation
// that asks a worker for its features made the loss of the names permanent.
func TestNothingIsDoneWhileADefinitionIsNotWhole(t *testing.T) {
	r := &reconciler{opt: Options{Writable: func() bool { return false }}} // without a client and sets, so that any use of them panics
	if wait, err := r.pass(t.Context()); err != nil || wait != pause {
		t.Errorf("due again in %s, %v", wait, err)
	}
}

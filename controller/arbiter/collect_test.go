package arbiter

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
	a := &arbiter{client: server, live: server, clock: clock, opt: Options{Unused: defaultUnused, Junk: defaultJunk}}
	for range 2 {
		server.deleted = nil
		if err := a.collect(t.Context(), []assayv1alpha1.NodeFeatureSet{used, unused}, featuresets.Usage{}); err != nil {
			t.Fatal(err)
		}
		if len(server.deleted) != 1 || server.deleted[0] != unused.Name {
			t.Errorf("deleted %v, want the unused %s and not %s", server.deleted, unused.Name, used.Name)
		}
		clock.Step(2 * collectInterval)
	}
}

// TestAClockThatIsOffByMinutesDeletesNoSetTooSoon compares the clock of this process with that of the API server, which created a set,
// and that of an earlier leader, which noted since when it is unused.
func TestAClockThatIsOffByMinutesDeletesNoSetTooSoon(t *testing.T) {
	now := time.Now()
	a := &arbiter{opt: Options{Unused: defaultUnused, Junk: defaultJunk}}
	for _, skew := range []time.Duration{-5 * time.Minute, 0, 5 * time.Minute} {
		created := &assayv1alpha1.NodeFeatureSet{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-skew))}}
		unused := created.DeepCopy()
		unused.Status.Nodes = new(int32)
		unused.Annotations = map[string]string{assayv1alpha1.UnusedSinceAnnotation: now.Add(-skew).Format(time.RFC3339)}
		for name, test := range map[string]struct {
			set         *assayv1alpha1.NodeFeatureSet
			early, late time.Duration
		}{
			"a new set":     {created, 4 * time.Minute, defaultJunk + 5*time.Minute},
			"an unused set": {unused, defaultUnused - 6*time.Minute, defaultUnused + 5*time.Minute},
		} {
			if a.expired(test.set, now.Add(test.early)) || !a.expired(test.set, now.Add(test.late)) {
				t.Errorf("with a difference of %s, %s is deleted within %s, or is still kept after %s", skew, name, test.early, test.late)
			}
		}
	}
}

// TestNothingIsDoneWhileADefinitionIsNotWhole: sets in use were counted as unused while the API server dropped their names, and the annotation
// that asks a worker for its features made the loss of the names permanent.
func TestNothingIsDoneWhileADefinitionIsNotWhole(t *testing.T) {
	a := &arbiter{opt: Options{Writable: func() bool { return false }}} // without a client and sets, so that any use of them panics
	if wait, err := a.pass(t.Context()); err != nil || wait != pause {
		t.Errorf("due again in %s, %v", wait, err)
	}
}

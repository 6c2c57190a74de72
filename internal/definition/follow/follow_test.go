package follow

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/internal/definition"
)

// server has the definition of NodeFeatureRules.
type server struct {
	client.Reader

	mu      sync.Mutex
	served  *unstructured.Unstructured // nil: absent
	err     error                      // of reads
	watches []*watch.FakeWatcher
	reads   int
	lists   []time.Time
}

// own returns this version's definition of NodeFeatureRules.
func own(t *testing.T, uid types.UID, generation int64) *unstructured.Unstructured {
	t.Helper()
	out := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(charts.CRDs()["nfd.k8s-sigs.io_nodefeaturerules.yaml"], &out.Object); err != nil {
		t.Fatal(err)
	}
	out.SetUID(uid)
	out.SetGeneration(generation)
	return out
}

// foreign returns a definition without the field phase.
func foreign(t *testing.T, uid types.UID, generation int64) *unstructured.Unstructured {
	out := own(t, uid, generation)
	version := out.Object["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	unstructured.RemoveNestedField(version, "schema", "openAPIV3Schema", "properties", "spec", "properties", "phase")
	return out
}

func (s *server) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	switch {
	case s.err != nil:
		return s.err
	case s.served == nil:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "customresourcedefinitions"}, key.Name)
	}
	switch into := into.(type) {
	case *unstructured.Unstructured:
		into.Object = s.served.DeepCopy().Object
	case *metav1.PartialObjectMetadata:
		into.ObjectMeta = *head(s.served).ObjectMeta.DeepCopy()
	}
	return nil
}

func head(o *unstructured.Unstructured) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: o.GetName(), UID: o.GetUID(), Generation: o.GetGeneration(), DeletionTimestamp: o.GetDeletionTimestamp(), Annotations: o.GetAnnotations(),
	}}
}

func (s *server) watch(ctx context.Context, _ string) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := watch.NewFakeWithChanSize(100, false)
	s.watches = append(s.watches, w)
	context.AfterFunc(ctx, w.Stop)
	return w, nil
}

// set changes the definition; nil deletes it. Quiet: no watch reports that.
func (s *server) set(o *unstructured.Unstructured, quiet bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.served
	s.served = o
	for _, w := range s.watches {
		switch {
		case quiet:
		case o == nil:
			w.Delete(head(before))
		default:
			w.Modify(head(o))
		}
	}
}

func (s *server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// start follows the definition of a server in a bubble of synctest, whose clock is fake.
func start(t *testing.T, s *server) (d *Definitions, states *[]definition.State) {
	t.Helper()
	d = New(Options{Live: s, Events: s.watch, Relist: func(resource string) {
		if resource != "nodefeaturerules" {
			t.Errorf("%s are listed again", resource)
		}
		s.lists = append(s.lists, time.Now())
	}}, definition.Rules)
	if err := d.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	states = &[]definition.State{}
	d.OnChange(func(c Change) { *states = append(*states, c.Now.State) })
	go func() { _ = d.Start(t.Context()) }()
	synctest.Wait()
	return d, states
}

func (s *server) becomes(t *testing.T, d *Definitions, want definition.State) {
	t.Helper()
	synctest.Wait()
	if got := d.Of(definition.Rules); got.State != want || d.Writable(definition.Rules) != (want == definition.Whole) {
		t.Fatalf("the definition is %s, and writable %v; want %s", got.State, d.Writable(definition.Rules), want)
	}
}

// TestADefinitionThatIsWholeAgainIsTrustedOnceItsObjectsWereListed: objects without fields were evaluated, since an API server notices a new
// definition later than its watch reports it.
func TestADefinitionThatIsWholeAgainIsTrustedOnceItsObjectsWereListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{served: own(t, "1", 1)}
		d, states := start(t, s)
		s.becomes(t, d, definition.Whole)
		s.set(foreign(t, "1", 2), false)
		s.becomes(t, d, definition.Foreign)
		time.Sleep(time.Minute)
		s.set(own(t, "1", 3), false)
		whole := time.Now()
		time.Sleep(Settles + Lists - time.Second)
		s.becomes(t, d, definition.Foreign)
		if now := d.Of(definition.Rules); !now.Returning || len(s.lists) != 1 || s.lists[0].Sub(whole) != Settles {
			t.Errorf("returning %v, listed %v after it was whole at %v", now.Returning, s.lists, whole)
		}
		time.Sleep(time.Second)
		s.becomes(t, d, definition.Whole)
		if want := []definition.State{definition.Foreign, definition.Whole}; !slices.Equal(*states, want) {
			t.Errorf("states %v, want %v", *states, want)
		}
	})
}

// TestADefinitionThatIsReplacedEveryFewSeconds costs one list in 30 seconds at most, and is not trusted meanwhile.
func TestADefinitionThatIsReplacedEveryFewSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{served: own(t, "1", 1)}
		d, _ := start(t, s)
		generation := int64(1)
		for range 100 {
			generation += 2
			s.set(foreign(t, "1", generation-1), false)
			time.Sleep(2 * time.Second)
			s.becomes(t, d, definition.Foreign)
			s.set(own(t, "1", generation), false)
			time.Sleep(5 * time.Second)
			s.becomes(t, d, definition.Foreign)
		}
		if len(s.lists) < 2 {
			t.Errorf("%d lists", len(s.lists))
		}
		for i, at := range s.lists[1:] {
			if passed := at.Sub(s.lists[i]); passed < ListEvery {
				t.Errorf("a list %v after another one", passed)
			}
		}
		time.Sleep(ListEvery + Lists)
		s.becomes(t, d, definition.Whole)
	})
}

// TestADefinitionThatWasNotSeenForeign: two changes between two reads hide that it was another one. The objects that were read then, without
// fields, stayed.
func TestADefinitionThatWasNotSeenForeign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{served: own(t, "1", 1)}
		d, _ := start(t, s)
		s.set(own(t, "1", 2), false) // an upgrade
		s.becomes(t, d, definition.Whole)
		s.set(own(t, "1", 4), false)
		s.becomes(t, d, definition.Unknown)
		time.Sleep(Settles + Lists)
		s.becomes(t, d, definition.Whole)
		if len(s.lists) != 1 {
			t.Errorf("listed %d times", len(s.lists))
		}
	})
}

// TestADefinitionThatWasReplaced: all its objects were deleted with it, and it is absent until those of the next one were listed.
func TestADefinitionThatWasReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{served: own(t, "1", 1)}
		d, _ := start(t, s)
		gone := func(listed types.UID) bool {
			vanished, err := d.Vanished(t.Context(), definition.Rules, listed)
			if err != nil {
				t.Fatal(err)
			}
			return vanished
		}
		if gone("1") {
			t.Error("an object that a user has deleted vanished with its definition")
		}
		time.Sleep(burst)
		s.set(own(t, "2", 1), true)
		if !gone("1") || gone("2") {
			t.Error("an object of the definition before, or one of this definition")
		}
		s.set(nil, false)
		s.becomes(t, d, definition.Absent)
		time.Sleep(burst)
		if !gone("2") {
			t.Error("an object was deleted by a user although it has no definition")
		}
		s.set(own(t, "3", 1), false)
		s.becomes(t, d, definition.Absent)
		time.Sleep(ListEvery + Lists)
		s.becomes(t, d, definition.Whole)
	})
}

// TestADefinitionThatCannotBeRead is unknown if that is forbidden, and stays as it was during an outage, after which it is read again. It was
// not, as long as the watch stayed open.
func TestADefinitionThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{served: own(t, "1", 1)}
		d, _ := start(t, s)
		s.fail(errors.New("connection refused"))
		s.set(foreign(t, "1", 2), false)
		s.becomes(t, d, definition.Whole)
		if _, err := d.Confirm(t.Context(), definition.Rules); err == nil {
			t.Error("it is confirmed without being read")
		}
		s.fail(nil)
		time.Sleep(DefaultEvery)
		s.becomes(t, d, definition.Foreign)
		s.fail(apierrors.NewForbidden(schema.GroupResource{}, definition.Rules, nil))
		s.set(own(t, "1", 3), false)
		s.becomes(t, d, definition.Unknown)
	})
}

// TestConfirmSeesWhatNoWatchHasReported: a rule that was edited at the moment at which a hook replaced the definition lost its conditions.
func TestConfirmSeesWhatNoWatchHasReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{served: own(t, "1", 1)}
		d, _ := start(t, s)
		confirm := func(want bool) {
			t.Helper()
			if same, err := d.Confirm(t.Context(), definition.Rules); err != nil || same != want {
				t.Errorf("confirmed: %v, %v; want %v", same, err, want)
			}
		}
		confirm(true)
		s.set(foreign(t, "1", 2), true)
		confirm(false)
		s.becomes(t, d, definition.Foreign)
		reads := s.reads
		confirm(true) // it is not trusted anyway
		if s.reads != reads {
			t.Error("a definition that is not trusted was read")
		}
	})
}

// watched records with which options a watch is opened.
type watched struct {
	client.WithWatch
	options *metav1.ListOptions
}

func (w *watched) Watch(_ context.Context, _ client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
	w.options = (&client.ListOptions{}).ApplyOptions(opts).AsListOptions()
	return watch.NewFake(), nil
}

// TestTheWatchOfAnIdleDefinitionHasBookmarks: without them the watch received nothing on an idle cluster, so that it was opened again every two
// and a half minutes, and was counted as stalled.
func TestTheWatchOfAnIdleDefinitionHasBookmarks(t *testing.T) {
	w := &watched{}
	if _, err := Watch(w)(t.Context(), definition.Rules); err != nil {
		t.Fatal(err)
	}
	if !w.options.AllowWatchBookmarks || w.options.FieldSelector != "metadata.name="+definition.Rules {
		t.Errorf("the options of the watch are %+v", w.options)
	}
	synctest.Test(t, func(t *testing.T) {
		s := &server{served: own(t, "1", 1)}
		d, _ := start(t, s)
		before := s.reads
		s.watches[0].Action(watch.Bookmark, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}})
		s.becomes(t, d, definition.Whole)
		if s.reads != before {
			t.Error("a bookmark made the definition be read")
		}
	})
}

// TestGateWaitsWhileFieldsWouldBeLost: a status that was written would be stored without its new fields.
func TestGateWaitsWhileFieldsWouldBeLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{served: foreign(t, "1", 1)}
		d, _ := start(t, s)
		written := 0
		gate := Gate(d, definition.Rules, reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			written++
			return reconcile.Result{}, nil
		}))
		if again, err := gate.Reconcile(t.Context(), reconcile.Request{}); err != nil || again.RequeueAfter != retryGate || written != 0 {
			t.Errorf("written %d times, %v, %v", written, again, err)
		}
		s.set(own(t, "1", 2), false)
		time.Sleep(Settles + Lists)
		synctest.Wait()
		if again, err := gate.Reconcile(t.Context(), reconcile.Request{}); err != nil || again.RequeueAfter != 0 || written != 1 {
			t.Errorf("written %d times, %v, %v", written, again, err)
		}
	})
}

// TestKindsThatAreNotFollowedAreWhole, and so is everything of a program without definitions.
func TestKindsThatAreNotFollowedAreWhole(t *testing.T) {
	var none *Definitions
	for _, d := range []*Definitions{none, New(Options{})} {
		now := d.Of(definition.Rules)
		vanished, err := d.Vanished(t.Context(), definition.Rules, "1")
		same, failed := d.Confirm(t.Context(), definition.Rules)
		if !now.Trusted() || !d.Writable(definition.Rules) || vanished || !same || err != nil || failed != nil || len(d.All()) > 0 {
			t.Errorf("%v, vanished %v, confirmed %v, %v, %v", now, vanished, same, err, failed)
		}
	}
}

// TestADefinitionThatChangesWhileCachesListObjects: a process listed rules without their conditions, and read the definition when it was whole
// again.
func TestADefinitionThatChangesWhileCachesListObjects(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after *unstructured.Unstructured
		want          definition.State
		lists         int
	}{
		"Restored":            {foreign(t, "1", 1), own(t, "1", 2), definition.Foreign, 1},
		"ReplacedAndRestored": {own(t, "1", 1), own(t, "1", 3), definition.Unknown, 1},
		"Created":             {nil, own(t, "1", 1), definition.Absent, 1},
		"CreatedAgain":        {own(t, "1", 1), own(t, "2", 1), definition.Absent, 1},
		"Same":                {own(t, "1", 1), own(t, "1", 1), definition.Whole, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{served: tc.before}
				d := New(Options{Live: s, Events: s.watch, Relist: func(string) { s.lists = append(s.lists, time.Now()) }}, definition.Rules)
				for _, served := range []*unstructured.Unstructured{tc.before, tc.after} {
					s.set(served, true)
					if err := d.Load(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				s.becomes(t, d, tc.want)
				go func() { _ = d.Start(t.Context()) }()
				time.Sleep(Settles + Lists + time.Second)
				s.becomes(t, d, definition.Whole)
				if len(s.lists) != tc.lists {
					t.Errorf("listed %d times, want %d", len(s.lists), tc.lists)
				}
			})
		})
	}
}

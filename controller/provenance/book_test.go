package provenance

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/internal/sim/apiserver"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
)

// library is a model API server with the record of a cluster of two nodes.
type library struct {
	*testing.T
	client client.Client
	// fail is the error of each write; nil: it is carried out.
	fail       error
	writes     int
	nodes      int
	generation int64
	active     map[string]Owner
	states     map[string]State

	definitions map[string]string
}

func newLibrary(t *testing.T) *library {
	t.Helper()
	l := &library{T: t, nodes: 2, active: map[string]Owner{}, states: map[string]State{}}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api, err := client.NewWithWatch(&rest.Config{
		Host: "http://model", Transport: apiserver.New(apiserver.Resources()...).NewClient("controller").Direct(), QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	}, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	l.client = interceptor.NewClient(api, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if l.writes++; l.fail != nil {
				return l.fail
			}
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if l.writes++; l.fail != nil {
				return l.fail
			}
			return c.Patch(ctx, o, patch, opts...)
		},
	})
	return l
}

// book returns the book of a new process.
func (l *library) book() *Book {
	return NewBook(NewStore(l.client, l.client, "assay", "state"), Fleet{
		Nodes:   func(context.Context) int { return l.nodes },
		Objects: func() (int64, map[string]Owner) { return l.generation, l.active },
		State:   func(g Owner) State { return l.states[g.ID] },

		Definitions: func() map[string]string { return l.definitions },
	})
}

// opened returns a book that has read the record.
func (l *library) opened() *Book {
	l.Helper()
	b := l.book()
	l.load(b)
	return b
}

// load returns the sorted IDs of the objects that have given keys and are not active.
func (l *library) load(b *Book) (absent []string) {
	l.Helper()
	list, err := b.Load(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	for _, g := range list {
		absent = append(absent, g.ID)
	}
	return absent
}

func (l *library) cover(b *Book, node string, list ...Gave) {
	l.Helper()
	if err := b.Record(l.Context(), node, list); err != nil {
		l.Fatal(err)
	}
}

func (l *library) passed(b *Book, node string, p Pass) {
	l.Helper()
	if err := b.Passed(l.Context(), node, p); err != nil {
		l.Fatal(err)
	}
}

func (l *library) forget(b *Book, node string) {
	l.Helper()
	if err := b.Forget(l.Context(), node); err != nil {
		l.Fatal(err)
	}
}

// stored returns the record that a new process reads.
func (l *library) stored() *Record {
	l.Helper()
	return l.opened().Past()
}

// owners returns the IDs of the objects that could have given the label.
func owners(r *Record, label string) (out []string) {
	for _, g := range r.Owners(record.KeyOf(keys.Label, label)) {
		out = append(out, g.ID)
	}
	return out
}

func owner(id string) Owner { return Owner{ID: id, Name: "object-" + id, Print: "1"} }

func gave(id, label string) Gave { return Gave{Owner: owner(id), Key: record.KeyOf(keys.Label, label)} }

func TestTheRecordOutlivesTheProcess(t *testing.T) {
	l := newLibrary(t)
	first := l.opened()
	l.cover(first, "n1")
	if l.writes != 0 {
		t.Errorf("%d writes without a key", l.writes)
	}
	l.cover(first, "n1", gave("a", "x"), gave("b", "y"))
	l.cover(first, "n2", gave("a", "x"))
	if l.writes != 1 {
		t.Errorf("%d writes, want 1: the store has the key of the second node already", l.writes)
	}
	l.active["b"] = owner("b")
	second := l.book()
	if got := l.load(second); !slices.Equal(got, []string{"a"}) {
		t.Errorf("absent: %v, want the object that is not active", got)
	}
	if got := l.load(second); got != nil {
		t.Errorf("a second call returns %v", got)
	}
	if got := second.Past(); !slices.Equal(owners(got, "x"), []string{"a"}) || !slices.Equal(owners(got, "y"), []string{"b"}) || got.Whole {
		t.Errorf("the next process reads %+v", got)
	}
	second.Unload()
	if got := l.load(second); !slices.Equal(got, []string{"a"}) {
		t.Errorf("after Unload, absent: %v", got)
	}
	// The record at the start does not change.
	l.cover(second, "n1", gave("c", "z"))
	if got := owners(second.Past(), "z"); got != nil {
		t.Errorf("the record at the start has %v", got)
	}
	if got := owners(l.stored(), "z"); !slices.Equal(got, []string{"c"}) {
		t.Errorf("the store has %v", got)
	}
}

func TestAnInvalidRecordIsAnEmptyOne(t *testing.T) {
	l := newLibrary(t)
	m := &corev1.ConfigMap{Data: map[string]string{record.DataKey: "{"}}
	m.Namespace, m.Name = "assay", "state"
	if err := l.client.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if got := l.stored(); got.Whole || len(got.Objects) != 0 {
		t.Errorf("the record is %+v", got)
	}
}

// outcome returns the outcome of an object, and its ID.
func outcome(t *testing.T, name, label string) (*rules.Outcome, *rules.RuleSet) {
	t.Helper()
	rule := nfdv1alpha1.Rule{Name: "r", Labels: map[string]string{label: "1"}}
	set, report := rules.CompileSpec(name, &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{rule}}, rules.Options{})
	if !report.OK() {
		t.Fatal(report.Errors)
	}
	return rules.Link(rules.Options{}, set).Eval(rules.Input{}), set
}

// TestTheRecordIsRebuiltOnceAllNodesHavePassed drops keys that no node has any more, and no others.
func TestTheRecordIsRebuiltOnceAllNodesHavePassed(t *testing.T) {
	const prefix = nfdv1alpha1.FeatureLabelNamespace + "/"
	start := func(t *testing.T) (*library, *Book, Pass, string) {
		l := newLibrary(t)
		o, set := outcome(t, "r", "now")
		id := set.ID()
		l.generation, l.active[id] = 1, owner(id)
		b := l.opened()
		l.cover(b, "n1", gave(id, prefix+"before"), gave(id, prefix+"now"), gave("gone", prefix+"gone"), gave("unsettled", prefix+"unsettled"))
		l.states["gone"], l.states["unsettled"] = Gone, Unsettled
		return l, b, Pass{Generation: 1, Given: record.GivenBy(o, record.NewEdition(l.active))}, id
	}
	t.Run("All", func(t *testing.T) {
		l, b, pass, id := start(t)
		l.passed(b, "n1", pass)
		if got := l.stored(); got.Whole || owners(got, prefix+"gone") == nil {
			t.Errorf("the record is rebuilt after one of two nodes: %+v", got)
		}
		l.passed(b, "n1", pass)
		if got := l.stored(); got.Whole {
			t.Error("a node counts twice")
		}
		l.cover(b, "n3", gave(id, prefix+"pending"))
		held := pass
		held.Held = []Gave{gave(id, prefix+"held"), gave("gone", prefix+"gone")}
		l.passed(b, "n2", held)
		got := l.stored()
		if !got.Whole {
			t.Fatal("the record is not rebuilt")
		}
		for label, want := range map[string][]string{
			"now": {id}, "held": {id}, "pending": {id}, "before": nil, "gone": nil, "unsettled": {"unsettled"},
		} {
			if have := owners(got, prefix+label); !slices.Equal(have, want) {
				t.Errorf("label %s is given by %v, want %v", label, have, want)
			}
		}
		if e := got.Objects[id]; e == nil || e.Rolled != "1" || e.Name != "object-"+id {
			t.Errorf("the entry of the object is %+v", e)
		}
		if len(slices.Collect(maps.Keys(got.Objects))) != 2 {
			t.Errorf("objects: %v", got.Objects)
		}
		writes := l.writes
		l.passed(b, "n1", pass)
		l.passed(b, "n2", held)
		if l.writes != writes {
			t.Error("further passes write the record again")
		}
	})
	t.Run("AnotherGeneration", func(t *testing.T) {
		l, b, pass, _ := start(t)
		l.passed(b, "n1", pass)
		l.generation = 2
		l.passed(b, "n2", pass)
		if l.stored().Whole {
			t.Error("the record is rebuilt for rules that are being replaced")
		}
		pass.Generation = 2
		l.passed(b, "n1", pass)
		if l.stored().Whole {
			t.Error("a pass with earlier rules counts for later ones")
		}
		l.passed(b, "n2", pass)
		if !l.stored().Whole {
			t.Error("the record is not rebuilt")
		}
		// A late pass with earlier rules changes nothing.
		pass.Generation = 1
		l.passed(b, "n1", pass)
		if !l.stored().Whole {
			t.Error("a late pass undoes it")
		}
	})
	t.Run("ADeletedNode", func(t *testing.T) {
		l, b, pass, _ := start(t)
		l.passed(b, "n1", pass)
		l.forget(b, "n1")
		l.forget(b, "n1")
		l.passed(b, "n2", pass)
		if l.stored().Whole {
			t.Error("a deleted node counts")
		}
		l.passed(b, "n3", pass)
		if !l.stored().Whole {
			t.Error("the record is not rebuilt")
		}
	})
	t.Run("TheNodeThatIsWaitedForIsDeleted", func(t *testing.T) {
		l, b, pass, _ := start(t)
		l.passed(b, "n1", pass)
		l.nodes = 1
		l.forget(b, "n2")
		if !l.stored().Whole {
			t.Error("the record is not rebuilt")
		}
	})
	t.Run("AFleetThatShrinks", func(t *testing.T) {
		l, b, pass, id := start(t)
		l.passed(b, "n1", pass)
		l.passed(b, "n2", pass)
		l.nodes = 1
		l.forget(b, "n2")
		l.generation, pass.Generation = 2, 2
		edited := owner(id)
		edited.Print = "2"
		l.active[id] = edited
		l.cover(b, "n1", Gave{Owner: edited, Key: record.KeyOf(keys.Label, prefix+"now")})
		l.passed(b, "n1", pass)
		if e := l.stored().Objects[id]; e == nil || e.Rolled != "2" {
			t.Errorf("all nodes have the edited object, and the record of it is %+v: after a restart, the edit explains every removal", e)
		}
	})
	t.Run("NodesThatCannotBeCounted", func(t *testing.T) {
		l, b, pass, _ := start(t)
		l.nodes = 0
		l.passed(b, "n1", pass)
		if l.stored().Whole {
			t.Error("the record is rebuilt although it is unknown which nodes there are")
		}
	})
	t.Run("ANodeThatIsCreated", func(t *testing.T) {
		l, b, pass, _ := start(t)
		l.passed(b, "n1", pass)
		l.nodes = 3
		l.passed(b, "n2", pass)
		if l.stored().Whole {
			t.Error("the record is rebuilt without the third node")
		}
		l.passed(b, "n3", pass)
		if !l.stored().Whole {
			t.Error("the record is not rebuilt")
		}
	})
	t.Run("ANodeWithoutAnOutcome", func(t *testing.T) {
		l, b, pass, _ := start(t)
		l.passed(b, "n1", pass)
		l.passed(b, "n2", Pass{Generation: 1})
		if !l.stored().Whole {
			t.Error("the record is not rebuilt")
		}
	})
}

// TestAFailedWriteIsReported lets writes of the record fail.
func TestAFailedWriteIsReported(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	t.Run("Forbidden", func(t *testing.T) {
		l := newLibrary(t)
		b := l.opened()
		l.fail = apierrors.NewForbidden(resource, "state", errors.New("no"))
		l.cover(b, "n1", gave("a", "x"))
		l.cover(b, "n1", gave("a", "y"))
		if l.writes != 1 {
			t.Errorf("%d writes, want 1: it is forbidden", l.writes)
		}
	})
	t.Run("NoNamespace", func(t *testing.T) {
		l := newLibrary(t)
		b := l.opened()
		l.fail = apierrors.NewNotFound(resource, "state")
		l.cover(b, "n1", gave("a", "x"))
	})
	t.Run("DeletedMeanwhile", func(t *testing.T) {
		l := newLibrary(t)
		b := l.opened()
		l.cover(b, "n1", gave("a", "x"))
		l.fail = apierrors.NewNotFound(resource, "state")
		if err := b.Record(t.Context(), "n1", []Gave{gave("a", "y")}); !apierrors.IsNotFound(err) {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("Unavailable", func(t *testing.T) {
		l := newLibrary(t)
		b := l.opened()
		l.fail = apierrors.NewServiceUnavailable("later")
		if err := b.Record(t.Context(), "n1", []Gave{gave("a", "x")}); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("the error is %v", err)
		}
		l.fail = nil
		l.load(b)
		l.cover(b, "n1", gave("a", "x"))
		if got := owners(l.stored(), "x"); !slices.Equal(got, []string{"a"}) {
			t.Errorf("the store has %v", got)
		}
	})
}

// TestTwoProcessesLoseNoKey lets a process write the record that another one has changed since it was read.
func TestTwoProcessesLoseNoKey(t *testing.T) {
	l := newLibrary(t)
	one := l.opened()
	l.cover(one, "n1", gave("a", "x"))
	two := l.opened()
	l.cover(one, "n1", gave("b", "y"))
	if err := two.Record(t.Context(), "n2", []Gave{gave("c", "z")}); !apierrors.IsConflict(err) {
		t.Fatalf("the error is %v, want a conflict", err)
	}
	if absent := l.load(two); absent != nil {
		t.Errorf("absent: %v; they were returned the first time", absent)
	}
	l.cover(two, "n2", gave("c", "z"))
	got := l.stored()
	for label, want := range map[string]string{"x": "a", "y": "b", "z": "c"} {
		if have := owners(got, label); !slices.Equal(have, []string{want}) {
			t.Errorf("label %s is given by %v, want %s", label, have, want)
		}
	}
}

// TestTheStoreKeepsResultsBesideTheRecord writes and deletes the last good result of an object.
func TestTheStoreKeepsResultsBesideTheRecord(t *testing.T) {
	l := newLibrary(t)
	store := NewStore(l.client, l.client, "assay", "state")
	if err := store.SetKept(t.Context(), 1, "r", []byte("data")); !errors.Is(err, ErrChanged) {
		t.Errorf("a write before the first read returns %v", err)
	}
	_, read, err := store.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.SetData(t.Context(), read, record.DataKey, "text"), store.SetKept(t.Context(), read, "r", []byte("data"))); err != nil {
		t.Fatal(err)
	}
	m, again, err := store.Read(t.Context())
	if err != nil || again != read || m.Data[record.DataKey] != "text" || string(m.BinaryData["r"]) != "data" {
		t.Errorf("read %d: %v, %v", again, m, err)
	}
	if err := store.SetKept(t.Context(), read+1, "r", nil); !errors.Is(err, ErrChanged) {
		t.Errorf("a write with the number of another read returns %v", err)
	}
	if err := store.SetKept(t.Context(), read, "r", nil); err != nil {
		t.Fatal(err)
	}
	if m, _, _ := store.Read(t.Context()); len(m.BinaryData) != 0 || m.Data[record.DataKey] != "text" {
		t.Errorf("after the deletion: %v", m)
	}
	l.fail = apierrors.NewServiceUnavailable("later")
	if err := store.SetData(t.Context(), read, record.DataKey, "more"); err == nil {
		t.Error("a failed write returns no error")
	}
	l.fail = nil
	if err := store.SetData(t.Context(), read, record.DataKey, "more"); !errors.Is(err, ErrChanged) {
		t.Errorf("the content is unknown after a failed write, and the next one returns %v", err)
	}
	_, read, err = store.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := store.SetData(t.Context(), read, record.DataKey, "more"); err != nil {
		t.Error(err)
	}
}

// TestTheRecordKeepsTheDefinitionUntilWhatWentWithItIsSettled: after a restart, objects that were deleted with their definition looked like
// those that a user had deleted, and what they gave went from all nodes at once.
func TestTheRecordKeepsTheDefinitionUntilWhatWentWithItIsSettled(t *testing.T) {
	l := newLibrary(t)
	l.nodes, l.definitions = 1, map[string]string{"rules": "first"}
	gone := Owner{ID: "1", Name: "gone", Print: "x"}
	l.active["1"] = gone
	b := l.opened()
	pass := func(generation int64, held ...Gave) {
		t.Helper()
		l.generation = generation
		if err := b.Passed(t.Context(), "n", Pass{Generation: generation, Held: held}); err != nil {
			t.Fatal(err)
		}
	}
	stored := func() *Record {
		t.Helper()
		next := l.opened()
		return next.Past()
	}
	key := Gave{Owner: gone, Key: 7}
	pass(1, key)
	if got := stored().Definitions["rules"]; got != "first" {
		t.Fatalf("the record is of definition %q", got)
	}
	delete(l.active, "1")
	l.states["1"], l.definitions = Vanished, map[string]string{"rules": "second"}
	pass(2, key)
	if got := stored(); got.Definitions["rules"] != "first" || got.Objects["1"] == nil {
		t.Errorf("while a node has what it gave: definition %q, %v", got.Definitions["rules"], got.Objects)
	}
	pass(3)
	if got := stored(); got.Definitions["rules"] != "second" || got.Objects["1"] != nil {
		t.Errorf("afterwards: definition %q, %v", got.Definitions["rules"], got.Objects)
	}
}

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/controller/loss"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// TestWhatTheAPIServerRejectsIsBlamed lists the keys of a plan that an error is about.
func TestWhatTheAPIServerRejectsIsBlamed(t *testing.T) {
	invalid := func(text string) error { return apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "n "+text, nil) }
	both := plan.Desired{Labels: M{"v.io/a": "1"}, ExtendedResources: M{"v.io/r": "1"}}
	for name, tc := range map[string]struct {
		err  error
		want plan.Desired
		keys []string
	}{
		"NamesALabel":      {invalid("v.io/a"), both, []string{"v.io/a"}},
		"NamesNothing":     {invalid(""), both, []string{"v.io/r"}},
		"NoResources":      {invalid(""), plan.Desired{Labels: M{"v.io/a": "1"}}, nil},
		"ResourcesAlone":   {invalid(""), plan.Desired{ExtendedResources: M{"v.io/r": "1"}}, []string{"v.io/r"}},
		"Forbidden":        {apierrors.NewForbidden(schema.GroupResource{}, "n", errors.New("v.io/a")), both, []string{"v.io/a"}},
		"AnotherError":     {apierrors.NewInternalError(errors.New("v.io/a")), both, nil},
		"NoError":          {nil, both, nil},
		"NoErrorOfTheAPI":  {errors.New("v.io/a"), both, nil},
		"NamesAnotherNode": {invalid("v.io/x"), plan.Desired{Labels: M{"v.io/a": "1"}}, nil},
	} {
		p := plan.Compute(plan.State{}, tc.want, plan.Policy{})
		var got []string
		if blamed := blame(tc.err, p); blamed != nil {
			for _, s := range p.Steps {
				if blamed(s) {
					got = append(got, s.Key)
				}
			}
		}
		if !slices.Equal(got, tc.keys) {
			t.Errorf("%s: blamed %v, want %v", name, got, tc.keys)
		}
	}
}

// TestOnlyWhatChangesOnTheNodeCountsAsAChange leaves out the record and Assay's own annotations.
func TestOnlyWhatChangesOnTheNodeCountsAsAChange(t *testing.T) {
	state := plan.State{
		Labels:      M{"v.io/adopted": "1", "v.io/removed": "1", "v.io/changed": "1"},
		Annotations: M{nfdv1alpha1.FeatureLabelsAnnotation: "v.io/forgotten,v.io/removed,v.io/changed"},
	}
	want := plan.Desired{Labels: M{"v.io/adopted": "1", "v.io/changed": "2", "v.io/new": "1"}, Failed: "mark"}
	p := plan.Compute(state, want, plan.Policy{})
	if len(p.Steps) != 6 {
		t.Fatalf("the plan has %d steps, want 6", len(p.Steps))
	}
	if got, want := changes(p), []string{"label v.io/changed", "label v.io/new", "label v.io/removed"}; !slices.Equal(got, want) {
		t.Errorf("changes %v, want %v", got, want)
	}
}

// deployments is a fake API server with Deployments that have these confirmations.
type deployments struct {
	client.Reader
	values []string
	err    error
}

func (d *deployments) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	for i, value := range d.values {
		m := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("d", i), Annotations: M{ConfirmAnnotation: value}}}
		into.(*metav1.PartialObjectMetadataList).Items = append(into.(*metav1.PartialObjectMetadataList).Items, m)
	}
	return d.err
}

// TestAConfirmationOnAnyDeploymentCounts looks while nothing is held, without access, and with many Deployments.
func TestAConfirmationOnAnyDeploymentCounts(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	breaker := budget.NewBreaker(budget.Budget{Window: time.Hour, Hold: 10 * time.Minute}, clock)
	now := clock.Now().UTC().Format(time.RFC3339)
	manager, confirmed := &deployments{values: []string{now}}, 0
	c := &confirmations{live: manager, breaker: breaker, metrics: sharedMetrics(), confirmed: func() { confirmed++ }}
	if c.look(t.Context()) || confirmed != 0 {
		t.Error("a confirmation counts while nothing is held")
	}
	breaker.Allow("n", 1)
	manager.err = errors.New("forbidden")
	if !c.look(t.Context()) || confirmed != 0 {
		t.Error("a list that fails confirms, or ends the search")
	}
	manager.err = nil
	for range 20 { // the order is that of a map
		manager.values = append(manager.values, "no")
	}
	if !c.look(t.Context()) || confirmed != 1 {
		t.Errorf("confirmed %d times, want once", confirmed)
	}
	if c.look(t.Context()); confirmed != 1 {
		t.Error("a confirmation counts twice")
	}
}

// quantities returns one resource.
func quantities(resourceName, amount string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceName(resourceName): resource.MustParse(amount)}
}

// TestWhatAnotherClientChangedBack tells which steps restore a value that this process wrote.
func TestWhatAnotherClientChangedBack(t *testing.T) {
	o := outcomeOf(t, nfdv1alpha1.Rule{
		Labels: M{"v.io/a": "1"}, Annotations: M{"v.io/b": "1"}, ExtendedResources: M{"v.io/r": "4"},
		Taints: []corev1.Taint{{Key: "v.io/t", Value: "1", Effect: corev1.TaintEffectNoSchedule}},
	})
	want := plan.Desired{Labels: o.Labels(), Annotations: o.Annotations(), ExtendedResources: o.ExtendedResources(), Taints: o.Taints(), Failed: "mark"}
	record := M{
		nfdv1alpha1.FeatureLabelsAnnotation: "v.io/a,v.io/gone", nfdv1alpha1.FeatureAnnotationsAnnotation: "v.io/b",
		nfdv1alpha1.ExtendedResourcesAnnotation: "v.io/r", nfdv1alpha1.TaintsAnnotation: "v.io/t=1:NoSchedule",
	}
	all := []string{"label v.io/a", "annotation v.io/b", "extended resource v.io/r", "taint v.io/t:NoSchedule"}
	zero := plan.State{Annotations: record, Labels: M{"v.io/a": "0"}, Capacity: quantities("v.io/r", "0"), Allocatable: quantities("v.io/r", "0")}
	other := zero
	other.Capacity, other.Allocatable = quantities("v.io/r", "2"), quantities("v.io/r", "2")
	for when, tc := range map[string]struct {
		state plan.State
		known memo
		want  []string
	}{
		"Missing":         {plan.State{Annotations: record}, memo{given: givenBy(o)}, all},
		"Changed":         {other, memo{given: givenBy(o)}, all},
		"ResetByAKubelet": {zero, memo{given: givenBy(o)}, []string{all[0], all[1], all[3]}},
		"NotRecorded":     {plan.State{}, memo{given: givenBy(o)}, nil},
		"FirstPass":       {plan.State{Annotations: record}, memo{}, nil},
		"UnknownState":    {plan.State{Annotations: record}, memo{given: givenBy(o), unsure: true}, nil},
		"NeverWritten":    {plan.State{Annotations: record}, memo{given: givenBy(o), left: map[string]bool{all[0]: true}}, all[1:]},
		"AnotherValue":    {plan.State{Annotations: record}, memo{given: givenBy(outcomeOf(t, nfdv1alpha1.Rule{Labels: M{"v.io/a": "2"}}))}, nil},
	} {
		p := plan.Compute(tc.state, want, plan.Policy{Taints: true})
		var got []string
		for _, s := range p.Steps {
			if tc.known.undone(s) {
				got = append(got, name(s))
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", when, got, tc.want)
		}
	}
}

// TestOnlyWhatAPlanGivesIsCovered leaves out removals, keys that nothing gives, and Assay's own annotations.
func TestOnlyWhatAPlanGivesIsCovered(t *testing.T) {
	o := outcomeOf(t, nfdv1alpha1.Rule{Labels: M{"v.io/new": "1", "v.io/changed": "2", "v.io/adopted": "1", "v.io/same": "1"}})
	set, _ := o.Giver(keys.Label, "v.io/new")
	state := plan.State{
		Labels:      M{"v.io/adopted": "1", "v.io/changed": "1", "v.io/removed": "1", "v.io/same": "1"},
		Annotations: M{nfdv1alpha1.FeatureLabelsAnnotation: "v.io/changed,v.io/removed,v.io/same,v.io/forgotten"},
	}
	p := plan.Compute(state, plan.Desired{Labels: o.Labels(), Failed: "mark"}, plan.Policy{})
	j := &judge{outcome: o, now: &inForce{givers: map[string]provenance.Giver{set.ID(): {ID: set.ID(), Name: "r"}}}}
	var got []provenance.Key
	for _, g := range j.cover(p) {
		if g.Name != "r" {
			t.Errorf("the giver is %+v", g.Giver)
		}
		got = append(got, g.Key)
	}
	var want []provenance.Key
	for _, label := range []string{"v.io/adopted", "v.io/changed", "v.io/new"} {
		want = append(want, provenance.KeyOf(keys.Label, label))
	}
	if !slices.Equal(got, want) {
		t.Errorf("covered %v, want %v", got, want)
	}
}

// TestTheStateOfAnObjectThatIsNotActive distinguishes deleted objects from those that may give keys again.
func TestTheStateOfAnObjectThatIsNotActive(t *testing.T) {
	set, _ := rules.CompileSpec("o", &nfdv1alpha1.NodeFeatureRuleSpec{}, rules.Options{})
	for name, tc := range map[string]struct {
		object *assembly.Object
		want   provenance.State
	}{
		"Deleted":    {nil, provenance.Gone},
		"Recreated":  {&assembly.Object{UID: "2"}, provenance.Gone},
		"Off":        {&assembly.Object{UID: "1"}, provenance.Off},
		"Linking":    {&assembly.Object{UID: "1", Rules: assembly.Rules{Set: set}}, provenance.Unsettled},
		"Unresolved": {&assembly.Object{UID: "1", Unresolved: &assembly.Error{}}, provenance.Unsettled},
	} {
		r := &Reconciler{object: func(string) *assembly.Object { return tc.object }}
		if got := r.state(provenance.Giver{ID: "1", Name: "o"}); got != tc.want {
			t.Errorf("%s: state %d, want %d", name, got, tc.want)
		}
	}
}

// TestAnObjectThatChangedIsTheCause compares fingerprints with those of the last pass, or of the last process.
func TestAnObjectThatChangedIsTheCause(t *testing.T) {
	givers := func(print string) map[string]provenance.Giver {
		return map[string]provenance.Giver{"o": {ID: "o", Print: print}}
	}
	entry := func(rolled string) map[string]*provenance.Entry {
		return map[string]*provenance.Entry{"o": {Rolled: rolled}}
	}
	o := outcomeOf(t, nfdv1alpha1.Rule{Labels: M{"a": "1"}})
	for name, tc := range map[string]struct {
		known memo
		past  provenance.Record
		want  bool
	}{
		"SameAsInTheLastPass":    {memo{given: provenance.GivenBy(o, provenance.NewEdition(givers("2")))}, provenance.Record{}, false},
		"OtherThanInTheLastPass": {memo{given: provenance.GivenBy(o, provenance.NewEdition(givers("1")))}, provenance.Record{}, true},
		"NewSinceTheLastPass":    {memo{given: provenance.GivenBy(o, provenance.NewEdition(nil))}, provenance.Record{}, true},
		"SameAsRecorded":         {memo{}, provenance.Record{Objects: entry("2")}, false},
		"OtherThanRecorded":      {memo{}, provenance.Record{Objects: entry("1")}, true},
		"NotInAWholeRecord":      {memo{}, provenance.Record{Whole: true}, true},
		"NotInAPartialRecord":    {memo{}, provenance.Record{}, false},
	} {
		j := &judge{known: &tc.known, past: &tc.past, now: &inForce{givers: givers("2")}}
		if got := j.changed("o"); got != tc.want {
			t.Errorf("%s: changed %t, want %t", name, got, tc.want)
		}
	}
}

// TestANodeThatIsClosedNeedsNoPace: a node with the taint of lost features gets further taints at once.
func TestANodeThatIsClosedNeedsNoPace(t *testing.T) {
	taint := corev1.Taint{Key: "v.io/lost", Effect: corev1.TaintEffectNoSchedule}
	r := &Reconciler{losses: Losses{Taint: taint, Tracker: loss.NewTracker(clocktesting.NewFakePassiveClock(time.Now()))}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: M{nfdv1alpha1.TaintsAnnotation: "v.io/lost=x:NoSchedule"}}}
	if r.bears(node) {
		t.Error("a node without the taint bears it")
	}
	node.Spec.Taints = []corev1.Taint{{Key: "v.io/lost", Value: "x", Effect: corev1.TaintEffectNoSchedule}}
	if !r.bears(node) {
		t.Error("a node with the taint does not bear it")
	}
	if !r.evicts(plan.Step{Kind: keys.Taint, Op: plan.Add, Key: plan.TaintKey(taint)}) {
		t.Error("the taint of lost features is added without a pace")
	}
}

// TestAnEventOfARuleIsEmittedOnce repeats an outcome with an Event, and another one without.
func TestAnEventOfARuleIsEmittedOnce(t *testing.T) {
	event := func(reason string) *rules.Outcome {
		return outcomeOf(t, nfdv1alpha1.Rule{Actions: []nfdv1alpha1.Action{
			{Op: "event", Args: nfdv1alpha1.JSON{Raw: []byte(`{"reason": "` + reason + `", "msg": "hello"}`)}},
		}})
	}
	first, second := event("First"), event("Second")
	for name, tc := range map[string]struct {
		before, now *rules.Outcome
		want        int
	}{"New": {nil, first, 1}, "Again": {first, first, 0}, "Another": {first, second, 1}} {
		events := record.NewFakeRecorder(9)
		sayAfter(t, events, tc.before, tc.now)
		if got := len(events.Events); got != tc.want {
			t.Errorf("%s: %d Events, want %d", name, got, tc.want)
		}
	}
}

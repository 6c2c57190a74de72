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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// TestWhatTheAPIServerRejectsIsBlamed lists the keys of a plan that an error is about.
func TestWhatTheAPIServerRejectsIsBlamed(t *testing.T) {
	invalid := func(text string) error { return apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "n "+text, nil) }
	// causes returns the error for fields and values, as the API server makes it.
	causes := func(fields ...string) error {
		var list field.ErrorList
		for i := 0; i < len(fields); i += 2 {
			list = append(list, &field.Error{Type: field.ErrorTypeInvalid, Field: fields[i], BadValue: fields[i+1], Detail: "must be valid"})
		}
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "v.io/a", list)
	}
	twice := plan.Desired{Labels: M{"v.io/r": "1", "v.io/a": "x_"}, ExtendedResources: M{"v.io/r": "1", "v.io/s": "1"}}
	both := plan.Desired{Labels: M{"v.io/a": "1"}, ExtendedResources: M{"v.io/r": "1"}}
	tainted := plan.Desired{Labels: M{"v.io/a": "1"}, Taints: []corev1.Taint{
		{Key: "v.io/a", Value: "b", Effect: corev1.TaintEffectNoExecute}, {Key: "v.io/a", Value: "b", Effect: corev1.TaintEffectNoSchedule},
		{Key: "v.io/b", Effect: corev1.TaintEffectNoSchedule},
	}}
	for name, tc := range map[string]struct {
		err  error
		want plan.Desired
		keys []string
	}{
		"NamesALabel":           {invalid("v.io/a"), both, []string{"label v.io/a"}},
		"NamesNothing":          {invalid(""), both, []string{"extended resource v.io/r"}},
		"NoResources":           {invalid(""), plan.Desired{Labels: M{"v.io/a": "1"}}, nil},
		"ResourcesAlone":        {invalid(""), plan.Desired{ExtendedResources: M{"v.io/r": "1"}}, []string{"extended resource v.io/r"}},
		"Forbidden":             {apierrors.NewForbidden(schema.GroupResource{}, "n", errors.New("v.io/a")), both, []string{"label v.io/a"}},
		"ForbiddenNamesNothing": {apierrors.NewForbidden(schema.GroupResource{}, "n", errors.New(`User "x" cannot patch resource "nodes/status"`)), both, nil},
		"AnotherError":          {apierrors.NewInternalError(errors.New("v.io/a")), both, nil},
		"NoError":               {nil, both, nil},
		"NoErrorOfTheAPI":       {errors.New("v.io/a"), both, nil},
		"NamesAnotherNode":      {invalid("v.io/x"), plan.Desired{Labels: M{"v.io/a": "1"}}, nil},
		"NamesALongerKey":       {invalid("v.io/a.b is not allowed."), plan.Desired{Labels: M{"v.io/a": "1", "v.io/a.b": "1"}}, []string{"label v.io/a.b"}},
		"EndsASentence":         {invalid("not allowed: v.io/a."), both, []string{"label v.io/a"}},
		"AFieldNamesAKey":       {causes("status.capacity[v.io/s]", "1"), twice, []string{"extended resource v.io/s"}},
		"OfOneKind":             {causes("status.capacity[v.io/r]", "1"), twice, []string{"extended resource v.io/r"}},
		"TwoFields":             {causes("status.capacity[v.io/r]", "1", "status.allocatable[v.io/s]", "1"), twice, []string{"extended resource v.io/r", "extended resource v.io/s"}},
		"AFieldOfLabels":        {causes("metadata.labels", "x_"), twice, []string{"label v.io/a"}},
		"ALabelByName":          {causes("metadata.labels", "v.io/r"), twice, []string{"label v.io/r"}},
		"AnotherField":          {causes("spec.providerID", ""), plan.Desired{Labels: M{"v.io/x": "1"}}, nil},
		"ATaintOfTheList":       {causes("metadata.taints[2].value", ""), tainted, []string{"taint v.io/a:NoSchedule"}}, // the first one is not ours
		"ATaintOfAnother":       {causes("spec.taints[0].key", ""), plan.Desired{Taints: tainted.Taints[2:]}, nil},
		"NoTaintOfTheList":      {causes("spec.taints[9].key", ""), plan.Desired{Taints: tainted.Taints[2:]}, nil},
		"TheFieldOfTaints":      {causes("spec.taints", "v.io/b"), tainted, []string{"taint v.io/b:NoSchedule"}},
		"NamesATaint":           {invalid("the taint v.io/b is not allowed"), tainted, []string{"taint v.io/b:NoSchedule"}},
		"NamesAKeyOfTaints":     {invalid("no taint v.io/a."), tainted, []string{"taint v.io/a:NoExecute", "taint v.io/a:NoSchedule"}},
		"NamesAnEffect":         {invalid("no taint v.io/a:NoExecute."), tainted, []string{"taint v.io/a:NoExecute"}},
		"NamesAValue":           {invalid("no taint v.io/a=b:NoExecute."), tainted, []string{"taint v.io/a:NoExecute"}},
		"NamesAPath":            {invalid("status.capacity.v.io/r"), both, []string{"extended resource v.io/r"}},
	} {
		other := corev1.Taint{Key: "v.io/other", Effect: corev1.TaintEffectNoSchedule}
		p := plan.Compute(plan.State{Taints: []corev1.Taint{other}}, tc.want, plan.Policy{Taints: true})
		var got []string
		if blamed := blame(tc.err, p, len(tc.want.Taints) > 0); blamed != nil {
			for _, s := range p.Steps {
				if blamed(s) {
					got = append(got, nameOf(s))
				}
			}
		}
		if !slices.Equal(got, tc.keys) {
			t.Errorf("%s: blamed %v, want %v", name, got, tc.keys)
		}
	}
}

// TestATaintThatGoesIsTriedAgain: a policy that was behind its new settings rejected that the start-up taint goes, and the node stayed closed for ten
// minutes.
func TestATaintThatGoesIsTriedAgain(t *testing.T) {
	p := &plan.Plan{Steps: []plan.Step{{Kind: keys.Taint, Op: plan.Remove, Key: "v.io/t:NoSchedule"}, {Kind: keys.Taint, Op: plan.Add, Key: "v.io/t:NoExecute"}}}
	rejection := apierrors.NewForbidden(schema.GroupResource{}, "n", errors.New("no rule may write v.io/t"))
	blamed := blame(rejection, p, true)
	if blamed == nil || blamed(p.Steps[0]) || !blamed(p.Steps[1]) {
		t.Error("want the new taint blamed, and not the one that goes")
	}
	closed := plan.State{Taints: []corev1.Taint{{Key: "v.io/t", Effect: corev1.TaintEffectNoSchedule}}}
	if opens := plan.Compute(closed, plan.Desired{}, plan.Policy{}).WithoutTaint("v.io/t"); len(opens.Steps) != 1 || blame(rejection, opens, true) != nil {
		t.Errorf("the start-up taint is blamed: %+v", opens.Steps)
	}
}

// TestOnlyWhatChangesOnTheNodeCountsAsAChange leaves out the record and Assay's own annotations.
func TestOnlyWhatChangesOnTheNodeCountsAsAChange(t *testing.T) {
	state := plan.State{
		Labels:      M{"v.io/adopted": "1", "v.io/removed": "1", "v.io/changed": "1"},
		Annotations: M{nfdv1alpha1.FeatureLabelsAnnotation: "v.io/forgotten,v.io/removed,v.io/changed"},
	}
	want := plan.Desired{Labels: M{"v.io/adopted": "1", "v.io/changed": "2", "v.io/corrected": "1", "v.io/new": "1"}, Failed: "mark"}
	p := plan.Compute(state, want, plan.Policy{})
	if len(p.Steps) != 7 {
		t.Fatalf("the plan has %d steps, want 7", len(p.Steps))
	}
	if got, want := changes(p, M{"label v.io/corrected": "1"}), []string{"label v.io/changed", "label v.io/new", "label v.io/removed"}; !slices.Equal(got, want) {
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
	c := &confirmations{live: manager, annotation: ConfirmAnnotation, breaker: breaker, waiting: sharedMetrics().waiting, confirmed: func() { confirmed++ }}
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

// TestTheStateOfAnObjectThatIsNotActive distinguishes deleted objects from those that may give keys again.
func TestTheStateOfAnObjectThatIsNotActive(t *testing.T) {
	set, _ := rules.CompileSpec("o", &nfdv1alpha1.NodeFeatureRuleSpec{}, rules.Options{})
	for name, tc := range map[string]struct {
		object *assembly.Object
		want   provenance.State
	}{
		"Deleted":                {nil, provenance.Gone},
		"Recreated":              {&assembly.Object{UID: "2"}, provenance.Gone},
		"Off":                    {&assembly.Object{UID: "1"}, provenance.Off},
		"Linking":                {&assembly.Object{UID: "1", Rules: assembly.Rules{Set: set}}, provenance.Waiting},
		"RecreatedAndLinking":    {&assembly.Object{UID: "2", Rules: assembly.Rules{Set: set}}, provenance.Waiting},
		"RecreatedAndActive":     {&assembly.Object{UID: "3", Rules: assembly.Rules{Set: set}}, provenance.Gone},
		"Unresolved":             {&assembly.Object{UID: "1", Unresolved: &assembly.Error{}}, provenance.Unsettled},
		"CreatedAgainAndUnknown": {&assembly.Object{UID: "2", Lost: &assembly.Error{}}, provenance.Waiting},
		"Waiting":                {&assembly.Object{UID: "1", Lost: &assembly.Error{}}, provenance.Waiting},
	} {
		g := &owners{
			object: func(string) *assembly.Object { return tc.object }, vanished: func(string, string) bool { return false },
			book: provenance.NewBook(nil, provenance.Fleet{}),
		}
		active := &desired.Active{Owners: map[string]provenance.Owner{"3": {ID: "3"}}}
		if got := g.state(active, provenance.Owner{ID: "1", Name: "o"}); got != tc.want {
			t.Errorf("%s: state %d, want %d", name, got, tc.want)
		}
	}
}

// TestAnObjectHasOneStateInAPass: a rule was applied again while a pass over a node waited for the API server, and a label went and came back.
// The pass evaluated the rules of before, and the budget had been asked about other keys.
func TestAnObjectHasOneStateInAPass(t *testing.T) {
	now := &assembly.Object{UID: "1", Lost: &assembly.Error{}}
	g := &owners{object: func(string) *assembly.Object { return now }, book: provenance.NewBook(nil, provenance.Fleet{})}
	active, by := &desired.Active{}, provenance.Owner{ID: "1", Name: "o"}
	state := g.states(active)
	first := state(by)
	now = &assembly.Object{UID: "1"}
	if again, next := state(by), g.states(active)(by); first != provenance.Waiting || again != first || next != provenance.Off {
		t.Errorf("states %d and %d in one pass, %d in the next one", first, again, next)
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
		emitAfter(t, events, tc.before, tc.now)
		if got := len(events.Events); got != tc.want {
			t.Errorf("%s: %d Events, want %d", name, got, tc.want)
		}
	}
}

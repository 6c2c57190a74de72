package decide

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// TestTheCauseOfARemoval asks for the cause of the removal of a label that one or two objects gave.
func TestTheCauseOfARemoval(t *testing.T) {
	gives, mute := compiled(t, "gives", nfdv1alpha1.Rule{Labels: M{"v.io/a": "1"}}), compiled(t, "mute", nfdv1alpha1.Rule{Labels: M{"v.io/b": "1"}})
	nothing := rules.Link(rules.Options{}, mute).Eval(rules.Input{})
	removed := plan.Compute(plan.State{
		Labels: M{"v.io/a": "1"}, Taints: []corev1.Taint{{Key: "v.io/t", Effect: "NoSchedule"}, {Key: "v.io/failed", Effect: "NoSchedule"}},
		Annotations: M{nfdv1alpha1.FeatureLabelsAnnotation: "v.io/a", nfdv1alpha1.TaintsAnnotation: "v.io/failed:NoSchedule,v.io/t:NoSchedule"},
	}, plan.Desired{}, plan.Policy{})
	past := func(prints M) *record.Record {
		r := &record.Record{Whole: true}
		for id, print := range prints {
			r.Put(id, &record.Entry{Name: id, Rolled: print, Keys: map[record.Key]bool{record.KeyOf(keys.Label, "v.io/a"): true}})
		}
		return r
	}
	now := func(list ...*rules.RuleSet) *desired.Active {
		out := &desired.Active{Owners: map[string]record.Owner{}, Sets: map[string]*rules.RuleSet{}}
		for _, s := range list {
			out.Owners[s.ID()], out.Sets[s.ID()] = record.Owner{ID: s.ID(), Name: s.Name, Print: "2"}, s
		}
		return out
	}
	requested := &desired.Active{Owners: map[string]record.Owner{"requested": {ID: "requested", Print: "2"}}}
	const label = "v.io/a"
	for name, tc := range map[string]struct {
		key     string
		past    *record.Record
		now     *desired.Active
		outcome *rules.Outcome
		unknown bool
		want    record.Cause
	}{
		"FailureTaint":       {"v.io/failed:NoSchedule", past(nil), now(), nothing, false, record.Rules},
		"AnotherTaint":       {"v.io/t:NoSchedule", past(nil), now(), nothing, false, record.Unknown},
		"UnknownOwner":       {label, past(nil), now(gives), nothing, false, record.Unknown},
		"SameOwner":          {label, past(M{"gives": "2"}), now(gives), nothing, false, record.Facts},
		"ChangedOwner":       {label, past(M{"gives": "1"}), now(gives), nothing, false, record.Rules},
		"DeletedOwner":       {label, past(M{"deleted": "1"}), now(gives), nothing, false, record.Rules},
		"OneDeletedOfTwo":    {label, past(M{"deleted": "1", "gives": "2"}), now(gives), nothing, false, record.Facts},
		"ChangedWhenUnknown": {label, past(M{"gives": "1"}), now(gives), nothing, true, record.Unknown},
		"CannotGiveIt":       {label, past(M{"mute": "1"}), now(mute), nothing, true, record.Rules},
		"RequestedByFacts":   {label, past(M{"requested": "1"}), requested, nothing, true, record.Unknown},
		"StillGives":         {label, past(M{"gives": "1"}), now(gives), rules.Link(rules.Options{}, gives).Eval(rules.Input{}), true, record.Rules},
	} {
		p, o := newPass(t)
		p.Settings.FailTaint = &corev1.Taint{Key: "v.io/failed", Effect: corev1.TaintEffectNoSchedule}
		o.Past, o.Active, o.Outcome, o.Unknown = tc.past, tc.now, tc.outcome, tc.unknown
		if name == "StillGives" {
			o.Past.Whole = false
		}
		i := slices.IndexFunc(removed.Steps, func(s plan.Step) bool { return s.Key == tc.key })
		if got := p.know(removed).why(removed.Steps[i]); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestAPassRemembersWhatTheNodeHas writes all, a part, or nothing of a plan that adds one label and removes another.
func TestAPassRemembersWhatTheNodeHas(t *testing.T) {
	outcome := outcomeOf(t, nfdv1alpha1.Rule{Labels: M{"v.io/new": "1"}})
	state := plan.State{Labels: M{"v.io/old": "1"}, Annotations: M{nfdv1alpha1.FeatureLabelsAnnotation: "v.io/old,v.io/forgotten"}}
	wanted := plan.Compute(state, plan.Desired{Labels: outcome.Labels(), Failed: "mark"}, plan.Policy{})
	without := func(key string) *plan.Plan { return wanted.Without(func(s plan.Step) bool { return s.Key == key }) }
	before := map[string]desired.HeldKey{"label v.io/before": {}}
	for name, tc := range map[string]struct {
		frozen  bool
		allowed *plan.Plan
		err     error
		held    []string
		gave    bool
	}{
		"All":              {false, wanted, nil, nil, true},
		"RemovalHeld":      {false, without("v.io/old"), nil, []string{"label v.io/old"}, true},
		"AdditionHeld":     {false, without("v.io/new"), nil, nil, true},
		"Failed":           {false, wanted, ErrConflict, []string{"label v.io/new", "label v.io/old"}, false},
		"FailedWithoutAdd": {false, without("v.io/new"), ErrConflict, []string{"label v.io/old"}, false},
		"FailedWithoutAny": {false, without("v.io/new").Without(plan.Step.Takes), ErrConflict, []string{"label v.io/old"}, false},
		"FrozenNode":       {true, wanted, nil, []string{"label v.io/before"}, false},
		"FrozenAndFailed":  {true, without("v.io/new"), ErrConflict, []string{"label v.io/old"}, false},
	} {
		p, o := newPass(t)
		o.Outcome, o.Active = outcome, objects(outcome)
		p.Memory.Held = before
		d := &Decision{Wanted: wanted, Allowed: tc.allowed, keys: p.know(wanted).keys, frozen: tc.frozen}
		p.Memory.Finish(d, Done{At: p.Now, Err: tc.err, Outcome: outcome, Edition: o.Active.Edition})
		var held []string
		for key := range p.Memory.Held {
			held = append(held, key)
		}
		slices.Sort(held)
		if !slices.Equal(held, tc.held) {
			t.Errorf("%s: held %v, want %v", name, held, tc.held)
		}
		if got := p.Memory.Given.Has(keys.Label, "v.io/new", "1"); got != tc.gave {
			t.Errorf("%s: the outcome is on the Node: %t, want %t", name, got, tc.gave)
		}
	}
}

// TestAFailedPassKeepsWhatMayBeOnTheNode: after an error other than a conflict, the write may have been carried out.
func TestAFailedPassKeepsWhatMayBeOnTheNode(t *testing.T) {
	var m Memory
	d := &Decision{Wanted: &plan.Plan{}, Allowed: &plan.Plan{}}
	if m.Finish(d, Done{Err: errors.New("timeout")}); !m.Unsure {
		t.Error("the state of the Node is known after an error")
	}
	if m.Finish(d, Done{Err: ErrConflict}); !m.Unsure {
		t.Error("a conflict makes the state of the Node known")
	}
}

// TestOnlyWhatAPlanGivesIsRecorded leaves out removals, keys that nothing gives, and Assay's own annotations.
func TestOnlyWhatAPlanGivesIsRecorded(t *testing.T) {
	p, o := newPass(t)
	o.Outcome = outcomeOf(t, nfdv1alpha1.Rule{Labels: M{"v.io/new": "1", "v.io/changed": "2", "v.io/adopted": "1", "v.io/same": "1"}})
	o.Active = objects(o.Outcome)
	state := plan.State{
		Labels:      M{"v.io/adopted": "1", "v.io/changed": "1", "v.io/removed": "1", "v.io/same": "1"},
		Annotations: M{nfdv1alpha1.FeatureLabelsAnnotation: "v.io/changed,v.io/removed,v.io/same,v.io/forgotten"},
	}
	in := plan.Compute(state, plan.Desired{Labels: o.Outcome.Labels(), Failed: "mark"}, plan.Policy{})
	var got []record.Key
	for _, g := range p.know(in).owners(in) {
		if g.Name != "r" {
			t.Errorf("the owner is %+v", g.Owner)
		}
		got = append(got, g.Key)
	}
	var want []record.Key
	for _, label := range []string{"v.io/adopted", "v.io/changed", "v.io/new"} {
		want = append(want, record.KeyOf(keys.Label, label))
	}
	if !slices.Equal(got, want) {
		t.Errorf("recorded %v, want %v", got, want)
	}
}

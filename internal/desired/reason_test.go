package desired

import (
	"testing"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

type M = map[string]string

// outcomeOf returns the outcome of the object r with one rule.
func outcomeOf(t *testing.T, rule nfdv1alpha1.Rule) *rules.Outcome {
	t.Helper()
	rule.Name = "a"
	set, report := rules.CompileSpec("r", &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{rule}}, rules.Options{})
	if !report.OK() {
		t.Fatal(report.Errors)
	}
	return rules.Link(rules.Options{}, set).Eval(rules.Input{})
}

// TestALabelOfANodeFeatureIsNotOverruled: no object set it.
func TestALabelOfANodeFeatureIsNotOverruled(t *testing.T) {
	o := &Origins{Memory: &Memory{}, Active: &Active{}, Past: &record.Record{Whole: true}}
	o.Outcome = rules.Link(rules.Options{}).Eval(rules.Input{Labels: M{"v.io/a": "1"}})
	if o.overruled(plan.Step{Kind: keys.Label, Key: "v.io/a"}) {
		t.Error("a requested label is overruled by an object")
	}
	if o.Outcome = outcomeOf(t, nfdv1alpha1.Rule{Labels: M{"v.io/a": "1"}}); !o.overruled(plan.Step{Kind: keys.Label, Key: "v.io/a"}) {
		t.Error("a label of a new object is not overruled")
	}
}

// TestAnObjectThatChangedIsTheCause compares fingerprints with those of the last pass, or of the last process.
func TestAnObjectThatChangedIsTheCause(t *testing.T) {
	owners := func(print string) map[string]record.Owner {
		return map[string]record.Owner{"o": {ID: "o", Print: print}}
	}
	entry := func(rolled string) map[string]*record.Entry {
		return map[string]*record.Entry{"o": {Rolled: rolled}}
	}
	outcome := outcomeOf(t, nfdv1alpha1.Rule{Labels: M{"a": "1"}})
	for name, tc := range map[string]struct {
		known Memory
		past  record.Record
		want  bool
	}{
		"SameAsInTheLastPass":    {Memory{Given: record.GivenBy(outcome, record.NewEdition(owners("2")))}, record.Record{}, false},
		"OtherThanInTheLastPass": {Memory{Given: record.GivenBy(outcome, record.NewEdition(owners("1")))}, record.Record{}, true},
		"NewSinceTheLastPass":    {Memory{Given: record.GivenBy(outcome, record.NewEdition(nil))}, record.Record{}, true},
		"SameAsRecorded":         {Memory{}, record.Record{Objects: entry("2")}, false},
		"OtherThanRecorded":      {Memory{}, record.Record{Objects: entry("1")}, true},
		"NotInAWholeRecord":      {Memory{}, record.Record{Whole: true}, true},
		"NotInAPartialRecord":    {Memory{}, record.Record{}, false},
	} {
		o := &Origins{Memory: &tc.known, Past: &tc.past, Active: &Active{Owners: owners("2")}}
		if got := o.changed("o"); got != tc.want {
			t.Errorf("%s: changed %t, want %t", name, got, tc.want)
		}
	}
}

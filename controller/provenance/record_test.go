package provenance

import (
	"fmt"
	"strings"
	"testing"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
)

func TestARecordSurvivesItsText(t *testing.T) {
	r := &Record{Whole: true}
	a, b := Giver{ID: "1", Name: "a", Print: "x"}, Giver{ID: "2", Name: "b", Print: "y"}
	shared, own := KeyOf(rules.KindLabel, "shared"), KeyOf(rules.KindLabel, "own")
	r.Add(a, shared)
	r.Add(b, shared)
	r.Add(b, own)
	r.Objects["1"].Rolled = "x"
	got, err := Decode(r.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if got.Encode() != r.Encode() || !got.Whole {
		t.Errorf("%s became %s", r.Encode(), got.Encode())
	}
	if givers := got.Givers(shared); len(givers) != 2 || givers[0] != a || givers[1].Print != "" {
		t.Errorf("givers of the shared key: %v", givers)
	}
	if givers := got.Givers(KeyOf(rules.KindAnnotation, "own")); len(givers) != 0 {
		t.Errorf("a label counts as an annotation: %v", givers)
	}
	if !got.Covers(a, shared) || got.Covers(a, own) || got.Covers(Giver{ID: "1", Print: "z"}, shared) {
		t.Error("the record does not cover what it should, or more")
	}
}

func TestARecordIsBounded(t *testing.T) {
	r := &Record{Whole: true}
	for i := range 400 {
		g := Giver{ID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i), Name: strings.Repeat("n", 253), Print: "0123456789abcdef"}
		for j := range 3 + i*10 {
			r.Add(g, Key(j))
		}
	}
	text := r.Encode()
	got, err := Decode(text)
	if err != nil || len(text) > MaxRecord {
		t.Fatalf("%d bytes: %v", len(text), err)
	}
	if got.Whole || len(got.Objects) < 100 || len(got.Objects) == 400 {
		t.Errorf("whole: %v, with %d objects", got.Whole, len(got.Objects))
	}
	for id, e := range r.Objects {
		if len(e.Keys) > MaxKeys {
			t.Errorf("%d keys of %s", len(e.Keys), id)
		}
	}
}

func TestATextThatIsNotARecordIsAnError(t *testing.T) {
	for _, text := range []string{"x", `{"objects":{"a":{"keys":"?"}}}`, `{"objects":{"a":{"keys":"AA=="}}}`} {
		if _, err := Decode(text); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

// An incomplete record does not prove that an object which it lacks is new.
func TestAnIncompleteRecordDoesNotMakeObjectsLookEdited(t *testing.T) {
	r := &Record{}
	r.Add(Giver{ID: "1", Print: "x"}, 1)
	if got := r.Givers(1); len(got) != 1 || got[0].Print != "x" {
		t.Errorf("givers are %v", got)
	}
}

// object compiles an object with one rule.
func object(t *testing.T, name string, r nfdv1alpha1.Rule) *rules.RuleSet {
	t.Helper()
	r.Name = "r"
	set, report := rules.CompileSpec(name, &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{r}}, rules.Options{})
	if !report.OK() {
		t.Fatal(report.Errors)
	}
	return set
}

func TestAFingerprintChangesWithWhatAnObjectReads(t *testing.T) {
	exists := map[string]*nfdv1alpha1.MatchExpression{"kind": {Op: nfdv1alpha1.MatchExists}}
	reads := nfdv1alpha1.FeatureMatcher{{Feature: "rule.matched", MatchExpressions: (*nfdv1alpha1.MatchExpressionSet)(&exists)}}
	labels := func(key, value string) nfdv1alpha1.Rule {
		return nfdv1alpha1.Rule{Labels: map[string]string{key: value}}
	}
	reader := nfdv1alpha1.Rule{Labels: map[string]string{"read": "1"}, MatchFeatures: reads}
	for name, tc := range map[string]struct {
		before, after nfdv1alpha1.Rule // of another object
		settings      string
		changes       bool
	}{
		"Same":            {labels("kind", "1"), labels("kind", "1"), "", false},
		"WhatItReads":     {labels("kind", "1"), labels("kind", "2"), "", true},
		"WhatItIgnores":   {labels("other", "1"), labels("other", "2"), "", false},
		"BeginsToBeRead":  {labels("other", "1"), labels("kind", "1"), "", true},
		"MayBeOfTemplate": {nfdv1alpha1.Rule{LabelsTemplate: "a=1"}, nfdv1alpha1.Rule{LabelsTemplate: "a=2"}, "", true},
		"Settings":        {labels("kind", "1"), labels("kind", "1"), "other", true},
	} {
		t.Run(name, func(t *testing.T) {
			of := func(other nfdv1alpha1.Rule, settings string) string {
				p := rules.Link(rules.Options{}, object(t, "reader", reader), object(t, "other", other))
				return Objects(p, settings)["reader"].Print
			}
			if changed := of(tc.before, "") != of(tc.after, tc.settings); changed != tc.changes {
				t.Errorf("changed: %v, want %v", changed, tc.changes)
			}
		})
	}
}

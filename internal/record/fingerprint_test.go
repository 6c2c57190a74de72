package record

import (
	"testing"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
)

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

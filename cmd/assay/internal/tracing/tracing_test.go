package tracing_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/tracing"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

func TestHidesMaskedValuesAndTheReasonThatQuotesThem(t *testing.T) {
	set, report := rules.CompileSpec("r", &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{
		Name:   "a",
		Labels: map[string]string{"a": "yes"},
		MatchFeatures: nfdv1alpha1.FeatureMatcher{{
			Feature: "local.feature",
			MatchExpressions: &nfdv1alpha1.MatchExpressionSet{
				"password": {Op: nfdv1alpha1.MatchExists},
				"size":     {Op: nfdv1alpha1.MatchGt, Value: nfdv1alpha1.MatchValue{"7"}},
			},
		}},
	}}}, rules.Options{})
	if !report.OK() {
		t.Fatal(report.Errors.ToAggregate())
	}
	in := rules.Input{Facts: facts.FromMap(map[string]facts.Feature{
		"local.feature": {Attributes: facts.NewAttributes(map[string]string{"password": "swordfish", "size": "5"})},
	}, nil)}
	trace := rules.Link(rules.Options{}, set).Trace(in)
	want := []tracing.Line{
		{Held: true, Subject: "local.feature", Asked: "password Exists", Found: "found " + rules.Hidden},
		{Subject: "local.feature", Asked: "size Gt 7", Found: "found 5"},
	}
	if diff := cmp.Diff(want, tracing.Lines(&trace[0], rules.Masking{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if why := tracing.Why(&trace[0], rules.Masking{}); why != "" {
		t.Errorf("the reason is shown: %s", why)
	}
	if n := tracing.Lacking(&trace[0]); n != 2 {
		t.Errorf("the rule lacks %d, want its term and one expression", n)
	}
}

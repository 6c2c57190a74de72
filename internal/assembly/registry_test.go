package assembly_test

import (
	"fmt"
	"runtime"
	"testing"
	"weak"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

// TestDeletedRulesAreForgotten evaluates rules, deletes them, and checks that they are garbage collected: results of 60 rules with
// 200 patterns used to hold 163 MB.
func TestDeletedRulesAreForgotten(t *testing.T) {
	r := assembly.NewRegistry(rules.Options{})
	r.Ready()
	in := rules.Input{Node: rules.Node{Name: "n1"}, Facts: facts.FromMap(map[string]facts.Feature{
		"a.b": {Attributes: facts.NewAttributes(map[string]string{"c": "d"})},
	}, nil)}
	var gone []weak.Pointer[rules.RuleSet]
	for i := range 3 {
		set, report := rules.CompileSpec(fmt.Sprint("o", i), &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{
			Name: "r", Labels: map[string]string{"l": "{node}"}, MatchFeatures: nfdv1alpha1.FeatureMatcher{{
				Feature: "a.b", MatchName: &nfdv1alpha1.MatchExpression{Op: nfdv1alpha1.MatchInRegexp, Value: []string{"c+"}},
			}},
		}, {Name: "s", Labels: map[string]string{"m": "x"}}}}, rules.Options{})
		if !report.OK() {
			t.Fatal(report.Errors)
		}
		r.Replace([]assembly.Rules{{Set: set}}, nil)
		gone = append(gone, weak.Make(set))
	}
	before := r.Program()
	before.Program.Eval(in).Labels()
	r.Replace(nil, []string{"o0", "o2"})
	before.Program.Eval(in) // an evaluation that was in progress
	after := r.Program()
	after.Program.Eval(in).Labels()
	runtime.GC()
	runtime.GC()
	for i, want := range []bool{false, true, false} {
		if got := gone[i].Value() != nil; got != want {
			t.Errorf("o%d is in memory: %t, want %t", i, got, want)
		}
	}
	runtime.KeepAlive(r)
}

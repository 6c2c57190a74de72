package rules_test

import (
	"fmt"
	"testing"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/test/bench"
)

func benchNode(b testing.TB, name string, in *facts.Interner) rules.Input {
	var obj nfdv1alpha1.NodeFeature
	bench.Read(b, name, &obj)
	return rules.Input{Node: rules.Node{Name: obj.Name}, Facts: facts.New(&obj.Spec.Features, in)}
}

func benchProgram(b testing.TB, n int) *rules.Program {
	var list nfdv1alpha1.NodeFeatureRuleList
	bench.Read(b, fmt.Sprintf("rules-%d", n), &list)
	var sets []*rules.RuleSet
	for i := range list.Items {
		set, report := rules.Compile(&list.Items[i], rules.Options{})
		if !report.OK() {
			b.Fatal(report.Errors.ToAggregate())
		}
		sets = append(sets, set)
	}
	return rules.Link(rules.Options{}, sets...)
}

// BenchmarkEvalCold evaluates all rules, including the merge of labels. NFD takes 0.25, 2.7 and 13.6 ms, and 2,305, 25,100 and
// 126,000 allocations.
func BenchmarkEvalCold(b *testing.B) {
	for _, n := range []int{10, 100, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p, in := benchProgram(b, n), benchNode(b, "node-0", nil)
			b.ReportAllocs()
			for b.Loop() {
				p.Eval(in).Labels()
			}
		})
	}
}

package match

import (
	"testing"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/test/bench"
)

func benchFacts(t testing.TB, name string) *facts.Facts {
	t.Helper()
	var node nfdv1alpha1.NodeFeature
	bench.Read(t, name, &node)
	return facts.New(&node.Spec.Features, nil)
}

// benchMatchers compiles all lists of terms in a file of rules, including those of matchAny.
func benchMatchers(t testing.TB, name string) (matchers []*Matcher, terms [][]Term) {
	t.Helper()
	var list nfdv1alpha1.NodeFeatureRuleList
	bench.Read(t, name, &list)
	add := func(m nfdv1alpha1.FeatureMatcher) {
		terms = append(terms, termsOf(m))
		matchers = append(matchers, compile(t, terms[len(terms)-1], Options{}))
	}
	for _, object := range list.Items {
		for _, rule := range object.Spec.Rules {
			add(rule.MatchFeatures)
			for _, elem := range rule.MatchAny {
				add(elem.MatchFeatures)
			}
		}
	}
	return matchers, terms
}

// termsOf converts terms of the API.
func termsOf(m nfdv1alpha1.FeatureMatcher) []Term {
	var out []Term
	for _, from := range m {
		t := Term{Feature: from.Feature, Name: from.MatchName}
		if from.MatchExpressions != nil {
			t.HasExpressions, t.Expressions = true, *from.MatchExpressions
		}
		out = append(out, t)
	}
	return out
}

func compile(t testing.TB, terms []Term, opt Options) *Matcher {
	t.Helper()
	m, errs := Compile(nil, terms, opt)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return m
}

// BenchmarkEval evaluates one list of terms of each kind on a large server.
func BenchmarkEval(b *testing.B) {
	node := benchFacts(b, "node-0")
	set := func(feature string, expressions map[string]*Expr) []Term {
		return []Term{{Feature: feature, Expressions: expressions}}
	}
	kinds := map[string][]Term{
		"Flag":      set("cpu.cpuid", map[string]*Expr{"AVX512F": {Op: "Exists"}, "AMXBF16": {Op: "Exists"}}),
		"Attribute": {{Feature: "memory.numa", Expressions: map[string]*Expr{"is_numa": {Op: "IsTrue"}, "node_count": {Op: "GtLt", Value: []string{"1", "9"}}}}, {Feature: "kernel.version", Expressions: map[string]*Expr{"full": {Op: "Ge", Value: []string{"5.10"}, Type: "version"}}}},
		"Config":    set("kernel.config", map[string]*Expr{"ACPI_CAN_3851": {Op: "In", Value: []string{"y", "m"}}}),
		"Instances": set("pci.device", map[string]*Expr{"class": {Op: "In", Value: []string{"0302", "0300", "0200"}}, "vendor": {Op: "In", Value: []string{"15b3"}}}),
		"Speed":     set("network.device", map[string]*Expr{"speed": {Op: "Ge", Value: []string{"25000"}}}),
		"Regexp":    {{Feature: "kernel.loadedmodule", Name: &Expr{Op: "InRegexp", Value: []string{"^nvidia", "^amdgpu"}}}},
		"Automaton": {{Feature: "kernel.loadedmodule", Name: &Expr{Op: "InRegexp", Value: []string{"^nvidia[_-].*[0-9]+$"}}}},
		"Contains":  {{Feature: "kernel.config", Name: &Expr{Op: "InRegexp", Value: []string{"NO_SUCH"}}}},
	}
	for name, terms := range kinds {
		b.Run(name, func(b *testing.B) {
			m := compile(b, terms, Options{})
			var work Work
			b.ReportAllocs()
			for b.Loop() {
				work = 0
				if _, err := m.EvalWithin(&work, node, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, name := range []string{"rules-10", "rules-100", "rules-500"} {
		b.Run(name, func(b *testing.B) {
			matchers, _ := benchMatchers(b, name)
			var work Work
			b.ReportAllocs()
			for b.Loop() {
				for _, m := range matchers {
					work = 0
					if _, err := m.EvalWithin(&work, node, false); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(len(matchers)), "lists")
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	_, terms := benchMatchers(b, "rules-100")
	b.ReportAllocs()
	for b.Loop() {
		for _, t := range terms {
			if _, errs := Compile(nil, t, Options{}); len(errs) > 0 {
				b.Fatal(errs)
			}
		}
	}
}

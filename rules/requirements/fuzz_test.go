package requirements_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/requirements"
)

// FuzzAnnotations uses random strings as annotations. Each error must have a position in its annotation. Valid requirements must
// evaluate without internal errors, return a reason if they do not hold, and give the same result a second time.
func FuzzAnnotations(f *testing.F) {
	for _, seed := range []struct{ required, preferred string }{
		{"matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AVX: {op: Exists}}}]", ""},
		{"matchAny: [{matchFeatures: [{feature: memory.numa, matchExpressions: {node_count: {op: Ge, value: ['2']}}}]}]", "- {weight: 5, matchFeatures: [{feature: cpu.cpuid, matchName: {op: InRegexp, value: ['^A']}}]}"},
		{`conditions: [{op: "!eq", args: {values: ["{node.labels.pool}", green]}}, {op: one-of, args: {value: "{@cpu.model.family}", values: [6, 7]}}]`, "- weight: 100\n  conditions: [{op: is-true, args: {value: '{node.name}'}}]"},
		{"{}", "[]"}, {"matchFeatures: 7", "weight: 1"}, {"a: &a [*a]", "- {weight: 1e9}"}, {"\xff", "\x00"}, {"matchFeatures: [{feature: RULE.matched}]", ""},
	} {
		f.Add(seed.required, seed.preferred)
	}
	in := rules.Input{Node: rules.Node{Name: "n1", Labels: map[string]string{"pool": "blue"}}, Facts: facts.FromMap(map[string]facts.Feature{
		"cpu.cpuid":   {Flags: facts.NewFlags("AVX", "AES")},
		"cpu.model":   {Attributes: facts.NewAttributes(map[string]string{"family": "6"})},
		"memory.numa": {Attributes: facts.NewAttributes(map[string]string{"node_count": "1"})},
	}, nil)}
	matched := map[string]string{"fast": "yes"}
	f.Fuzz(func(t *testing.T, required, preferred string) {
		annotations := map[string]string{
			assayv1alpha1.RequiredFeaturesAnnotation: required, assayv1alpha1.PreferredFeaturesAnnotation: preferred,
		}
		reqs, report := requirements.Annotations(annotations, field.NewPath("metadata"), rules.Options{})
		for _, err := range report.Errors {
			if !strings.HasPrefix(err.Field, "metadata.annotations[assay.dev/") {
				t.Errorf("the error is at %s: %v", err.Field, err)
			}
		}
		if reqs != nil && !report.OK() {
			t.Error("there are errors, and the requirements are still returned")
		}
		if reqs == nil {
			return
		}
		again, _ := requirements.Annotations(annotations, field.NewPath("metadata"), rules.Options{})
		if reqs.Hash() != again.Hash() {
			t.Error("the same text asks for something else the second time")
		}
		for _, r := range reqs.Required {
			check(t, r, in, matched)
		}
		for _, p := range reqs.Preferred {
			check(t, p.Requirement, in, matched)
		}
	})
}

// check evaluates a requirement.
func check(t *testing.T, r *requirements.Requirement, in rules.Input, matched map[string]string) {
	t.Helper()
	ok, err := r.Eval(in, matched)
	if ok && err != nil {
		t.Errorf("it holds, and fails with %v", err)
	}
	lacks := r.Lacks(in, matched)
	if ok != (lacks == "") || ok && r.Unmet(in, matched) != 0 {
		t.Errorf("that it holds is %t; it lacks %q and %d parts", ok, lacks, r.Unmet(in, matched))
	}
	if !utf8.ValidString(lacks) {
		t.Errorf("invalid string for an event: %q", lacks)
	}
}

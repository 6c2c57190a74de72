package review_test

import (
	"strings"
	"testing"

	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/review"
)

// matchAll was taken for matchAny, which turns "and" into "or"; a taint with an effect that Kubernetes does not have was a warning; a scope was
// explained with a regular expression.
func TestWhatIsMeantByFieldsThatAreWrong(t *testing.T) {
	const rule = "apiVersion: nfd.k8s-sigs.io/v1alpha1\nkind: NodeFeatureRule\nmetadata: {name: a}\nspec: "
	const matcher = "matchFeatures: [{feature: cpu.model, matchExpressions: {vendor_id: {op: "
	for name, tc := range map[string]struct{ spec, want, not string }{
		"MatchAll": {"{rules: [{name: a, labels: {a: b}, matchAll: [{matchFeatures: []}]}]}", "all terms of matchFeatures must match: write them in one matchFeatures", "matchAny"},
		"Phase":    {"{phase: Main, rules: [{name: a, labels: {a: b}, " + matcher + "Exists}}}]}]}", "did you mean main?", ""},
		"Is":       {"{rules: [{name: a, labels: {a: b}, " + matcher + "Is, value: [Intel]}}}]}]}", "did you mean In?", ""},
		"Effect": {"{rules: [{name: a, taints: [{key: example.com/a, effect: NoExec}], " + matcher + "Exists}}}]}]}",
			`error: spec.rules[0].taints[0].effect: invalid taint effect "NoExec"`, "warning"},
		"Scope": {"{scope: a b, rules: [{name: a, labels: {a: b}, " + matcher + "Exists}}}]}]}", "a scope is the value of a label", "regex"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, d := range manifest.Parse("rule.yaml", []byte(rule+tc.spec+"\n")).Documents {
				_, shape, found := review.Document(d, review.Known{})
				for _, p := range append(shape, review.Problems(d, found)...) {
					severity := "warning: "
					if p.Severity == manifest.Error {
						severity = "error: "
					}
					got = append(got, severity+p.Path+": "+p.Message)
				}
			}
			if text := strings.Join(got, "\n"); !strings.Contains(text, tc.want) || tc.not != "" && strings.Contains(text, tc.not) {
				t.Errorf("got %s, want %q, without %q", text, tc.want, tc.not)
			}
		})
	}
}

// A duplicate name in a template was an error and a warning.
func TestADuplicateNameIsOneFinding(t *testing.T) {
	const text = "apiVersion: assay.dev/v1alpha1\nkind: NodeFeatureRuleTemplate\nmetadata: {name: a}\n" +
		"spec: {rules: [{name: a, labels: {a: b}}, {name: a, labels: {b: c}}]}\n"
	for _, d := range manifest.Parse("rule.yaml", []byte(text)).Documents {
		_, _, found := review.Document(d, review.Known{})
		if len(found.Errors) != 1 || len(found.Warnings) != 0 {
			t.Errorf("got %v and %v, want one error", found.Errors, found.Warnings)
		}
	}
}

package requirements_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/requirements"
)

func annotations(t *testing.T, required, preferred string) (*requirements.Requirements, string) {
	t.Helper()
	reqs, report := requirements.Annotations(map[string]string{
		assayv1alpha1.RequiredFeaturesAnnotation: required, assayv1alpha1.PreferredFeaturesAnnotation: preferred,
	}, field.NewPath("spec", "template", "metadata"), rules.Options{})
	if report.OK() {
		return reqs, ""
	}
	return nil, report.Errors.ToAggregate().Error()
}

func TestMistakesInAnnotationsHavePaths(t *testing.T) {
	const at = "spec.template.metadata.annotations[assay.dev/"
	var many strings.Builder
	for range requirements.MaxPreferred + 1 {
		many.WriteString("- {weight: 1, matchFeatures: [{feature: a.b}]}\n")
	}
	for name, test := range map[string]struct{ required, preferred, want string }{
		"no YAML":           {required: "a: [", want: at + "required-features]: Invalid value: line 1: did not find expected node content; expected a map with matchFeatures"},
		"a list":            {required: "- a", want: at + "required-features]: Invalid value: expected a map with matchFeatures, matchAny or conditions, found a list"},
		"a word":            {required: "avx", want: at + "required-features]: Invalid value: expected a map with matchFeatures, matchAny or conditions, found a string"},
		"a map":             {preferred: "weight: 1", want: at + "preferred-features]: Invalid value: expected a list of weight with matchFeatures, matchAny or conditions, found a map"},
		"a number inside":   {required: "matchFeatures: 7", want: "Invalid value: matchFeatures cannot be a number; expected a map"},
		"a weight in words": {preferred: "- {weight: much, matchFeatures: [{feature: a.b}]}", want: "Invalid value: weight cannot be a string; expected a list"},
		"Misspelled":        {required: "matchFeature: []", want: `unknown field "matchFeature"`},
		"nothing":           {required: "{}", want: at + "required-features]: Required value: write matchFeatures"},
		"operator":          {required: "matchFeatures: [{feature: a.b, matchExpressions: {c: {op: Exist}}}]", want: at + "required-features].matchFeatures[0].matchExpressions[c].op"},
		"too long":          {required: strings.Repeat("#", requirements.MaxAnnotation+1), want: "put it into a NodeFeatureRequest"},
		"weight of 0":       {preferred: "- {weight: 0, matchFeatures: [{feature: a.b}]}", want: at + "preferred-features][0].weight: Invalid value: 0"},
		"weight of 101":     {preferred: "- {weight: 101, matchFeatures: [{feature: a.b}]}", want: at + "preferred-features][0].weight: Invalid value: 101"},
		"no weight":         {preferred: "- {matchFeatures: [{feature: a.b}]}", want: at + "preferred-features][0].weight"},
		"too many":          {preferred: many.String(), want: at + "preferred-features]: Too many"},
		"aliases of YAML":   {required: bomb(), want: "required-features]"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := annotations(t, test.required, test.preferred); !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q in it", got, test.want)
			}
		})
	}
}

// bomb returns YAML with aliases that expand to 10⁹ items.
func bomb() string {
	out := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 10; i++ {
		out += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	return out
}

func TestTheLongestAnnotationIsRead(t *testing.T) {
	text := "matchFeatures: [{feature: a.b, matchExpressions: {c: {op: Exists}}}]\n#"
	text += strings.Repeat("x", requirements.MaxAnnotation-len(text))
	if reqs, got := annotations(t, text, ""); reqs == nil {
		t.Errorf("%d bytes are rejected: %s", len(text), got)
	}
}

func TestEqualRequirementsHaveOneKey(t *testing.T) {
	a, _ := annotations(t, "matchFeatures: [{feature: a.b, matchExpressions: {x: {op: Exists}, y1: {op: Exists}}}]", "")
	b, _ := annotations(t, "matchFeatures:\n- matchExpressions:\n    y1: {op: Exists}\n    x: {op: Exists}\n  feature: a.b\n", "")
	c, _ := annotations(t, "matchFeatures: [{feature: a.b, matchExpressions: {x: {op: Exists}}}]", "")
	if a.Required[0].Key != b.Required[0].Key || a.Hash() != b.Hash() {
		t.Error("the order of keys makes a difference")
	}
	if a.Required[0].Key == c.Required[0].Key || a.Hash() == c.Hash() {
		t.Error("different requirements have one key")
	}
	if got := requirements.Join(a, b, nil, c); len(got.Required) != 2 || got.Hash() != requirements.Join(c, a).Hash() {
		t.Errorf("got %d requirements, or the order of who asks makes a difference", len(got.Required))
	}
	if requirements.Join(nil, &requirements.Requirements{}) != nil {
		t.Error("nothing joined with nothing asks for something")
	}
}

func TestPolicySelects(t *testing.T) {
	enabled := map[string]string{assayv1alpha1.SchedulingLabel: assayv1alpha1.SchedulingLabelEnabled, "team": "batch"}
	every := &metav1.LabelSelector{}
	team := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "batch"}}
	for name, test := range map[string]struct {
		reason           string
		namespaces, pods *metav1.LabelSelector
		pod, namespace   map[string]string
		want             bool
	}{
		"all":         {"an empty selector is for all labeled namespaces", every, nil, nil, enabled, true},
		"none":        {"an absent selector is for none", nil, nil, nil, enabled, false},
		"not labeled": {"who owns a namespace decides", every, nil, nil, map[string]string{"team": "batch"}, false},
		"team":        {"", team, nil, nil, enabled, true},
		"pods":        {"both must select", team, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}, map[string]string{"app": "y"}, enabled, false},
	} {
		p := &assayv1alpha1.NodeFeatureSchedulingPolicy{Spec: assayv1alpha1.NodeFeatureSchedulingPolicySpec{
			NamespaceSelector: test.namespaces, PodSelector: test.pods,
			StaleAfter: &metav1.Duration{Duration: time.Minute}, OnStale: assayv1alpha1.StaleReject,
		}}
		policy, report := requirements.CompilePolicy(p, rules.Options{})
		if !report.OK() {
			t.Fatal(report.Errors)
		}
		if policy.Requirements.StaleAfter != 60 {
			t.Errorf("staleAfter is %d", policy.Requirements.StaleAfter)
		}
		if got := policy.Selects(test.pod, test.namespace); got != test.want {
			t.Errorf("%s: %s: got %t", name, test.reason, got)
		}
	}
}

func TestPolicyMistakes(t *testing.T) {
	p := &assayv1alpha1.NodeFeatureSchedulingPolicy{Spec: assayv1alpha1.NodeFeatureSchedulingPolicySpec{
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}},
		StaleAfter:        &metav1.Duration{Duration: time.Millisecond},
		PodRequirements:   assayv1alpha1.PodRequirements{Required: &assayv1alpha1.Requirement{}},
	}}
	_, report := requirements.CompilePolicy(p, rules.Options{})
	var got []string
	for _, e := range report.Errors {
		got = append(got, e.Field)
	}
	if diff := cmp.Diff([]string{"spec.required", "spec.namespaceSelector", "spec.staleAfter"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestSumOfPreferencesIsBounded(t *testing.T) {
	var list strings.Builder
	for i := range requirements.MaxPreferred {
		fmt.Fprintf(&list, "- {weight: 1, matchFeatures: [{feature: a.b, matchName: {op: InRegexp, value: ['(a{10}){10}.%d']}}]}\n", i)
	}
	_, err := annotations(t, "", list.String())
	const want = "spec.template.metadata.annotations[assay.dev/preferred-features][9]: Forbidden: takes more than 524288 bytes of memory when it is compiled, with what"
	if !strings.Contains(err, want) {
		t.Errorf("got %.400q, want %q", err, want)
	}
	if n := strings.Count(err, "Forbidden"); n != 1 {
		t.Errorf("%d errors, want one", n)
	}
}

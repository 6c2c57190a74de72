package rules_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

// TestWhatANodeLacks names the first part of a requirement that a node does not meet, and counts the parts.
func TestWhatANodeLacks(t *testing.T) {
	node := facts.FromMap(map[string]facts.Feature{
		"cpu.cpuid":      {Flags: facts.NewFlags("AVX")},
		"kernel.version": {Attributes: facts.NewAttributes(map[string]string{"major": "5"})},
		"pci.device": {Instances: facts.NewInstances([]map[string]string{
			{"vendor": "10de", "class": "0302"}, {"vendor": "8086", "class": "0200"},
		})},
	}, nil)
	for name, tc := range map[string]struct {
		requirement, lacks string
		unmet              int
	}{
		"Nothing":        {`matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AVX: {op: Exists}}}]`, "", 0},
		"AFlag":          {`matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AMX: {op: Exists}, AVX: {op: Exists}}}]`, "cpu.cpuid/AMX", 1},
		"TwoFlags":       {`matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AMX: {op: Exists}, BMI: {op: Exists}}}]`, "cpu.cpuid/AMX", 2},
		"AValue":         {`matchFeatures: [{feature: kernel.version, matchExpressions: {major: {op: Ge, value: ["6"]}}}]`, `kernel.version/major Ge "6"`, 1},
		"AMissingBefore": {`matchFeatures: [{feature: kernel.version, matchExpressions: {major: {op: Ge, value: ["6"]}, minor: {op: Exists}}}]`, "kernel.version/minor", 2},
		"AFeature":       {`matchFeatures: [{feature: no.such, matchExpressions: {}}]`, "no.such", 1},
		"AName":          {`matchFeatures: [{feature: cpu.cpuid, matchName: {op: In, value: [AMX]}}]`, `cpu.cpuid with a name In "AMX"`, 1},
		"OneInstance": {
			`matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: In, value: ["10de"]}, class: {op: In, value: ["0200"]}}}]`,
			"pci.device with all required attributes in one instance", 1,
		},
		"TheSecondTerm": {
			`matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AVX: {op: Exists}}}, {feature: cpu.cpuid, matchExpressions: {BMI: {op: Exists}}}]`,
			"cpu.cpuid/BMI", 1,
		},
		"OneAlternative": {`matchAny: [{matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AMX: {op: Exists}}}]}]`, "cpu.cpuid/AMX", 1},
		"BothAlternatives": {
			`matchAny: [{matchFeatures: [{feature: cpu.cpuid, matchExpressions: {BMI: {op: Exists}, CMP: {op: Exists}}}]}, ` +
				`{matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AMX: {op: Exists}}}]}]`,
			"any of 2 alternatives, such as cpu.cpuid/AMX", 1,
		},
		"AnAlternativeAndATerm": {
			`matchFeatures: [{feature: cpu.cpuid, matchExpressions: {BMI: {op: Exists}}}]` + "\n" +
				`matchAny: [{matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AVX: {op: Exists}}}]}]`,
			"cpu.cpuid/BMI", 1,
		},
		"ACondition": {
			`conditions: [{op: is-true, args: {value: "yes"}}, {op: eq, args: {values: ["{@kernel.version.major}", 6]}}]`,
			"conditions[1]: eq", 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var in struct {
				MatchFeatures nfdv1alpha1.FeatureMatcher `json:"matchFeatures"`
				MatchAny      []nfdv1alpha1.MatchAnyElem `json:"matchAny"`
				Conditions    []nfdv1alpha1.Condition    `json:"conditions"`
			}
			if err := yaml.UnmarshalStrict([]byte(tc.requirement), &in); err != nil {
				t.Fatal(err)
			}
			q, report := rules.CompileRequirement(field.NewPath("required"), in.MatchFeatures, in.MatchAny, in.Conditions, rules.Options{})
			if !report.OK() {
				t.Fatal(report.Errors.ToAggregate())
			}
			input := rules.Input{Facts: node}
			if got := q.Lacks(input, nil); got != tc.lacks {
				t.Errorf("lacks %q, want %q", got, tc.lacks)
			}
			if got := q.Unmet(input, nil); got != tc.unmet {
				t.Errorf("%d parts are unmet, want %d", got, tc.unmet)
			}
		})
	}
}

// TestARepeatedNameDrawsAWarning: messages cannot distinguish two rules of one name.
func TestARepeatedNameDrawsAWarning(t *testing.T) {
	named := func(names ...string) (list []nfdv1alpha1.Rule) {
		for _, name := range names {
			list = append(list, nfdv1alpha1.Rule{Name: name, Labels: map[string]string{"a": "1"}})
		}
		return list
	}
	for name, tc := range map[string]struct {
		rules []nfdv1alpha1.Rule
		want  []string
	}{
		"Different": {named("a", "b", "c"), nil},
		"First":     {named("a", "a"), []string{"spec.rules[1].name"}},
		"Later":     {named("a", "b", "c", "b"), []string{"spec.rules[3].name"}},
		"Thrice":    {named("a", "a", "a"), []string{"spec.rules[1].name", "spec.rules[2].name"}},
	} {
		_, report := rules.CompileSpec("o", &nfdv1alpha1.NodeFeatureRuleSpec{Rules: tc.rules}, rules.Options{})
		var got []string
		for _, w := range report.Warnings {
			got = append(got, w.Path)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: warnings at %v, want %v", name, got, tc.want)
		}
	}
}

// TestWhyShowsTheValuesOfACondition: a user must see in what a node differs. Masked values are not shown.
func TestWhyShowsTheValuesOfACondition(t *testing.T) {
	node := facts.New(&nfdv1alpha1.Features{
		Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{"a.b": {Elements: map[string]string{"count": "7", "password": "hunter2"}}},
		Instances: map[string]nfdv1alpha1.InstanceFeatureSet{"nic.port": {Elements: []nfdv1alpha1.InstanceFeature{
			{Attributes: map[string]string{"name": "p0", "fw": "2"}}, {Attributes: map[string]string{"name": "p1", "fw": "1"}},
		}}},
	}, nil)
	for condition, want := range map[string]string{
		`{op: eq, args: {values: ["{@a.b.count}", 8]}}`:                                                                      `conditions[0]: eq does not hold: values ["7",8]`,
		`{op: eq, args: {values: ["{@a.b.password}", x]}}`:                                                                   `conditions[0]: column 2: the value is masked`,
		`{op: one-of, loop: "{@nic.port}", multiple: all, args: {value: "{item.name} {item.fw}", values: ["p0 2", "p1 2"]}}`: `conditions[0]: one-of does not hold: value "p1 1", values ["p0 2","p1 2"]`,
		`{op: one-of, loop: "{@nic.port}", args: {value: "{item.fw}", values: ["3"]}}`:                                       `conditions[0]: one-of does not hold for any of 2 items`,
		`{op: one-of, loop: "{@no.port}", args: {value: "{item.fw}", values: ["3"]}}`:                                        `conditions[0]: one-of does not hold: its loop has no items`,
	} {
		var c nfdv1alpha1.Condition
		if err := yaml.UnmarshalStrict([]byte(condition), &c); err != nil {
			t.Fatal(err)
		}
		q, report := rules.CompileRequirement(field.NewPath("required"), nil, nil, []nfdv1alpha1.Condition{c}, rules.Options{})
		if !report.OK() {
			t.Fatal(report.Errors.ToAggregate())
		}
		if got := q.Why(rules.Input{Facts: node}, nil); got != want {
			t.Errorf("%s: %s, want %s", condition, got, want)
		}
	}
}

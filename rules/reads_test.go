package rules_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

// someDevices returns the facts of a node with two devices and a flag.
func someDevices() *facts.Facts {
	return facts.FromMap(map[string]facts.Feature{
		"pci.device": {Instances: facts.NewInstances([]map[string]string{{"vendor": "10de", "class": "02"}, {"vendor": "8086", "class": "02"}})},
		"site.gear":  {Flags: facts.NewFlags("crane", "rack")},
		"site.place": {Attributes: facts.NewAttributes(map[string]string{"floor": "3", "room": "12", "row": "7"})},
	}, nil)
}

// TestLabelsOfWhatRulesReadOfOneAnother checks what a rule can read of its own matchers and of earlier rules.
func TestLabelsOfWhatRulesReadOfOneAnother(t *testing.T) {
	for name, tc := range map[string]struct {
		rules string
		want  map[string]string // without the default namespace
	}{
		"TheFirstOfTwoTextsReadsWhatMatched": {
			`[{name: r, labels: {a: "{matched.pci.device.len()}", b: "{node}"}, matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: In, value: ["10de"]}}}]}]`,
			map[string]string{"a": "1", "b": "n"},
		},
		"TheSecondOfTwoTextsReadsWhatMatched": {
			`[{name: r, labels: {a: "{node}", b: "{matched.pci.device.len()}"}, matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: In, value: ["10de"]}}}]}]`,
			map[string]string{"a": "n", "b": "1"},
		},
		"AVariableIsGoneOnceItIsUnset": {
			`[{name: set, vars: {x: "1"}}, {name: unset, actions: [{op: unset-var, args: {name: x}}]}, {name: read, labels: {kept: "{x}", other: "2"}}]`,
			map[string]string{"other": "2"},
		},
		"AVariableThatWasUnsetAndSetAgain": {
			`[{name: unset, vars: {x: "1"}, actions: [{op: unset-var, args: {name: x}}]}, {name: set, actions: [{op: set-var, args: {name: x, value: 7}}]}, {name: read, labels: {x: "{x + 1}"}}]`,
			map[string]string{"x": "8"},
		},
		"WhatComesAfterADeletedLabelIsSeen": {
			`[{name: r, actions: [{op: del-attribute, args: {path: /labels/gone}}, {op: set-attribute, args: {path: /labels/b, value: "1"}}]},
			  {name: read, labels: {seen: "true"}, matchFeatures: [{feature: rule.matched, matchExpressions: {b: {op: Exists}}}]}]`,
			map[string]string{"b": "1", "seen": "true"},
		},
		"WhatComesAfterAnAnnotationIsSeen": {
			`[{name: r, annotations: {first: "1"}, actions: [{op: set-attribute, args: {path: /labels/b, value: "1"}}]},
			  {name: read, labels: {seen: "true"}, matchFeatures: [{feature: rule.matched, matchExpressions: {b: {op: Exists}}}]}]`,
			map[string]string{"b": "1", "seen": "true"},
		},
		"WhatComesAfterALateReferenceIsSeen": {
			`[{name: r, labels: {a: "@rule.matched.later", b: "1"}}, {name: set, vars: {later: "2"}},
			  {name: read, labels: {seen: "true"}, matchFeatures: [{feature: rule.matched, matchExpressions: {b: {op: Exists}}}]}]`,
			map[string]string{"a": "2", "b": "1", "seen": "true"},
		},
		"AnAnnotationIsNotSeen": {
			`[{name: r, annotations: {b: "1"}},
			  {name: read, labels: {unseen: "true"}, matchFeatures: [{feature: rule.matched, matchExpressions: {b: {op: DoesNotExist}}}]}]`,
			map[string]string{"unseen": "true"},
		},
		"NothingIsSeenOfARuleThatFailed": {
			`[{name: r, labels: {a: "1"}, conditions: [{op: in-net, args: {address: "{@site.place.floor}", subnet: 10.0.0.0/8}}]},
			  {name: read, labels: {seen: "true"}, matchFeatures: [{feature: rule.matched, matchExpressions: {a: {op: DoesNotExist}}}]}, {name: last, labels: {last: "1"}}]`,
			map[string]string{"last": "1"},
		},
		"TheSecondFeatureThatMatchedIsRead": {
			`[{name: r, labels: {a: "{matched.site.gear.len()}", none: "{matched.site.place.len()}"}, matchFeatures: [{feature: pci.device}, {feature: site.gear, matchName: {op: Exists}}]}]`,
			map[string]string{"a": "2"},
		},
		"ADeletedLabelIsNotSeen": {
			`[{name: set, labels: {gone: "1"}}, {name: delete, actions: [{op: del-attribute, args: {path: /labels/gone}}]},
			  {name: read, labels: {unseen: "true"}, matchFeatures: [{feature: rule.matched, matchExpressions: {gone: {op: DoesNotExist}}}]}]`,
			map[string]string{"unseen": "true"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			program := rules.Link(rules.Options{}, compile(t, "metadata: {name: o}\nspec: {rules: "+tc.rules+"}", rules.Options{}))
			want := map[string]string{}
			for key, value := range tc.want {
				want["feature.node.kubernetes.io/"+key] = value
			}
			got := program.Eval(rules.Input{Node: rules.Node{Name: "n"}, Facts: someDevices()}).Labels()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEveryConflictNamesItsOwnLoser has three objects that set the same keys: each conflict must name the objects of its own key.
func TestEveryConflictNamesItsOwnLoser(t *testing.T) {
	object := func(name, priority, values string) *rules.RuleSet {
		return compile(t, "metadata: {name: "+name+"}\nspec: {priority: "+priority+", rules: [{name: r, labels: "+values+"}]}", rules.Options{})
	}
	program := rules.Link(rules.Options{},
		object("first", "9", `{a: "1"}`), object("second", "1", `{b: "2", c: "3"}`), object("third", "5", `{a: "10", b: "20", c: "30"}`))
	outcome := program.Eval(rules.Input{Facts: someDevices()})
	var got []string
	for _, c := range outcome.Conflicts() {
		got = append(got, c.Key+" of "+c.Kept.Object+", not of "+c.Lost.Object)
	}
	slices.Sort(got)
	want := []string{
		"feature.node.kubernetes.io/a of first, not of third",
		"feature.node.kubernetes.io/b of third, not of second",
		"feature.node.kubernetes.io/c of third, not of second",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("conflicts (-want +got):\n%s", diff)
	}
}

// TestWhoLosesAKeyWithoutAValue: a rule that deletes the label of another object does so on purpose, and a NodeFeature cannot object;
// a rule whose value cannot be written is in conflict.
func TestWhoLosesAKeyWithoutAValue(t *testing.T) {
	for second, want := range map[string]int{
		`actions: [{op: del-attribute, args: {path: /labels/a}}]`: 0,
		`labels: {a: "{@site.place.floor}"}`:                      1,
		`labels: {a: "1"}`:                                        0,
		`labels: {a: "not valid!"}`:                               1,
		`labels: {requested: "not valid!"}`:                       0,
		`labels: {requested: "2"}`:                                0,
		`labels: {a: "@rule.matched.never"}, taints: [{key: v.io/a, effect: NoSchedule}]`: 1,
	} {
		program := rules.Link(rules.Options{}, ruleSet(t, "one", `labels: {a: "1"}`), compileSpec(t, "two", `{rules: [{name: r, `+second+`}]}`))
		o := program.Eval(rules.Input{Facts: someDevices(), Labels: map[string]string{feature + "requested": "1", feature + "bad": "not valid!", feature + "valid": "1"}})
		if len(o.Conflicts()) != want {
			t.Errorf("%s: conflicts %v, want %d", second, o.Conflicts(), want)
		}
		if o.Labels()[feature+"valid"] != "1" {
			t.Errorf("%s: labels %v, without one that comes after an invalid one", second, o.Labels())
		}
	}
}

// TestDerivesFromWhatIsThere removes existing elements, and elements of features that were not published.
func TestDerivesFromWhatIsThere(t *testing.T) {
	set := compile(t, `
metadata: {name: o}
spec:
  phase: early
  rules:
  - name: derive
    actions:
    - {op: unset-feature, args: {feature: site.gear, element: crane}}
    - {op: unset-feature, args: {feature: site.absent, element: x}}
    - {op: unset-feature, args: {feature: site.gear, element: never-there}}
    - {op: unset-feature, args: {feature: site.place, element: room}}
`, rules.Options{})
	read := compile(t, `
metadata: {name: p}
spec:
  rules:
  - {name: crane, labels: {crane: "true"}, matchFeatures: [{feature: site.gear, matchExpressions: {crane: {op: Exists}}}]}
  - {name: rack, labels: {rack: "true"}, matchFeatures: [{feature: site.gear, matchExpressions: {rack: {op: Exists}}}]}
  - {name: room, labels: {room: "true"}, matchFeatures: [{feature: site.place, matchExpressions: {room: {op: Exists}}}]}
  - {name: row, labels: {row: "true"}, matchFeatures: [{feature: site.place, matchExpressions: {row: {op: Exists}}}]}
  - {name: absent, labels: {absent: "true"}, matchFeatures: [{feature: site.absent}]}
`, rules.Options{})
	got := rules.Link(rules.Options{}, set, read).Eval(rules.Input{Facts: someDevices()}).Labels()
	if diff := cmp.Diff(map[string]string{feature + "rack": "true", feature + "row": "true"}, got); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

// TestRequirementsReadWhatRulesProduced evaluates a requirement with and without labels set by rules.
func TestRequirementsReadWhatRulesProduced(t *testing.T) {
	var terms nfdv1alpha1.FeatureMatcher
	if err := yaml.UnmarshalStrict([]byte(`[{feature: rule.matched, matchExpressions: {gpu: {op: In, value: ["yes"]}}}]`), &terms); err != nil {
		t.Fatal(err)
	}
	q, report := rules.CompileRequirement(field.NewPath("required"), terms, nil, nil, rules.Options{})
	if !report.OK() {
		t.Fatal(report.Errors.ToAggregate())
	}
	for name, tc := range map[string]struct {
		matched map[string]string
		want    bool
	}{
		"NothingIsKnown": {nil, false}, "AnotherValue": {map[string]string{"gpu": "no"}, false}, "TheValue": {map[string]string{"gpu": "yes"}, true},
	} {
		if got, err := q.Eval(rules.Input{Facts: someDevices()}, tc.matched); err != nil || got != tc.want {
			t.Errorf("%s: %t, %v, want %t", name, got, err, tc.want)
		}
	}
}

// TestRulesOfWorkersAreSilentAboutWhatTheyLack checks that a warning lists exactly the outputs that a worker ignores.
func TestRulesOfWorkersAreSilentAboutWhatTheyLack(t *testing.T) {
	for text, want := range map[string]int{
		`{labels: {a: "1"}}`:                        0,
		`{labels: {a: "1"}, annotations: {b: "1"}}`: 1,
	} {
		var rule nfdv1alpha1.Rule
		if err := yaml.UnmarshalStrict([]byte(text), &rule); err != nil {
			t.Fatal(err)
		}
		rule.Name = "r"
		_, report := rules.CompileSpec("o", &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{rule}}, rules.Options{Custom: true})
		if len(report.Warnings) != want {
			t.Errorf("%s: warnings %v, want %d", text, report.Warnings, want)
		}
	}
}

// TestInvalidOutputsOfPlainRulesAreWarnings checks that an invalid output is an error only if it uses an extension of NFD.
func TestInvalidOutputsOfPlainRulesAreWarnings(t *testing.T) {
	for labels, isError := range map[string]bool{
		`{a: "not valid!"}`:         false,
		`{"not valid!": "1"}`:       false,
		`{"not valid!": "@a.b.c"}`:  false,
		`{a: "not valid{{"}`:        true,
		`{"not valid{{": "1"}`:      true,
		`{"not valid!": "a{{"}`:     true,
		`{"not valid{{": "@a.b.c"}`: true,
	} {
		set := manifestOf(t, labels)
		if _, report := rules.CompileSpec("o", set, rules.Options{}); report.OK() == isError || isError == (len(report.Warnings) > 0) {
			t.Errorf("%s: %v, %v, want an error: %t", labels, report.Errors, report.Warnings, isError)
		}
	}
}

func manifestOf(t *testing.T, labels string) *nfdv1alpha1.NodeFeatureRuleSpec {
	t.Helper()
	spec := &nfdv1alpha1.NodeFeatureRuleSpec{}
	if err := yaml.UnmarshalStrict([]byte("rules: [{name: r, labels: "+labels+"}]"), spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

// TestTextsOutsideOfRules evaluates strings with expressions on a node, with and without its features, as assay expr does.
func TestTextsOutsideOfRules(t *testing.T) {
	env := rules.TextEnv(rules.Input{Facts: someDevices()}, map[string]string{"rack": "7"}, rules.Options{})
	for name, want := range map[string]int{"pci.device": 2, "site.gear": 2, "site.place": 3} {
		if list, ok := env.Feature(name); !ok || list.Len() != want {
			t.Errorf("%s is %v, want %d elements", name, list, want)
		}
	}
	env = rules.TextEnv(rules.Input{}, map[string]string{"rack": "7"}, rules.Options{})
	if _, ok := env.Feature("pci.device"); ok {
		t.Error("a node without features has devices")
	}
	if v, ok := env.Var("rack"); !ok || v.String() != "7" {
		t.Errorf("rack is %v, want 7", v)
	}
}

// TestAKeyOfAReferenceIsCheckedWhenItsValueIsStillUnknown gives a protected label the value of a variable that a later rule sets.
func TestAKeyOfAReferenceIsCheckedWhenItsValueIsStillUnknown(t *testing.T) {
	program := rules.Link(rules.Options{}, compile(t, `
metadata: {name: o}
spec:
  rules:
  - {name: first, labels: {"kubernetes.io/role": "@rule.matched.later", allowed: "@rule.matched.later"}}
  - {name: second, vars: {later: x}}
`, rules.Options{}))
	outcome := program.Eval(rules.Input{Facts: someDevices()})
	if diff := cmp.Diff(map[string]string{"feature.node.kubernetes.io/allowed": "x"}, outcome.Labels()); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if rejected := outcome.Rejected(); len(rejected) != 1 || rejected[0].Key != "kubernetes.io/role" {
		t.Errorf("rejected: %+v, want kubernetes.io/role", rejected)
	}
}

// TestAnInstanceActionChangesOnlyWhatItMatches sets an attribute of the devices of one vendor.
func TestAnInstanceActionChangesOnlyWhatItMatches(t *testing.T) {
	mark := compile(t, `
metadata: {name: o}
spec:
  phase: early
  rules:
  - name: mark
    actions:
    - {op: set-instance-attribute, args: {feature: pci.device, match: {vendor: "10de"}, name: fast, value: "yes"}}
    - {op: set-instance-attribute, args: {feature: pci.device, match: {class: "02"}, name: slot, value: "1"}}
`, rules.Options{})
	read := compile(t, `
metadata: {name: p}
spec:
  rules:
  - {name: a, labels: {nvidia: "true"}, matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: In, value: ["10de"]}, fast: {op: Exists}}}]}
  - {name: b, labels: {intel: "true"}, matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: In, value: ["8086"]}, fast: {op: Exists}}}]}
  - {name: c, labels: {all: "true"}, matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: In, value: ["8086"]}, slot: {op: Exists}}}]}
`, rules.Options{})
	got := rules.Link(rules.Options{}, mark, read).Eval(rules.Input{Facts: someDevices()}).Labels()
	if diff := cmp.Diff(map[string]string{feature + "nvidia": "true", feature + "all": "true"}, got); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

// TestANodeFeatureRequestsLabelsByReference: a value @domain.feature.element is that of an attribute; what refers to nothing is rejected.
func TestANodeFeatureRequestsLabelsByReference(t *testing.T) {
	o := rules.Link(rules.Options{}).Eval(rules.Input{Facts: someDevices(), Labels: map[string]string{
		feature + "a": "@site.place.row", feature + "b": "@site.place.absent", feature + "c": "@no.such.feature", feature + "d": "@nothing", feature + "e": "@site.gear.rack", feature + "f": "1",
	}})
	if diff := cmp.Diff(map[string]string{feature + "a": "7", feature + "f": "1"}, o.Labels()); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	var rejected []string
	for _, r := range o.Rejected() {
		rejected = append(rejected, r.Key+": "+r.Reason)
	}
	want := []string{
		feature + "b: no value for @site.place.absent", feature + "c: no value for @no.such.feature", feature + "d: @nothing names no feature", feature + "e: no value for @site.gear.rack",
	}
	if diff := cmp.Diff(want, rejected); diff != "" {
		t.Errorf("rejected (-want +got):\n%s", diff)
	}
}

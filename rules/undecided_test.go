package rules_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
)

// unreadInput is the input of a node with a kernel and without pci.device: its worker has not read the source pci, or it has read all.
func unreadInput(sources ...string) rules.Input {
	features := map[string]facts.Feature{"kernel.version": {Attributes: facts.NewAttributes(map[string]string{"major": "6"})}}
	if len(sources) > 0 {
		features[nfdv1alpha1.UnreadFeature] = facts.Feature{Flags: facts.NewFlags(sources...)}
	}
	return rules.Input{Node: rules.Node{Name: "n"}, Facts: facts.FromMap(features, nil)}
}

// TestWhatAnUnreadSourceFindsIsNotAbsent evaluates rules whose result depends on the source pci, which the worker has not read, on a node
// without its features. With all sources read, each gives its labels.
func TestWhatAnUnreadSourceFindsIsNotAbsent(t *testing.T) {
	for name, tc := range map[string]struct {
		rules     string
		read      string // labels if the node has been read, separated by blanks
		unread    string // labels if the source pci has not been read
		undecided string // labels whose value is then unknown
	}{
		"ConditionOnAMissingFeature": {
			`[{name: a, conditions: [{op: is-none, args: {value: '{@"pci.device"}'}}], labels: {x.y/none: "1"}}]`, "x.y/none", "", "x.y/none"},
		"Default": {`
- {name: default, labels: {x.y/gpu: "none"}}
- {name: gpu, labels: {x.y/gpu: "some"}, matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: Exists}}}]}`, "x.y/gpu", "x.y/gpu", "x.y/gpu"},
		"BackReference": {`
- {name: gpu, vars: {gpu: "1"}, matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: Exists}}}]}
- {name: kernel, vars: {kernel: "1"}, matchFeatures: [{feature: kernel.version, matchExpressions: {major: {op: Exists}}}]}
- {name: other, labels: {x.y/other: "1"}, matchFeatures: [{feature: rule.matched, matchExpressions: {kernel: {op: Exists}}}]}
- {name: none, labels: {x.y/none: "1"}, matchFeatures: [{feature: rule.matched, matchExpressions: {gpu: {op: DoesNotExist}}}]}`,
			"x.y/none x.y/other", "x.y/other", "x.y/none"},
		"Alternative": {`
- name: a
  labels: {x.y/a: "1"}
  matchAny:
  - matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: Exists}}}]
  - matchFeatures: [{feature: kernel.version, matchExpressions: {major: {op: Exists}}}]`, "x.y/a", "x.y/a", ""},
		"AKnownTermFails": {`
- name: a
  labels: {x.y/a: "1"}
  matchFeatures:
  - {feature: pci.device, matchExpressions: {vendor: {op: Exists}}}
  - {feature: kernel.version, matchExpressions: {major: {op: In, value: ["5"]}}}`, "", "", ""},
		"OtherSource": {`[{name: a, labels: {x.y/a: "1"}, matchFeatures: [{feature: usb.device, matchExpressions: {vendor: {op: Exists}}}]}]`, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var spec nfdv1alpha1.NodeFeatureRuleSpec
			if err := yaml.UnmarshalStrict([]byte(tc.rules), &spec.Rules); err != nil {
				t.Fatal(err)
			}
			set, report := rules.CompileSpec("r", &spec, rules.Options{})
			if !report.OK() {
				t.Fatal(report.Errors)
			}
			program := rules.Link(rules.Options{}, set)
			given := func(in rules.Input) string {
				return strings.Join(slices.Sorted(maps.Keys(program.Eval(in).Labels())), " ")
			}
			if got := given(unreadInput()); got != tc.read {
				t.Errorf("all sources read: labels %q, want %q", got, tc.read)
			}
			in := unreadInput("pci")
			if got := given(in); got != tc.unread {
				t.Errorf("pci not read: labels %q, want %q", got, tc.unread)
			}
			for _, label := range strings.Fields(tc.read) {
				got := program.Eval(in).Undecided(keys.Label, label, func(*rules.RuleSet) bool { return true })
				if want := slices.Contains(strings.Fields(tc.undecided), label); got != want {
					t.Errorf("the value of %s is unknown: %t, want %t", label, got, want)
				}
			}
			told := slices.ContainsFunc(program.Trace(in), func(r rules.RuleTrace) bool { return strings.Contains(r.Skipped, "has not read the source pci") })
			if told != (tc.undecided != "") {
				t.Errorf("the trace names the source: %t", told)
			}
		})
	}
}

// TestAListOfElementsIsUndecided: a third party publishes some instances, and the worker has not read the source of the others (found by seed 227
// of the simulator).
func TestAListOfElementsIsUndecided(t *testing.T) {
	spec := &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{
		Name: "r", LabelsTemplate: "{{range .pci.device}}card-{{.slot}}=1\n{{end}}",
		MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: "pci.device", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{"slot": {Op: nfdv1alpha1.MatchExists}}}},
	}}}
	set, report := rules.CompileSpec("r", spec, rules.Options{})
	if !report.OK() {
		t.Fatal(report.Errors)
	}
	features := map[string]facts.Feature{nfdv1alpha1.UnreadFeature: {Flags: facts.NewFlags("pci")}}
	of := nfdv1alpha1.Features{Instances: map[string]nfdv1alpha1.InstanceFeatureSet{
		"pci.device": {Elements: []nfdv1alpha1.InstanceFeature{{Attributes: map[string]string{"slot": "9"}}}},
	}}
	in := rules.Input{Facts: facts.Merge(nil, facts.FromMap(features, nil), facts.New(&of, nil))}
	o := rules.Link(rules.Options{}, set).Eval(in)
	const other = "feature.node.kubernetes.io/card-0" // of the worker, before the boot
	if len(o.Labels()) != 0 || !o.Undecided(keys.Label, other, func(*rules.RuleSet) bool { return false }) {
		t.Errorf("labels %v; the value of %s is known", o.Labels(), other)
	}
}

// TestARequirementOnAnUnreadSourceIsNotMet: pods are not placed on a node because nothing was found there yet, and the reason says so.
func TestARequirementOnAnUnreadSourceIsNotMet(t *testing.T) {
	of := func(conditions string) *rules.Requirement {
		var list []nfdv1alpha1.Condition
		if err := yaml.UnmarshalStrict([]byte(conditions), &list); err != nil {
			t.Fatal(err)
		}
		q, report := rules.CompileRequirement(field.NewPath("x"), nil, nil, list, rules.Options{})
		if q == nil {
			t.Fatal(report.Errors)
		}
		return q
	}
	none := of(`[{op: is-none, args: {value: '{@"pci.device"}'}}]`)
	for _, tc := range []struct {
		unread []string
		met    bool
		lacks  string
	}{{nil, true, ""}, {[]string{"usb"}, true, ""}, {[]string{"pci", "usb"}, false, "unknown: the worker has not read the source pci since the node booted"}} {
		in := unreadInput(tc.unread...)
		met, err := none.Eval(in, nil)
		if err != nil || met != tc.met || none.Lacks(in, nil) != tc.lacks || none.Why(in, nil) != tc.lacks || (len(none.Unread(in)) > 0) == tc.met {
			t.Errorf("unread %q: met %t, %v, lacks %q, why %q, unknown because of %q", tc.unread, met, err, none.Lacks(in, nil), none.Why(in, nil), none.Unread(in))
		}
	}
}

// TestAnotherObjectsVariablesLeaveNoDoubt: the labels of a rule that reads a variable of its own object were kept without a time limit, because a
// rule of another object reads a source that the worker has not read.
func TestAnotherObjectsVariablesLeaveNoDoubt(t *testing.T) {
	compile := func(name, text string) *rules.RuleSet {
		spec := &nfdv1alpha1.NodeFeatureRuleSpec{}
		if err := yaml.UnmarshalStrict([]byte(text), &spec.Rules); err != nil {
			t.Fatal(err)
		}
		set, report := rules.CompileSpec(name, spec, rules.Options{})
		if !report.OK() {
			t.Fatal(report.Errors)
		}
		return set
	}
	unread := compile("a", `[{name: r, vars: {gpu: "1"}, matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: Exists}}}]}]`)
	known := compile("b", `[{name: set, vars: {x: "1"}}, {name: read, labels: {x.y/a: "{x}"}}]`)
	o := rules.Link(rules.Options{}, unread, known).Eval(unreadInput("pci"))
	if got := o.Labels()["x.y/a"]; got != "1" || o.Undecided(keys.Label, "x.y/a", func(*rules.RuleSet) bool { return true }) {
		t.Errorf("label %q; its value is unknown: %t", got, got != "1")
	}
}

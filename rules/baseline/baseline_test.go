package baseline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/baseline"
	"github.com/assay-project/assay/rules/facts"
)

type m = map[string]string

// parse returns a spec in YAML.
func parse(t testing.TB, text string) *assayv1alpha1.NodeBaselineSpec {
	t.Helper()
	spec := &assayv1alpha1.NodeBaselineSpec{}
	if err := yaml.UnmarshalStrict([]byte(text), spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

func compile(t testing.TB, text string) *baseline.Baseline {
	t.Helper()
	b, report := baseline.Compile(parse(t, text), field.NewPath("spec"), rules.Options{})
	if b == nil {
		t.Fatal(report.Errors.ToAggregate())
	}
	return b
}

// node returns a node with labels, whose worker has published attributes, by FEATURE.ELEMENT; nil: it has published nothing.
func node(name string, labels, published m) baseline.Node {
	in := rules.Input{Node: rules.Node{Name: name, Labels: labels}, Facts: facts.New(&nfdv1alpha1.Features{}, nil)}
	if published == nil {
		return baseline.Node{Input: in}
	}
	f := &nfdv1alpha1.Features{Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{}}
	for key, value := range published {
		at := strings.LastIndex(key, ".")
		set, ok := f.Attributes[key[:at]]
		if !ok {
			set.Elements = m{}
			f.Attributes[key[:at]] = set
		}
		set.Elements[key[at+1:]] = value
	}
	in.Facts = facts.New(f, nil)
	in.Publishers = []rules.Publisher{{Name: "assay/" + name, Facts: in.Facts}}
	return baseline.Node{Input: in}
}

const h100 = `
nodeSelector: {type: p5}
require:
- name: driver
  message: upgrade the driver
  matchFeatures:
  - {feature: gpu.driver, matchExpressions: {version: {op: Ge, value: ["580.1"], type: version}}}
uniform:
- {name: bios, value: '{@"system.dmiid.bios_version"}'}
within: [zone]
`

// fleet returns nodes of instance type p5 in zone a, all of them alike.
func fleet(n int) (out []baseline.Node) {
	for i := range n {
		out = append(out, node(fmt.Sprintf("n%d", i), m{"type": "p5", "zone": "a"}, m{"gpu.driver.version": "580.2", "system.dmiid.bios_version": "2.1"}))
	}
	return out
}

func TestTheStatusNamesTheNodesThatDeviate(t *testing.T) {
	nodes := fleet(8)
	nodes[2] = node("n2", m{"type": "p5", "zone": "a"}, m{"gpu.driver.version": "570.9", "system.dmiid.bios_version": "2.1"})
	nodes[4] = node("n4", m{"type": "p5", "zone": "a"}, m{"gpu.driver.version": "580.2", "system.dmiid.bios_version": "1.9"})
	nodes[5] = node("n5", m{"type": "p5", "zone": "a"}, m{"gpu.driver.version": "580.2"})
	nodes[6].Unknown = true
	nodes = append(nodes, node("other", m{"type": "m5"}, m{}), node("silent", m{"type": "p5"}, nil),
		node("alone", m{"type": "p5", "zone": "b"}, m{"gpu.driver.version": "580.1", "system.dmiid.bios_version": "9"}))
	now := metav1.NewTime(time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC))
	got := compile(t, h100).Fleet(nodes).Status(&assayv1alpha1.NodeBaselineStatus{}, 3, now)
	got.Conditions[0].LastTransitionTime = metav1.Time{}
	text, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	want := `checks:
- deviating: 1
  name: driver
- deviating: 2
  name: bios
  values:
  - nodes: 5
    value: "2.1"
  - nodes: 1
    value: "1.9"
  - nodes: 1
    value: "9"
  - nodes: 1
    value: absent
conditions:
- lastTransitionTime: null
  message: '3 of 10 nodes: n2 (driver: upgrade the driver: gpu.driver/version is "570.9",
    not Ge "580.1"); n4 (bios: 1.9; 5 of 7 nodes with zone=a have 2.1); n5 (bios:
    absent; 5 of 7 nodes with zone=a have 2.1)'
  observedGeneration: 3
  reason: NodesDeviate
  status: "False"
  type: Conforming
conforming: 5
deviating: 3
deviations:
- check: driver
  message: 'upgrade the driver: gpu.driver/version is "570.9", not Ge "580.1"'
  node: n2
  since: "2026-06-01T00:00:00Z"
- check: bios
  message: 1.9; 5 of 7 nodes with zone=a have 2.1
  node: n4
  since: "2026-06-01T00:00:00Z"
- check: bios
  message: absent; 5 of 7 nodes with zone=a have 2.1
  node: n5
  since: "2026-06-01T00:00:00Z"
nodes: 10
observedGeneration: 3
unknown: 2
`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Error(diff)
	}
	later := compile(t, h100).Fleet(nodes).Status(got, 3, metav1.NewTime(now.Add(time.Hour)))
	if diff := cmp.Diff(got, later); diff != "" {
		t.Errorf("the same fleet an hour later has another status:\n%s", diff)
	}
}

func TestConditionConforming(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes func() []baseline.Node
		want  string
	}{
		"AllConform": {func() []baseline.Node { return fleet(3) }, "True AllConform: 3 nodes"},
		"NoNodes":    {func() []baseline.Node { return nil }, "Unknown NoNodes: the baseline selects no node"},
		"Unknown": {func() []baseline.Node {
			nodes := fleet(6)
			for i := range 4 {
				nodes[i].Unknown = true
			}
			return nodes
		}, "Unknown FeaturesUnknown: the features of 4 of 6 nodes are unknown: n0, n1, n2, and 1 more"},
		"HalfUpgraded": {func() []baseline.Node {
			nodes := fleet(4)
			for i := range 2 {
				nodes[i] = node(fmt.Sprintf("n%d", i), m{"type": "p5", "zone": "a"}, m{"gpu.driver.version": "580.2", "system.dmiid.bios_version": "2.2"})
			}
			return nodes
		}, "False NoMajority: bios: no value is that of more than half of the nodes: 2.1 on 2 nodes, 2.2 on 2 nodes"},
		"MoreThanHalfUpgraded": {func() []baseline.Node {
			nodes := fleet(3)
			for i := range 2 {
				nodes[i] = node(fmt.Sprintf("n%d", i), m{"type": "p5", "zone": "a"}, m{"gpu.driver.version": "580.2", "system.dmiid.bios_version": "2.2"})
			}
			return nodes
		}, "False NodesDeviate: 1 of 3 nodes: n2 (bios: 2.1; 2 of 3 nodes with zone=a have 2.2)"},
	} {
		c := compile(t, h100).Fleet(tc.nodes()).Condition()
		if got := fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestANodeWithoutFeaturesIsUnknown: whether matchFeatures selects it cannot be decided, and it must not vanish from the counts.
func TestANodeWithoutFeaturesIsUnknown(t *testing.T) {
	b := compile(t, `
matchFeatures: [{feature: gpu.driver, matchExpressions: {version: {op: Exists}}}]
require: [{name: gpu, matchFeatures: [{feature: gpu.driver, matchExpressions: {version: {op: Exists}}}]}]
`)
	r := b.Fleet([]baseline.Node{node("gpu", nil, m{"gpu.driver.version": "1"}), node("cpu", nil, m{"x.y.z": "1"}), node("new", nil, nil)})
	if diff := cmp.Diff([]string{"gpu"}, r.Conforming); diff != "" || len(r.Unknown) != 1 || r.Unknown[0] != "new" || len(r.Deviating) != 0 {
		t.Errorf("%+v", r)
	}
}

// TestValuesThatLookLikeOtherStates: a value with the text absent is not a missing value.
func TestValuesThatLookLikeOtherStates(t *testing.T) {
	b := compile(t, `uniform: [{name: v, value: '{@"a.b.c"}'}]`)
	r := b.Fleet([]baseline.Node{node("n1", nil, m{"a.b.c": "absent"}), node("n2", nil, m{"a.b.c": "absent"}), node("n3", nil, m{})})
	if len(r.Deviations) != 1 || r.Deviations[0].Message != `absent; 2 of 3 nodes have "absent"` {
		t.Errorf("%+v", r.Deviations)
	}
}

func TestAStatusIsSmall(t *testing.T) {
	var spec strings.Builder
	long := strings.Repeat("n", 58)
	spec.WriteString("require:\n")
	for i := range baseline.MaxChecks {
		fmt.Fprintf(&spec, "- {name: %s-r%d, message: %q, matchFeatures: [{feature: a.b, matchExpressions: {c: {op: In, value: [%q]}}}]}\n", long, i,
			strings.Repeat("m", 256), strings.Repeat("v", 1000))
	}
	spec.WriteString("uniform:\n")
	for i := range baseline.MaxChecks {
		fmt.Fprintf(&spec, "- {name: %s-u%d, value: '{@\"a.b.c\"}'}\n", long, i)
	}
	var nodes []baseline.Node
	for i := range 200 {
		nodes = append(nodes, node(fmt.Sprintf("%s-%d", strings.Repeat("x", 240), i), nil, m{"a.b.c": fmt.Sprint(min(i, 90), strings.Repeat("w", 900))}))
	}
	s := compile(t, spec.String()).Fleet(nodes).Status(&assayv1alpha1.NodeBaselineStatus{}, 1, metav1.Now())
	text, err := yaml.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 128<<10 || len(s.Deviations) != 50 || int(s.Omitted) != 64*200+64*90-50 {
		t.Errorf("%d bytes, %d deviations, %d omitted", len(text), len(s.Deviations), s.Omitted)
	}
}

func TestErrors(t *testing.T) {
	for name, tc := range map[string]struct{ spec, want string }{
		"NoRequirement":  {`require: [{name: a}]`, "spec.require[0]: Required value: write matchFeatures, matchAny or conditions"},
		"Name":           {`require: [{name: A_b, matchFeatures: [{feature: a.b}]}]`, "spec.require[0].name: Invalid value"},
		"Duplicate":      {`{require: [{name: a, matchFeatures: [{feature: a.b}]}], uniform: [{name: a, value: '{@"a.b.c"}'}]}`, "spec.uniform[0].name: Duplicate value"},
		"Literal":        {`uniform: [{name: a, value: x}]`, "spec.uniform[0].value: Invalid value: \"x\": is the same on every node"},
		"Syntax":         {`uniform: [{name: a, value: '{@"a.b.c"'}]`, "spec.uniform[0].value: Invalid value"},
		"Variable":       {`uniform: [{name: a, value: '{b}'}]`, "spec.uniform[0].value: Invalid value"},
		"RulesInValue":   {`uniform: [{name: a, value: '{@"rule.matched.c"}'}]`, "spec.uniform[0].value: Forbidden: reads rule.matched"},
		"RulesInRequire": {`require: [{name: a, matchFeatures: [{feature: rule.matched, matchExpressions: {x: {op: Exists}}}]}]`, "spec.require[0]: Forbidden: reads rule.matched"},
		"RulesInMatch":   {`matchFeatures: [{feature: rule.matched, matchExpressions: {x: {op: Exists}}}]`, "spec.matchFeatures: Forbidden: reads rule.matched"},
		"Within":         {`within: [a b]`, "spec.within[0]: Invalid value"},
		"Selector":       {`nodeSelector: {a: "b c"}`, "spec.nodeSelector[a]: Invalid value"},
		"Condition":      {`{nodeCondition: Baseline, require: [{name: a, matchFeatures: [{feature: a.b}]}]}`, "spec.nodeCondition: Invalid value"},
		"ConditionAlone": {`{nodeCondition: example.com/Baseline, uniform: [{name: a, value: '{@"a.b.c"}'}]}`, "spec.nodeCondition: Forbidden"},
	} {
		b, report := baseline.Compile(parse(t, tc.spec), field.NewPath("spec"), rules.Options{})
		if b != nil || !strings.Contains(fmt.Sprint(report.Errors.ToAggregate()), tc.want) {
			t.Errorf("%s: %v, want %s", name, report.Errors.ToAggregate(), tc.want)
		}
	}
}

func TestReason(t *testing.T) {
	for check, want := range map[string]string{"driver": "Driver", "nic-firmware": "NicFirmware", "a--b1": "AB1"} {
		if got := baseline.Reason(check); got != want {
			t.Errorf("%s: %s, want %s", check, got, want)
		}
	}
}

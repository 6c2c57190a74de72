package rules_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

func compile(t *testing.T, text string, opt rules.Options) *rules.RuleSet {
	t.Helper()
	var obj nfdv1alpha1.NodeFeatureRule
	if err := yaml.UnmarshalStrict([]byte(text), &obj); err != nil {
		t.Fatal(err)
	}
	set, report := rules.Compile(&obj, opt)
	if !report.OK() {
		t.Fatal(report.Errors.ToAggregate())
	}
	return set
}

func TestLabelsWhereFeaturesMatch(t *testing.T) {
	set := compile(t, `
metadata: {name: kernel}
spec:
  rules:
  - name: modern
    labels: {kernel-is-modern: "true", kernel-major: "@kernel.version.major"}
    matchFeatures:
    - feature: kernel.version
      matchExpressions: {major: {op: Gt, value: ["4"]}}
`, rules.Options{})
	f := facts.FromMap(map[string]facts.Feature{
		"kernel.version": {Attributes: facts.NewAttributes(map[string]string{"major": "6"})},
	}, nil)
	program := rules.Link(rules.Options{}, set)
	got := program.Eval(rules.Input{Node: rules.Node{Name: "n1"}, Facts: f}).Labels()
	want := map[string]string{
		"feature.node.kubernetes.io/kernel-is-modern": "true",
		"feature.node.kubernetes.io/kernel-major":     "6",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

package baseline_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/baseline"
)

// TestTheConditionOfANode evaluates the rules of a baseline on nodes that fail no check, some of them, and whose features are unknown.
func TestTheConditionOfANode(t *testing.T) {
	o := &assayv1alpha1.NodeBaseline{ObjectMeta: metav1.ObjectMeta{Name: "h100"}, Spec: *parse(t, `
nodeSelector: {type: p5}
nodeCondition: example.com/Baseline
require:
- name: driver
  message: upgrade {it}
  matchFeatures: [{feature: gpu.driver, matchExpressions: {version: {op: Ge, value: ["580.1"], type: version}}}]
- name: nic-firmware
  conditions: [{op: eq, args: {values: ['{@"nic.card.firmware"}', "22.1"]}}]
- {name: kernel, matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: Exists}}}]}
`)}
	set, report := rules.Compile(baseline.RuleOf(o), rules.Options{})
	if !report.OK() {
		t.Fatal(report.Errors.ToAggregate())
	}
	good := m{"system.name.nodename": "n", "gpu.driver.version": "580.2", "nic.card.firmware": "22.1", "kernel.version.full": "6"}
	but := func(key, value string) m {
		out := m{}
		for k, v := range good {
			out[k] = v
		}
		if out[key] = value; value == "" {
			delete(out, key)
		}
		return out
	}
	for name, tc := range map[string]struct {
		labels    m
		published m
		want      string
	}{
		"Conforms": {m{"type": "p5"}, good, "True Conforms: The node meets all requirements of NodeBaseline h100."},
		"First": {m{"type": "p5"}, but("gpu.driver.version", "570"),
			"False Driver: The node does not meet requirements of NodeBaseline h100: driver (upgrade (it)); see kubectl describe nodebaseline h100."},
		"Second":      {m{"type": "p5"}, but("nic.card.firmware", ""), "False NicFirmware: The node does not meet requirements of NodeBaseline h100: nic-firmware; see kubectl describe nodebaseline h100."},
		"All":         {m{"type": "p5"}, m{"system.name.nodename": "n"}, "False Driver: The node does not meet requirements of NodeBaseline h100: driver (upgrade (it)); nic-firmware; kernel; see kubectl describe nodebaseline h100."},
		"Unknown":     {m{"type": "p5"}, nil, "Unknown FeaturesUnknown: The features of the node are unknown: check its worker."},
		"NotSelected": {m{"type": "m5"}, good, ""},
	} {
		outcome := rules.Link(rules.Options{}, set).Eval(node("n", tc.labels, tc.published).Input)
		if got := outcome.NodeConditions()["example.com/Baseline"]; got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

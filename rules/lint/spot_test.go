package lint_test

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/dictionary"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/rules/warning"
)

// Warnings about references said what to write without anything that had evaluated it. Each reference is now replaced in its rule, and the
// changed rule gives what was meant on a machine with two devices.
func TestProposedReferencesHaveValues(t *testing.T) {
	node := map[string]facts.Feature{}
	for _, name := range []string{"cpu.model", "kernel.version", "pci.device", "dra.device"} {
		node[name] = feature(dictionary.Find(name), []map[string]string{typical(name, nil, 0), typical(name, nil, 1)})
	}
	node["pci.device"] = feature(dictionary.Find("pci.device"), []map[string]string{{"vendor": "10de"}, {"vendor": "8086"}})
	node["dra.device"] = feature(dictionary.Find("dra.device"), []map[string]string{{"driver.name": "gpu.example.com"}})
	node["kernel.version"] = feature(dictionary.Find("kernel.version"), []map[string]string{{"full": "6.8.0", "major": "6"}})
	for name, tc := range map[string]struct{ outputs, want, result string }{
		"Attribute":            {`labels: {a: "@pci.device.vendor"}`, "write {@pci.device[0].vendor}", "a=10de"},
		"AttributeInText":      {`labels: {a: "v-{@pci.device.vendor}"}`, "write {@pci.device[0].vendor}", "a=v-10de"},
		"MisspelledAttribute":  {`labels: {a: "@pci.device.vendr"}`, "write {@pci.device[0].vendor}", "a=10de"},
		"AttributeWithADot":    {`annotations: {a: "@dra.device.driver.name"}`, `write {@dra.device[0]["driver.name"]}`, "a=gpu.example.com"},
		"AttributeUpperCase":   {`labels: {a: "@PCI.device.vendor"}`, "write {@pci.device[0].vendor}", "a=10de"},
		"Number":               {`extendedResources: {a: "@pci.device.count"}`, "write {@pci.device.len()}", "a=2"},
		"NumberInText":         {`labels: {a: "n{@pci.device.count + 1}"}`, "write {@pci.device.len()}", "a=n3"},
		"NumberOfOne":          {`labels: {a: "{@pci.device[0].count}"}`, "write {@pci.device.len()}", "a=2"},
		"UpperCase":            {`labels: {a: "@Kernel.version.full"}`, "write @kernel.version.full", "a=6.8.0"},
		"UpperCaseInText":      {`labels: {a: "v{@Kernel.version.full}"}`, "write @kernel.version.full", "a=v6.8.0"},
		"Annotation":           {`annotations: {a: "@kernel.version.full"}`, `write "{@kernel.version.full}"`, "a=6.8.0"},
		"AnnotationOfDevices":  {`annotations: {a: "@pci.device.vendor"}`, "write {@pci.device[0].vendor}", "a=10de"},
		"TextOfAMessage":       {`nodeConditions: [{type: example.com/A, status: "True", message: "of {@pci.device.vendor}"}]`, "write {@pci.device[0].vendor}", "A=True: of 10de"},
		"Message":              {`nodeConditions: [{type: example.com/A, status: "True", message: "@kernel.version.full"}]`, `write "{@kernel.version.full}"`, "A=True: 6.8.0"},
		"MessageAboutDevices":  {`nodeConditions: [{type: example.com/A, status: "True", message: "@pci.device.count"}]`, "write {@pci.device.len()}", "A=True: 2"},
		"Condition":            {`labels: {a: b}, conditions: [{op: eq, args: [1, 1]}, {op: eq, args: {values: [x, "{@pci.device.count}"]}}]`, "write {@pci.device.len()}", ""},
		"ArgumentOfACondition": {`labels: {a: b}, conditions: [{op: eq, args: {values: ["{@pci.device.count}", 2]}}]`, "write {@pci.device.len()}", "a=b"},
		"Loop":                 {`labels: {a: b}, conditions: [{op: eq, args: {values: ["{item}", 2]}, loop: ["{@pci.device.count}"]}]`, "write {@pci.device.len()}", "a=b"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &nfdv1alpha1.Rule{}
			if err := yaml.UnmarshalStrict([]byte(`{name: a, `+tc.outputs+`, `+kernel+`}`), r); err != nil {
				t.Fatal(err)
			}
			list := lint.Spec(&nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{*r}}, lint.Options{})
			if len(list) != 1 || !strings.Contains(list[0].Message, tc.want) || list[0].Fix == nil {
				t.Fatalf("got %v, want one warning with a proposal that contains %q", list, tc.want)
			}
			changed, ok := warning.Apply(r, list[0].Fix)
			if !ok {
				t.Fatal("the proposal does not apply")
			}
			spec := &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{*changed}}
			if left := lint.Spec(spec, lint.Options{}); len(left) > 0 {
				t.Errorf("the changed rule still draws %v", left)
			}
			if got := given(t, spec, facts.FromMap(node, nil)); got != tc.result {
				text, _ := yaml.Marshal(changed)
				t.Errorf("got %q, want %q from\n%s", got, tc.result, text)
			}
		})
	}
}

// given returns the first output of rules on a node as name=value, or what is wrong with them.
func given(t *testing.T, spec *nfdv1alpha1.NodeFeatureRuleSpec, node *facts.Facts) string {
	t.Helper()
	set, report := rules.CompileSpec("a", spec, rules.Options{})
	if !report.OK() {
		return report.Errors.ToAggregate().Error()
	}
	outcome := rules.Link(rules.Options{}, set).Eval(rules.Input{Node: rules.Node{Name: "n"}, Facts: node})
	for _, values := range []map[string]string{outcome.Labels(), outcome.Annotations(), outcome.ExtendedResources(), outcome.NodeConditions()} {
		for key, value := range values {
			return key[strings.LastIndex(key, "/")+1:] + "=" + value
		}
	}
	if faulty := outcome.Faulty(); len(faulty) > 0 {
		return fmt.Sprint(faulty)
	}
	return ""
}

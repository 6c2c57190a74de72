package rules_test

import (
	"testing"

	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

// TestATraceNamesWhatEachOutputReads: a trace named the field of the rule that gives a label, and not the feature that its value comes from.
func TestATraceNamesWhatEachOutputReads(t *testing.T) {
	in := rules.Input{Node: rules.Node{Name: "n"}, Facts: facts.FromMap(map[string]facts.Feature{
		"kernel.version": {Attributes: facts.NewAttributes(map[string]string{"major": "6", "minor": "1"})},
		"cpu.cpuid":      {Flags: facts.NewFlags("AVX", "SSE")},
		"pci.device":     {Instances: facts.NewInstances([]map[string]string{{"vendor": "10de"}, {"vendor": "10de"}})},
	}, nil)}
	for name, tc := range map[string]struct {
		rule string
		want map[string]string // what each key reads
	}{
		"Literal":    {`{labels: {x.y/a: "1"}, matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AVX: {op: Exists}}}]}`, map[string]string{"x.y/a": ""}},
		"Reference":  {`{labels: {x.y/a: "@kernel.version.major"}}`, map[string]string{"x.y/a": "kernel.version.major=6"}},
		"Expression": {`{labels: {x.y/a: '{@"kernel.version.major"}.{@"kernel.version.minor"}', x.y/b: "2"}}`, map[string]string{"x.y/a": "kernel.version.major=6 kernel.version.minor=1", "x.y/b": ""}},
		"Variable":   {`{vars: {v: '{@"kernel.version.minor"}'}, labels: {x.y/a: "{v}"}}`, map[string]string{"v": "kernel.version.minor=1", "x.y/a": "kernel.version.minor=1"}},
		"Whole":      {`{labels: {x.y/a: '{@pci.device.len()}'}}`, map[string]string{"x.y/a": "pci.device: 2 elements"}},
		"Template": {`{labelsTemplate: "{{range .cpu.cpuid}}x.y/{{.Name}}=1\n{{end}}", matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AVX: {op: Exists}}}]}`,
			map[string]string{"x.y/AVX": "cpu.cpuid.AVX=true"}},
		"Devices": {`{labelsTemplate: "x.y/count={{len .pci.device}}", matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: Exists}}}]}`,
			map[string]string{"x.y/count": "pci.device: 2 matched"}},
		"Taint":     {`{taints: [{key: x.y/t, value: '{@"kernel.version.major"}', effect: NoSchedule}]}`, map[string]string{"x.y/t": "kernel.version.major=6"}},
		"Condition": {`{nodeConditions: [{type: x.y/Old, status: "True", reason: Old, message: 'kernel {@"kernel.version.major"}'}]}`, map[string]string{"x.y/Old": "kernel.version.major=6"}},
		"Loop": {`{loop: ["1", "2"], labels: {"x.y/{item}": '{@"kernel.version.major"}'}}`,
			map[string]string{"x.y/1": "kernel.version.major=6", "x.y/2": "kernel.version.major=6"}},
	} {
		t.Run(name, func(t *testing.T) {
			var rule nfdv1alpha1.Rule
			if err := yaml.UnmarshalStrict([]byte(tc.rule), &rule); err != nil {
				t.Fatal(err)
			}
			rule.Name = "r"
			set, report := rules.CompileSpec("r", &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{rule}}, rules.Options{})
			if !report.OK() {
				t.Fatal(report.Errors)
			}
			program := rules.Link(rules.Options{}, set)
			trace := program.Trace(in)[0]
			if len(trace.Outputs) != len(tc.want) {
				t.Errorf("got %d outputs, want %d: %+v", len(trace.Outputs), len(tc.want), trace.Outputs)
			}
			for _, out := range trace.Outputs {
				got := ""
				for _, read := range out.Reads {
					if got != "" {
						got += " "
					}
					got += read.String()
				}
				if want, ok := tc.want[out.Key]; !ok || got != want {
					t.Errorf("%s reads %q, want %q", out.Key, got, want)
				}
			}
		})
	}
}

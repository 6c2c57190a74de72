package review_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/review"
)

// Templates were parsed and not expanded, so that rules that fail on every node that they match had no warning.
func TestTemplatesAreExpandedOnTypicalNodes(t *testing.T) {
	const (
		gpus    = `[{feature: pci.device, matchExpressions: {vendor: {op: In, value: ["10de"]}}}]`
		devices = `[{feature: network.device, matchExpressions: {}}]`
		model   = `[{feature: cpu.model, matchExpressions: {name: {op: Exists}}}]`
		options = `[{feature: kernel.config, matchExpressions: {NO_HZ: {op: Exists}, PREEMPT: {op: Exists}}}]`
		local   = `[{feature: local.feature, matchExpressions: {example.com/a: {op: Exists}}}]`
		drm     = `[{feature: gpu.drm, matchExpressions: {}}]`
	)
	for name, tc := range map[string]struct{ matcher, template, want string }{
		"KeyThatNothingGives":   {gpus, `example.com/gpu.count={{ .count }}`, `line 1, column 26: the data has no key "count"; it has .pci.device`},
		"FieldOfAList":          {gpus, `example.com/gpu={{ .pci.device.device }}`, "(index .pci.device 0).device for the first element"},
		"FieldOfAttributes":     {model, `example.com/cpu={{ .cpu.model.name }}`, ".cpu.model is a list of elements with Name and Value: use range"},
		"ValueOfAFlag":          {`[{feature: cpu.cpuid, matchExpressions: {AVX2: {op: Exists}}}]`, `{{ range .cpu.cpuid }}{{ .Name }}={{ .Value }}{{ end }}`, "a flag has a Name, and no Value"},
		"NotOnEachInstance":     {devices, "{{ range .network.device }}{{ .name }}={{ .speed }}\n{{ end }}", `fails on nodes where one element of the feature has no speed`},
		"OneLine":               {gpus, "{{ range .pci.device }}pci-{{ .device }}=present{{ end }}", "the output for two elements is one line, pci-"},
		"OneLineOfAttributes":   {options, "{{ range .kernel.config }}{{ .Name }}={{ .Value }} {{ end }}", "end the output for each element with a line break"},
		"NoLabelValue":          {model, "{{ range .cpu.model }}{{ .Name }}={{ .Value }}\n{{ end }}", "the label name="},
		"RequiredOnInstances":   {`[{feature: network.device, matchExpressions: {speed: {op: Exists}}}]`, "{{ range .network.device }}{{ .name }}={{ .speed }}\n{{ end }}", ""},
		"Guarded":               {devices, "{{ range .network.device }}{{ if hasKey . \"speed\" }}{{ .name }}={{ .speed }}\n{{ end }}{{ end }}", ""},
		"First":                 {gpus, `example.com/gpu={{ (index .pci.device 0).device }}`, ""},
		"Clean":                 {model, "{{ range .cpu.model }}{{ .Name }}={{ regexReplaceAll \"[^A-Za-z0-9]+\" .Value \"-\" | trimAll \"-\" }}\n{{ end }}", ""},
		"UnknownElements":       {local, "{{ range .local.feature }}{{ .Name }}={{ .Value }}{{ end }}", ""},
		"InstancesOfPublishers": {drm, "{{ range .gpu.drm }}gpu-{{ .name }}={{ .temperature }}\n{{ end }}", ""},
		"DependsOnTheValue":     {model, `{{ range .cpu.model }}a={{ index (splitList ":" .Value) 7 }}{{ end }}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			object := &nfdv1alpha1.NodeFeatureRule{}
			if err := yaml.UnmarshalStrict([]byte(`{metadata: {name: a}, spec: {rules: [{name: a, matchFeatures: `+tc.matcher+`}]}}`), object); err != nil {
				t.Fatal(err)
			}
			object.Spec.Rules[0].LabelsTemplate = tc.template
			found := review.Review(object, review.Known{})
			var got []string
			for _, w := range found.Warnings {
				got = append(got, w.String())
			}
			text := strings.Join(got, "\n")
			if len(found.Errors) > 0 || tc.want == "" && text != "" || !strings.Contains(text, tc.want) || len(got) > 1 {
				t.Errorf("got errors %v, warnings %q, want one with %q", found.Errors, text, tc.want)
			}
		})
	}
}

// A review of hostile templates must not take longer than an evaluation of their rules on one node.
func TestTrialsOfTemplatesShareOneBudget(t *testing.T) {
	object := &nfdv1alpha1.NodeFeatureRule{}
	matcher := nfdv1alpha1.MatchExpressionSet{"class": {Op: nfdv1alpha1.MatchExists}}
	const costly = "{{ $l := until 1000 }}{{ range $l }}{{ range $l }}{{ end }}{{ end }}{{ .count }}"
	for _, template := range []string{costly, "{{ .count }}"} {
		object.Spec.Rules = append(object.Spec.Rules, nfdv1alpha1.Rule{Name: template, LabelsTemplate: template,
			MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: "pci.device", MatchExpressions: &matcher}}})
	}
	if found := review.Review(object, review.Known{}); len(found.Warnings) != 0 {
		t.Errorf("got %v: the second template is tried after the first one has spent the budget", found.Warnings)
	}
	object.Spec.Rules = object.Spec.Rules[1:]
	if found := review.Review(object, review.Known{}); len(found.Warnings) != 1 {
		t.Errorf("got %v, want a warning", found.Warnings)
	}
}

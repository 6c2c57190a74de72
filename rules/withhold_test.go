package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
)

func TestWithheldOutputsAreNamed(t *testing.T) {
	const taint = `taints: [{key: example.com/a, effect: NoSchedule}]`
	for name, test := range map[string]struct {
		settings rules.Withholding
		spec     string
		want     string
	}{
		"Nothing":        {rules.Withholding{}, `{rules: [{name: a, ` + taint + `}]}`, ""},
		"Taints":         {rules.Withholding{Taints: true}, `{rules: [{name: l, labels: {a: "1"}}, {name: a, ` + taint + `}, {name: b, ` + taint + `}]}`, `TaintsDisabled 1 taints: taints of rule "a" and 1 more are not written`},
		"NoTaints":       {rules.Withholding{Taints: true}, `{rules: [{name: l, labels: {a: "1"}}]}`, ""},
		"TaintOfAction":  {rules.Withholding{Taints: true}, `{rules: [{name: a, actions: [{op: extend-attribute, args: {path: /taints, value: {key: example.com/a, effect: NoSchedule}}}]}]}`, `TaintsDisabled 0 actions[0]: taints of rule "a"`},
		"LabelsTemplate": {rules.Withholding{Labels: true}, `{rules: [{name: a, labelsTemplate: "a=1", matchFeatures: [{feature: x.y}]}]}`, `LabelsDisabled 0 labelsTemplate: labels of rule "a"`},
		"Annotations":    {rules.Withholding{Annotations: true}, `{rules: [{name: a, annotations: {example.com/a: "1"}}]}`, `AnnotationsDisabled 0 annotations: annotations of rule "a"`},
		"Resources":      {rules.Withholding{ExtendedResources: true}, `{rules: [{name: a, extendedResources: {example.com/a: "1"}}]}`, `ExtendedResourcesDisabled 0 extendedResources: extended resources of rule "a"`},
		"Variables":      {rules.Withholding{All: true}, `{rules: [{name: a, vars: {a: "1"}}]}`, ""},
		"EverythingOnce": {rules.Withholding{All: true, Taints: true}, `{rules: [{name: a, ` + taint + `}]}`, `PublishingDisabled 0 taints: the outputs of rule "a"`},
		"OtherKinds":     {rules.Withholding{Labels: true, Annotations: true, ExtendedResources: true}, `{rules: [{name: a, ` + taint + `}]}`, ""},
		"Conditions":     {rules.Withholding{All: true}, `{rules: [{name: a, nodeConditions: [{type: example.com/A, status: "True"}]}]}`, `PublishingDisabled 0 nodeConditions: the outputs of rule "a" are`},
		"LabelOfAction":  {rules.Withholding{Labels: true}, `{phase: preprocess, rules: [{name: a, actions: [{op: set-attribute, args: {path: /labels/a, value: "1"}}]}]}`, `LabelsDisabled 0 actions[0]: labels of rule "a"`},
		"EarlyPhase":     {rules.Withholding{Labels: true}, `{phase: early, rules: [{name: a, vars: {a: "1"}}]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var spec nfdv1alpha1.NodeFeatureRuleSpec
			if err := yaml.UnmarshalStrict([]byte(test.spec), &spec); err != nil {
				t.Fatal(err)
			}
			set, report := rules.CompileSpec("o", &spec, rules.Options{})
			if !report.OK() {
				t.Fatal(report.Errors)
			}
			list := test.settings.Of(set)
			if len(list) > 1 {
				t.Errorf("%d entries", len(list))
			}
			got := ""
			for _, w := range list {
				got = fmt.Sprintf("%s %d %s: %s", w.Reason, w.Rule.Index, w.Field, w)
				var back, fromMessage rules.Withholding
				back.Read(w.Reason, "")
				if fromMessage.Read("Other", "rules: "+w.String()); fromMessage != back {
					t.Errorf("the message %s withholds %+v, the reason %+v", w, fromMessage, back)
				}
				if back.Withholds(keys.Taint) == "" && back.Withholds(keys.Label) == "" && back.Withholds(keys.Annotation) == "" && back.Withholds(keys.Resource) == "" {
					t.Errorf("the reason %s withholds nothing", w.Reason)
				}
			}
			if !strings.HasPrefix(got, test.want) || test.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	if got := (rules.Withholding{Taints: true}).Of(nil); got != nil {
		t.Errorf("of no rules: %v", got)
	}
}

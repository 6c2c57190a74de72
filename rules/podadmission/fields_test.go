package podadmission_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/podadmission"
)

// TestLabelsKnowEveryField sets each field of a rule and of its object, next to a label that is equivalent to the rule's matchers.
// With some fields the label is still equivalent, with others it is not. A new API field needs a line in this table.
func TestLabelsKnowEveryField(t *testing.T) {
	yes, pattern, name, number := true, "ns/.*", "name", int32(5)
	early := nfdv1alpha1.PhaseEarly
	exists := &nfdv1alpha1.MatchExpression{Op: nfdv1alpha1.MatchExists}
	terms := nfdv1alpha1.FeatureMatcher{{Feature: "kernel.config", MatchName: exists}}
	from := &nfdv1alpha1.TemplateSource{ConfigMapKeyRef: &nfdv1alpha1.KeyRef{Name: "n", Key: "k"}}
	raw := nfdv1alpha1.JSON{Raw: []byte(`[1]`)}
	type field struct {
		value any
		keeps bool // the label is still equivalent to the matchers
	}
	ruleFields := map[string]field{
		"Name":               {"another", true},
		"Labels":             {map[string]string{"amx": "true", "other": "x"}, true},
		"LabelsTemplate":     {"other=x", true},
		"Annotations":        {map[string]string{"a": "b"}, true},
		"Vars":               {map[string]string{"a": "b"}, true},
		"VarsTemplate":       {"a=b", true},
		"Taints":             {[]corev1.Taint{{Key: "example.com/a", Effect: corev1.TaintEffectNoSchedule}}, true},
		"NodeConditions":     {[]nfdv1alpha1.NodeCondition{{Type: "example.com/A", Status: "True"}}, true},
		"ExtendedResources":  {map[string]string{"example.com/a": "1"}, true},
		"MatchFeatures":      {terms, true}, // the label is equivalent to the new matchers
		"MatchAny":           {[]nfdv1alpha1.MatchAnyElem{{MatchFeatures: terms}}, true},
		"Conditions":         {[]nfdv1alpha1.Condition{{Op: "is-true", Args: nfdv1alpha1.JSON{Raw: []byte(`{"value": "{@kernel.config.X}"}`)}}}, true},
		"Actions":            {[]nfdv1alpha1.Action{{Op: "log", Args: nfdv1alpha1.JSON{Raw: []byte(`{"msg": "x"}`)}}}, false},
		"Loop":               {&raw, false},
		"Expressions":        {nfdv1alpha1.ExpressionMode("Strict"), true},
		"LabelsTemplateFrom": {from, true}, // resolved earlier
		"VarsTemplateFrom":   {from, true},
	}
	specFields := map[string]field{
		"Description":    {&name, true},
		"Phase":          {&early, false},
		"Priority":       {&number, true},
		"NodeSelector":   {&metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, false},
		"Scope":          {&name, false},
		"Sensitive":      {&yes, false},
		"FeatureSources": {&pattern, false},
		"MinimumVersion": {&name, true}, // checked earlier
		"BasedOn":        {[]nfdv1alpha1.Base{{Name: "x"}}, false},
		"RulesFrom":      {[]nfdv1alpha1.RulesSource{{}}, false},
		"Rules":          {nil, true}, // tested by the fields above
	}
	check := func(kind reflect.Type, fields map[string]field, target func(*nfdv1alpha1.NodeFeatureRuleSpec) reflect.Value) {
		for i := range kind.NumField() {
			name := kind.Field(i).Name
			f, known := fields[name]
			if !known {
				t.Errorf("%s.%s is not in this test: does a label still stand for the matchers of a rule that has it?", kind.Name(), name)
				continue
			}
			spec := &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{
				Name: "amx", Labels: map[string]string{"amx": "true"}, MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: "cpu.cpuid", MatchName: exists}},
			}}}
			if f.value != nil {
				target(spec).Field(i).Set(reflect.ValueOf(f.value))
			}
			set, _ := rules.CompileSpec("o", spec, rules.Options{})
			kept := len(podadmission.LabelsOf([]podadmission.Rules{{Set: set, Spec: spec}}, rules.Options{})) > 0
			if kept != f.keeps {
				t.Errorf("with %s.%s the label is equivalent to the matchers: got %t, want %t", kind.Name(), name, kept, f.keeps)
			}
		}
	}
	check(reflect.TypeFor[nfdv1alpha1.Rule](), ruleFields, func(s *nfdv1alpha1.NodeFeatureRuleSpec) reflect.Value {
		return reflect.ValueOf(&s.Rules[0]).Elem()
	})
	check(reflect.TypeFor[nfdv1alpha1.NodeFeatureRuleSpec](), specFields, func(s *nfdv1alpha1.NodeFeatureRuleSpec) reflect.Value {
		return reflect.ValueOf(s).Elem()
	})
}

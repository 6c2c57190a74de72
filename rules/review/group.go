package review

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/warning"
)

// group reviews the rules of a group as rules that only set variables.
func (k *Known) group(object *nfdv1alpha1.NodeFeatureGroup) Findings {
	f := Findings{}
	spec := GroupRules(object)
	opt := k.options()
	opt.Group = true
	k.spec(&f, compose.Document{Name: object.Name, Spec: spec}, spec, nil, true, opt)
	if object.Spec.Rules == nil {
		f.Errors = append(f.Errors, field.Required(field.NewPath("spec", "featureGroupRules"), "there are no rules: write featureGroupRules"))
	} else if len(object.Spec.Rules) == 0 {
		f.Warn("spec.featureGroupRules", warning.Suspicious, "there are no rules: no node is in the group")
	}
	errs := make(field.ErrorList, len(f.Errors)) // compiled rules may share f.Errors
	for i, e := range f.Errors {
		same := *e
		same.Field = groupPath(e.Field)
		errs[i] = &same
	}
	f.Errors = errs
	for i := range f.Warnings {
		f.Warnings[i].Path = groupPath(f.Warnings[i].Path)
	}
	return f
}

func groupPath(path string) string {
	const from, to = "spec.rules", "spec.featureGroupRules"
	if rest, ok := strings.CutPrefix(path, from); ok {
		return to + rest
	}
	return path
}

// GroupRules converts the rules of a group to those of a NodeFeatureRule.
func GroupRules(object *nfdv1alpha1.NodeFeatureGroup) *nfdv1alpha1.NodeFeatureRuleSpec {
	spec := &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{}}
	for _, rule := range object.Spec.Rules {
		spec.Rules = append(spec.Rules, nfdv1alpha1.Rule{
			Name: rule.Name, Vars: rule.Vars, VarsTemplate: rule.VarsTemplate,
			MatchFeatures: rule.MatchFeatures, MatchAny: rule.MatchAny,
		})
	}
	return spec
}

package review

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/baseline"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/rules/warning"
	"github.com/assay-project/assay/rules/yamltree"
)

func (k *Known) baseline(object *assayv1alpha1.NodeBaseline) Findings {
	f, spec, path := Findings{}, &object.Spec, field.NewPath("spec")
	compiled, report := baseline.Compile(spec, path, k.Rules)
	f.Baseline = compiled
	f.report(report, k)
	if len(spec.Require)+len(spec.Uniform)+len(spec.Levels) == 0 {
		f.Warn("spec", warning.Suspicious, "without checks every node conforms; write require, uniform or levels")
	}
	if len(spec.Within) > 0 && len(spec.Uniform) == 0 {
		f.Warn("spec.within", warning.Suspicious, "within has no effect without uniform")
	}
	if spec.NodeCondition != "" && k.Withholding.All {
		f.Warn("spec.nodeCondition", warning.Suspicious, "the condition is not set: the controller does not write to nodes (dry run)")
	}
	k.levels(&f, spec.Levels, path.Child("levels"))
	selection := &nfdv1alpha1.Rule{MatchFeatures: spec.MatchFeatures}
	f.Warnings = append(f.Warnings, lint.Matchers(path, selection, k.options())...)
	k.unpublished(&f, lint.RuleFeatures(path, selection))
	for i := range spec.Require {
		k.requirement(&f, path.Child("require").Index(i), &spec.Require[i].Requirement)
	}
	return f
}

// levels warns about levels whose label nothing in the cluster gives: all nodes would deviate.
func (k *Known) levels(f *Findings, list []assayv1alpha1.BaselineLevel, path *field.Path) {
	if k.Labels == nil || len(list) == 0 {
		return
	}
	labels, known := k.Labels()
	for i := range list {
		if label := list[i].Label; known && !slices.Contains(labels, label) {
			f.Warn(path.Index(i).Child("label").String(), warning.Suspicious, "no node of this cluster has the label %s, and no rule names it%s",
				label, yamltree.DidYouMean(label, labels))
		}
	}
}

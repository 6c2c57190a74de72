package review

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/rules/requirements"
	"github.com/assay-project/assay/rules/warning"
)

func (k *Known) request(object *assayv1alpha1.NodeFeatureRequest) Findings {
	f := Findings{}
	reqs, report := requirements.Compile(&object.Spec.PodRequirements, field.NewPath("spec"), object.Name, k.Rules)
	if loss := requirements.CheckLoss(&object.Spec.LossResponse, field.NewPath("spec")); len(loss) > 0 {
		report.Errors, reqs = append(report.Errors, loss...), nil
	}
	if err := materialize(object.Spec.Materialize); err != nil {
		report.Errors = append(report.Errors, err)
	}
	f.Requirements = reqs
	f.report(report, k)
	k.empty(&f, &object.Spec.PodRequirements, "every node meets it, and pods that refer to it run on any node")
	k.materialized(&f, object)
	k.loss(&f, &object.Spec.LossResponse, object.Spec.Required, len(object.Spec.Preferred) > 0)
	k.requirements(&f, &object.Spec.PodRequirements, field.NewPath("spec", "required"), field.NewPath("spec", "preferred"))
	return f
}

// materialize returns the error in spec.materialize, or nil.
func materialize(mode assayv1alpha1.Materialize) *field.Error {
	path := field.NewPath("spec", "materialize")
	switch mode {
	case "", assayv1alpha1.MaterializeAuto, assayv1alpha1.MaterializeAlways, assayv1alpha1.MaterializeNever:
		return nil
	case "true":
		return field.Invalid(path, mode, "write Always, or remove it: nodes get the label by default")
	case "false":
		return field.Invalid(path, mode, "write Never")
	}
	return requirements.NotSupported(path, mode, []assayv1alpha1.Materialize{assayv1alpha1.MaterializeAuto, assayv1alpha1.MaterializeAlways, assayv1alpha1.MaterializeNever})
}

// materialized adds the warnings about a request that nodes get no label for.
func (k *Known) materialized(f *Findings, object *assayv1alpha1.NodeFeatureRequest) {
	mode, required := object.Spec.Materialize, object.Spec.Required
	if mode == assayv1alpha1.MaterializeNever {
		return
	}
	if object.Name != "" && requirements.LabelOf(object.Namespace, object.Name) == requirements.ImpossibleLabel {
		f.Warn("metadata.name", warning.Suspicious, "nodes get no label: %s", requirements.NameTooLong(object.Namespace, object.Name))
	}
	if mode != assayv1alpha1.MaterializeAlways {
		return
	}
	if required == nil {
		f.Warn("spec.materialize", warning.Suspicious, "nodes get no label: required is missing")
		return
	}
	compiled, report := rules.CompileRequirement(field.NewPath("spec", "required"), required.MatchFeatures, required.MatchAny, required.Conditions, k.Rules)
	if report.OK() && compiled.ReadsMatched() {
		f.Warn("spec.materialize", warning.Suspicious, "nodes get no label: required reads %s; use features only", nfdv1alpha1.RuleMatchedFeature)
	}
}

func (k *Known) policy(object *assayv1alpha1.NodeFeatureSchedulingPolicy) Findings {
	f := Findings{}
	policy, report := requirements.CompilePolicy(object, k.Rules)
	if policy != nil {
		f.Requirements = policy.Requirements
	}
	f.report(report, k)
	if s := &object.Spec; s.SchedulerName == "" && s.StaleAfter == nil {
		k.empty(&f, &s.PodRequirements, "the policy changes nothing")
	}
	k.loss(&f, &object.Spec.LossResponse, object.Spec.Required, len(object.Spec.Preferred) > 0)
	k.requirements(&f, &object.Spec.PodRequirements, field.NewPath("spec", "required"), field.NewPath("spec", "preferred"))
	return f
}

// empty warns about requirements without any, for example because the API server has dropped fields at the wrong level.
func (k *Known) empty(f *Findings, spec *assayv1alpha1.PodRequirements, effect string) {
	if spec.Required == nil && len(spec.Preferred) == 0 {
		f.Warn("spec", warning.Suspicious, "there are no requirements: %s; write required, with matchFeatures, matchAny or conditions below it", effect)
	}
}

// loss adds the warnings about a response to the loss of features. prefers is set if there are preferences.
func (k *Known) loss(f *Findings, loss *assayv1alpha1.LossResponse, required *assayv1alpha1.Requirement, prefers bool) {
	taints := loss.OnLoss == assayv1alpha1.LossTaint
	_, withheld := k.Withholding.Loss()
	switch {
	case !taints && loss.Grace != nil:
		f.Warn("spec.grace", warning.Suspicious, "grace has no effect without onLoss: Taint")
	case taints && required == nil && prefers:
		f.Warn("spec.onLoss", warning.Suspicious, "onLoss has no effect without required: preferences are never lost")
	case taints && withheld != "":
		f.Warn("spec.onLoss", warning.Suspicious, "no node is tainted: %s", withheld)
	}
}

// requirements adds the warnings about a requirement and preferences at the given paths.
func (k *Known) requirements(f *Findings, spec *assayv1alpha1.PodRequirements, required, preferred *field.Path) {
	if spec.Required != nil {
		k.requirement(f, required, spec.Required)
	}
	for i := range spec.Preferred {
		k.requirement(f, preferred.Index(i), &spec.Preferred[i].Requirement)
	}
}

func (k *Known) requirement(f *Findings, path *field.Path, r *assayv1alpha1.Requirement) {
	rule := &nfdv1alpha1.Rule{MatchFeatures: r.MatchFeatures, MatchAny: r.MatchAny, Conditions: r.Conditions}
	f.Warnings = append(f.Warnings, lint.Matchers(path, rule, k.options())...)
	k.unpublished(f, lint.RuleFeatures(path, rule))
}

package webhook

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/rules/request"
)

// reviewRequest compiles a NodeFeatureRequest as the scheduler's extender does.
func (o *Options) reviewRequest(_ context.Context, req *admissionv1.AdmissionRequest) (*verdict, error) {
	object, _, err := decode[assayv1alpha1.NodeFeatureRequest](req)
	if err != nil || object == nil {
		return &verdict{}, err
	}
	_, report := request.Compile(&object.Spec, field.NewPath("spec"), object.Name, o.Rules)
	return o.asks(&object.Spec, report), nil
}

// reviewPolicy compiles a NodeFeatureSchedulingPolicy as the scheduler's extender does.
func (o *Options) reviewPolicy(_ context.Context, req *admissionv1.AdmissionRequest) (*verdict, error) {
	object, _, err := decode[assayv1alpha1.NodeFeatureSchedulingPolicy](req)
	if err != nil || object == nil {
		return &verdict{}, err
	}
	_, report := request.CompilePolicy(object, o.Rules)
	return o.asks(&object.Spec.NodeFeatureRequestSpec, report), nil
}

// asks is the verdict on what is asked of nodes.
func (o *Options) asks(spec *assayv1alpha1.NodeFeatureRequestSpec, report *rules.Report) *verdict {
	v := &verdict{errs: report.Errors}
	for _, w := range report.Warnings {
		v.warnings = append(v.warnings, lint.Warning(w))
	}
	if len(v.errs) > 0 {
		return v
	}
	path := field.NewPath("spec")
	if spec.Required != nil {
		o.asked(v, path.Child("required"), spec.Required)
	}
	for i := range spec.Preferred {
		o.asked(v, path.Child("preferred").Index(i), &spec.Preferred[i].Requirement)
	}
	return v
}

// asked warns of what is surely not meant in one requirement.
func (o *Options) asked(v *verdict, path *field.Path, r *assayv1alpha1.Requirement) {
	rule := &nfdv1alpha1.Rule{MatchFeatures: r.MatchFeatures, MatchAny: r.MatchAny}
	v.warnings = append(v.warnings, lint.Matchers(path, rule, o.Lint)...)
	if o.Cluster == nil {
		return
	}
	for _, ref := range lint.RuleFeatures(path, rule) {
		if published, ok := o.Cluster.Published(ref.Feature); ok && !published {
			v.warn(ref.Path, lint.RankUnlikely, "no node of this cluster has ever published %s", ref.Feature)
		}
	}
}

package review_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/review"
)

func TestOnLossWithoutEffectIsWarnedOf(t *testing.T) {
	required := &assayv1alpha1.Requirement{MatchFeatures: nfdv1alpha1.FeatureMatcher{{
		Feature: "kernel.version", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{"full": {Op: nfdv1alpha1.MatchExists}},
	}}}
	taint := assayv1alpha1.LossResponse{OnLoss: assayv1alpha1.LossTaint, Grace: &metav1.Duration{Duration: time.Minute}}
	off := rules.Withholding{Losses: true}
	for name, test := range map[string]struct {
		loss     assayv1alpha1.LossResponse
		required *assayv1alpha1.Requirement
		withheld rules.Withholding
		want     string
	}{
		"Nothing":     {assayv1alpha1.LossResponse{}, required, off, ""},
		"Event":       {assayv1alpha1.LossResponse{OnLoss: assayv1alpha1.LossEvent}, required, off, ""},
		"Taint":       {taint, required, rules.Withholding{Taints: true}, ""},
		"Disabled":    {taint, required, off, "spec.onLoss: no node is tainted: the administrator has not set lossTaint in the controller's configuration"},
		"NothingToDo": {taint, nil, rules.Withholding{}, "spec.onLoss: onLoss has no effect without required: preferences are never lost"},
		"GraceOfNothing": {
			assayv1alpha1.LossResponse{Grace: taint.Grace}, required, rules.Withholding{}, "spec.grace: grace has no effect without onLoss: Taint",
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := assayv1alpha1.PodRequirements{Required: test.required, Preferred: []assayv1alpha1.Preference{{Weight: 1, Requirement: *required}}}
			for _, object := range []any{
				&assayv1alpha1.NodeFeatureRequest{Spec: assayv1alpha1.NodeFeatureRequestSpec{PodRequirements: spec, LossResponse: test.loss}},
				&assayv1alpha1.NodeFeatureSchedulingPolicy{Spec: assayv1alpha1.NodeFeatureSchedulingPolicySpec{
					NamespaceSelector: &metav1.LabelSelector{}, PodRequirements: spec, LossResponse: test.loss,
				}},
			} {
				f := review.Review(object, review.Known{Withholding: test.withheld})
				var got string
				for _, w := range f.Warnings {
					got += w.String()
				}
				if got != test.want || len(f.Errors) > 0 {
					t.Errorf("%T: warnings %q, errors %v; want %q", object, got, fmt.Sprint(f.Errors), test.want)
				}
			}
		})
	}
}

package webhook

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// resource names what is reviewed.
type resource struct{ group, name string }

// reviewer reviews objects of one resource. An error is a failure of the review, not of the object.
type reviewer func(ctx context.Context, req *admissionv1.AdmissionRequest) (*verdict, error)

// reviewers lists everything that is reviewed. The webhook configurations name the same resources.
func reviewers(o *Options) map[resource]reviewer {
	all := map[resource]reviewer{
		{nfdv1alpha1.GroupName, "nodefeaturerules"}:                o.reviewRule,
		{nfdv1alpha1.GroupName, "nodefeaturegroups"}:               o.reviewGroup,
		{nfdv1alpha1.GroupName, "nodefeatures"}:                    o.reviewFeature,
		{assayv1alpha1.GroupName, "nodefeatureruletemplates"}:      o.reviewTemplate,
		{assayv1alpha1.GroupName, "nodefeaturerequests"}:           o.reviewRequest,
		{assayv1alpha1.GroupName, "nodefeatureschedulingpolicies"}: o.reviewPolicy,
	}
	addScheduling(all, o)
	return all
}

package webhook

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// resource identifies a reviewed resource.
type resource struct{ group, name string }

// reviewer reviews objects of one resource. An error means that the review failed, not that the object is invalid.
type reviewer func(ctx context.Context, req *admissionv1.AdmissionRequest) (*verdict, error)

// reviewers lists all reviewed resources. The webhook configurations list the same resources.
func reviewers(o *Options) map[resource]reviewer {
	all := map[resource]reviewer{
		{nfdv1alpha1.GroupName, "nodefeatures"}:      o.reviewFeature,
		{assayv1alpha1.GroupName, "nodefeaturesets"}: o.reviewFeatureSet,
	}
	for r, empty := range objects {
		all[r] = o.reviewObject(empty)
	}
	addScheduling(all, o)
	return all
}

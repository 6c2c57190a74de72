package webhook

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// resource names what is reviewed.
type resource struct{ group, name string }

// reviewer reviews objects of one resource. An error is a failure of the review, not of the object.
type reviewer func(ctx context.Context, req *admissionv1.AdmissionRequest) (*verdict, error)

// reviewers lists everything that is reviewed. The webhook configurations name the same resources.
func reviewers(o *Options) map[resource]reviewer {
	all := map[resource]reviewer{{nfdv1alpha1.GroupName, "nodefeatures"}: o.reviewFeature}
	for r, empty := range objects {
		all[r] = o.reviewObject(empty)
	}
	addScheduling(all, o)
	return all
}

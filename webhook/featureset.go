package webhook

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	"github.com/assay-project/assay/rules/warning"
)

// reviewFeatureSet reviews a NodeFeatureSet that is created: its name must be the digest of its features, and its label the node of
// the client. Sets are immutable, so nothing else is reviewed.
func (o *Options) reviewFeatureSet(_ context.Context, req *admissionv1.AdmissionRequest) (*verdict, error) {
	v := &verdict{}
	set, err := decodeOne[assayv1alpha1.NodeFeatureSet](req.Object.Raw)
	if err != nil {
		return nil, fmt.Errorf("decode the NodeFeatureSet: %w", err)
	}
	if set == nil || req.Operation != admissionv1.Create {
		return v, nil
	}
	v.Errors = o.Publishing.checkCreator(req, set)
	if o.Publishing.Namespace != "" && req.Namespace != o.Publishing.Namespace {
		v.Warnings = append(v.Warnings, warning.Warning{
			Path: "metadata.namespace", Message: fmt.Sprintf("NodeFeatureSets have an effect in namespace %q only", o.Publishing.Namespace),
		})
	}
	features := &set.Spec.Features
	switch err := featureset.Verify(set.Name, features); {
	case errors.Is(err, featureset.ErrVersion):
		v.Warnings = append(v.Warnings, warning.Warning{Path: "metadata.name", Message: err.Error()}) // of a newer worker
	case err != nil:
		v.Errors = append(v.Errors, field.Invalid(field.NewPath("metadata", "name"), set.Name, err.Error()))
	default:
		if n := featureset.Size(features); n > featureset.MaxBytes {
			v.Errors = append(v.Errors, field.Invalid(field.NewPath("spec", "features"), field.OmitValueType{},
				fmt.Sprintf("the features have %d bytes; a NodeFeatureSet has at most %d", n, featureset.MaxBytes)))
		}
	}
	return v, nil
}

// checkCreator rejects a set whose label is not the node of the client.
func (p *Publishing) checkCreator(req *admissionv1.AdmissionRequest, set *assayv1alpha1.NodeFeatureSet) (errs field.ErrorList) {
	node, bound := p.bound(req)
	if !bound {
		return nil
	}
	if node == "" {
		return field.ErrorList{namesNoNode(req.UserInfo.Username)}
	}
	if by := set.Labels[assayv1alpha1.CreatedByNodeLabel]; by != node {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "labels").Key(assayv1alpha1.CreatedByNodeLabel), by,
			fmt.Sprintf("must be the node of the token, %q", node)))
	}
	return errs
}

package webhook

import (
	"context"
	"fmt"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/review"
)

// reviewFeature reviews a NodeFeature, and checks whether the client can publish it.
func (o *Options) reviewFeature(_ context.Context, req *admissionv1.AdmissionRequest) (*verdict, error) {
	var object *nfdv1alpha1.NodeFeature
	found := review.Findings{}
	if !noObject(req.Object.Raw) {
		read, all, err := o.read(req.Kind.Kind, req.Object.Raw, &nfdv1alpha1.NodeFeature{})
		if err != nil {
			return nil, fmt.Errorf("decode the NodeFeature: %w", err)
		}
		object, found = read.(*nfdv1alpha1.NodeFeature), all
	}
	old, err := previous(req)
	if err != nil {
		return nil, fmt.Errorf("decode the old NodeFeature: %w", err)
	}
	v := &verdict{}
	v.Errors = o.Publishing.check(req, object, old)
	if object == nil || object.DeletionTimestamp != nil {
		return v, nil // it must always be possible to remove finalizers of objects that are being deleted
	}
	v.Errors = append(v.Errors, o.Publishing.checkLabels(req.Namespace, object)...)
	v.Errors = append(v.Errors, found.Errors...)
	if !utf8.Valid(req.Object.Raw) {
		v.Errors = append(v.Errors, field.Forbidden(field.NewPath("spec"), "contains bytes that are not UTF-8; remove or replace them"))
	}
	v.Warnings = found.Warnings
	v.Errors = append(v.Errors, o.featureRoom(req, object)...)
	return v, nil
}

// featureRoom rejects an object whose features would exceed the budget. Reducing the size is always allowed.
func (o *Options) featureRoom(req *admissionv1.AdmissionRequest, object *nfdv1alpha1.NodeFeature) (errs field.ErrorList) {
	if n := len(req.Object.Raw); o.FeatureRoom != nil && (req.Operation == admissionv1.Create || n > len(req.OldObject.Raw)) {
		if err := o.FeatureRoom(req.Namespace, req.Name, object.Labels[nfdv1alpha1.NodeNameLabel], n); err != nil {
			errs = append(errs, field.Forbidden(field.NewPath("spec", "features"), err.Error()))
		}
	}
	return errs
}

// previous returns the metadata of the object that is replaced or deleted; nil if there is none. It does not decode the old
// features, since all nodes write their features through this webhook.
func previous(req *admissionv1.AdmissionRequest) (*nfdv1alpha1.NodeFeature, error) {
	meta, err := decodeOne[metav1.PartialObjectMetadata](req.OldObject.Raw)
	if meta == nil || err != nil {
		return nil, err
	}
	return &nfdv1alpha1.NodeFeature{ObjectMeta: meta.ObjectMeta}, nil
}

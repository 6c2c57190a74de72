package webhook

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/review"
)

// reviewObject reviews an object, and for an update only what has changed. Empty returns a new object of the kind.
func (o *Options) reviewObject(empty func() any) reviewer {
	return func(ctx context.Context, req *admissionv1.AdmissionRequest) (*verdict, error) {
		if noObject(req.Object.Raw) {
			return &verdict{}, nil
		}
		if n := parts(req.Object.Raw); n > maxParts {
			return &verdict{Findings: review.Findings{Errors: field.ErrorList{field.Forbidden(field.NewPath("spec"),
				fmt.Sprintf("has %d parts (objects and nulls in JSON), and at most %d are allowed; write several objects", n, maxParts))}}}, nil
		}
		object, found, err := o.read(req.Kind.Kind, req.Object.Raw, empty())
		if err != nil {
			return nil, fmt.Errorf("decode the %s: %w", req.Kind.Kind, err)
		}
		v := &verdict{Findings: found}
		if req.Operation == admissionv1.Update {
			o.compare(v, req, object, empty())
		}
		if rule, ok := object.(*nfdv1alpha1.NodeFeatureRule); ok {
			o.fits(v, rule.Name)
			if len(v.Errors) == 0 && o.Cluster != nil && rule.DeletionTimestamp == nil && !early(ctx) {
				o.aboutNodes(ctx, v, rule)
			}
		}
		return v, nil
	}
}

// read decodes an object and reviews it. If fields have the wrong type, it reviews the others, and the object has at least one error.
func (o *Options) read(kind string, raw []byte, object any) (_ any, found review.Findings, err error) {
	if utiljson.Unmarshal(raw, object) == nil {
		return object, review.Review(object, o.Known), nil
	}
	object, found, err = review.JSON(kind, raw, o.Known)
	if err == nil && len(found.Errors) == 0 {
		found.Errors = field.ErrorList{field.Invalid(field.NewPath("spec"), field.OmitValueType{}, "does not have the type of its fields")}
	}
	return object, found, err
}

// compare reviews the changes of an update. If the old object cannot be decoded, or has too many parts, all errors count. Without
// errors, there is nothing to compare, and the old object is not decoded.
func (o *Options) compare(v *verdict, req *admissionv1.AdmissionRequest, object, old any) {
	if len(v.Errors) > 0 && parts(req.OldObject.Raw) <= maxParts {
		old, before, err := o.read(req.Kind.Kind, req.OldObject.Raw, old)
		if err != nil {
			return
		}
		v.ratchet(review.Spec(object), review.Spec(old), before.Errors)
	}
	if specFlag(req.OldObject.Raw, "sensitive") && !sensitive(object) {
		v.Errors = append(v.Errors, field.Forbidden(field.NewPath("spec", "sensitive"),
			"cannot be unset: delete the object and create it again"))
	}
}

// sensitive reports whether the object is marked as sensitive.
func sensitive(object any) bool {
	spec := review.Spec(object)
	return spec != nil && spec.Sensitive != nil && *spec.Sensitive
}

func newOf[T any]() any { return new(T) }

// objects are the kinds that do not depend on other objects.
var objects = map[resource]func() any{
	{nfdv1alpha1.GroupName, "nodefeaturerules"}:                newOf[nfdv1alpha1.NodeFeatureRule],
	{nfdv1alpha1.GroupName, "nodefeaturegroups"}:               newOf[nfdv1alpha1.NodeFeatureGroup],
	{assayv1alpha1.GroupName, "nodefeatureruletemplates"}:      newOf[assayv1alpha1.NodeFeatureRuleTemplate],
	{assayv1alpha1.GroupName, "nodefeaturerequests"}:           newOf[assayv1alpha1.NodeFeatureRequest],
	{assayv1alpha1.GroupName, "nodefeatureschedulingpolicies"}: newOf[assayv1alpha1.NodeFeatureSchedulingPolicy],
	{assayv1alpha1.GroupName, "nodebaselines"}:                 newOf[assayv1alpha1.NodeBaseline],
}

// decodeOne decodes an object, or returns nil if there is none.
func decodeOne[T any](raw []byte) (*T, error) {
	if noObject(raw) {
		return nil, nil
	}
	object := new(T)
	return object, utiljson.Unmarshal(raw, object)
}

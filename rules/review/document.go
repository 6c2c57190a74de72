package review

import (
	"reflect"

	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/manifest"
)

// Read decodes a document of one of Assay's kinds as far as its fields have the right type, and returns the errors of
// the others. The object is nil for other kinds.
func Read(d *manifest.Document) (object any, shape []manifest.Problem) {
	switch d.Kind {
	case manifest.KindRule:
		object = &nfdv1alpha1.NodeFeatureRule{}
	case manifest.KindTemplate:
		object = &assayv1alpha1.NodeFeatureRuleTemplate{}
	case manifest.KindGroup:
		object = &nfdv1alpha1.NodeFeatureGroup{}
	case manifest.KindFeature:
		object = &nfdv1alpha1.NodeFeature{}
	case manifest.KindRequest:
		object = &assayv1alpha1.NodeFeatureRequest{}
	case manifest.KindPolicy:
		object = &assayv1alpha1.NodeFeatureSchedulingPolicy{}
	default:
		return nil, nil
	}
	return object, d.Decode(object)
}

// Problems returns findings with their positions in a document.
func Problems(d *manifest.Document, found Findings) []manifest.Problem {
	var out []manifest.Problem
	for _, e := range found.Errors {
		if !d.Suspect(e.Field) {
			out = append(out, d.Problem(manifest.Error, code(e), e.Field, Text(e)))
		}
	}
	for _, w := range found.Warnings {
		if d.Suspect(w.Path) {
			continue
		}
		code := "suspicious"
		if w.Defect {
			code = "dropped"
		}
		out = append(out, d.Problem(manifest.Warning, code, w.Path, w.Message))
	}
	return out
}

// code returns the kind of an error for tools.
func code(e *field.Error) string {
	switch e.Type {
	case field.ErrorTypeRequired:
		return "required"
	case field.ErrorTypeNotSupported:
		return "unsupported"
	case field.ErrorTypeForbidden:
		return "forbidden"
	case field.ErrorTypeTooMany, field.ErrorTypeTooLong:
		return "limit"
	}
	return "invalid"
}

// Document reviews a document: the fields of the wrong type, and all others as Review does. Findings that follow from a field of
// the wrong type are left out. The object is nil for kinds that are not Assay's.
func Document(d *manifest.Document, known Known) (object any, shape []manifest.Problem, found Findings) {
	object, shape = Read(d)
	if object == nil {
		return nil, nil, found
	}
	found = Review(object, known)
	found.Errors = without(found.Errors, func(e *field.Error) bool { return d.Suspect(e.Field) })
	found.Warnings = without(found.Warnings, func(w rules.Warning) bool { return d.Suspect(w.Path) })
	return object, shape, found
}

func without[T any](list []T, drop func(T) bool) []T {
	var out []T
	for _, e := range list {
		if !drop(e) {
			out = append(out, e)
		}
	}
	return out
}

// JSON reviews an object that cannot be decoded to its type, such as one with a string for a list. Errors in the type
// of fields are among the Errors, before those of the review. The object, of the type of kind, holds the other
// fields.
func JSON(kind string, raw []byte, known Known) (object any, found Findings, err error) {
	d, err := manifest.FromJSON(raw)
	if err != nil {
		return nil, found, err
	}
	d.Kind = kind
	object, shape, found := Document(d, known)
	var errs field.ErrorList
	for _, p := range shape {
		if p.Severity == manifest.Error && p.Code != "unknown-field" { // the API server drops those
			errs = append(errs, &field.Error{Type: field.ErrorTypeInvalid, Field: p.Path, BadValue: field.OmitValueType{}, Detail: p.Message})
		}
	}
	found.Errors = append(errs, found.Errors...)
	return object, found, nil
}

// Spec returns the rules of an object with rules, those of a group as Review sees them, and the path of the list; nil for other
// kinds and for a nil pointer.
func Spec(object any) *nfdv1alpha1.NodeFeatureRuleSpec {
	if v := reflect.ValueOf(object); !v.IsValid() || v.IsNil() {
		return nil
	}
	switch o := object.(type) {
	case *nfdv1alpha1.NodeFeatureRule:
		return &o.Spec
	case *assayv1alpha1.NodeFeatureRuleTemplate:
		return &o.Spec
	case *nfdv1alpha1.NodeFeatureGroup:
		return GroupRules(o)
	}
	return nil
}

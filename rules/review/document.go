package review

import (
	"reflect"

	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/warning"
)

// Read decodes a document of a supported kind, without the fields of the wrong type, and returns the problems of these fields. The
// object is nil for other kinds.
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
	case manifest.KindSet:
		object = &assayv1alpha1.NodeFeatureSet{}
	case manifest.KindShape:
		object = &assayv1alpha1.NodeShape{}
	case manifest.KindBaseline:
		object = &assayv1alpha1.NodeBaseline{}
	default:
		return nil, nil
	}
	return object, d.Decode(object)
}

// Problems converts findings to problems with positions in a document.
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

// code returns the code of a problem for an error.
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

// Document reviews a document: it checks the types of the fields, and all else as Review does. It omits findings that are
// consequences of a wrong type. The object is nil for other kinds.
func Document(d *manifest.Document, known Known) (object any, shape []manifest.Problem, found Findings) {
	object, shape = Read(d)
	if object == nil {
		return nil, nil, found
	}
	found = Review(object, known)
	found.Errors = without(found.Errors, func(e *field.Error) bool { return d.Suspect(e.Field) })
	found.Warnings = without(found.Warnings, func(w warning.Warning) bool { return d.Suspect(w.Path) })
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

// JSON reviews an object that may have fields of the wrong type, such as a string instead of a list. Errors on the types of fields
// come first. The object has the type of the kind and contains the other fields.
func JSON(kind string, raw []byte, known Known) (object any, found Findings, err error) {
	d, err := manifest.FromJSON(raw)
	if err != nil {
		return nil, found, err
	}
	d.Kind = kind
	object, shape, found := Document(d, known)
	var errs field.ErrorList
	for _, p := range shape {
		if p.Severity == manifest.Error && p.Code != "unknown-field" { // the API server drops unknown fields
			errs = append(errs, &field.Error{Type: field.ErrorTypeInvalid, Field: p.Path, BadValue: field.OmitValueType{}, Detail: p.Message})
		}
	}
	found.Errors = append(errs, found.Errors...)
	return object, found, nil
}

// Spec returns the rules of an object, those of a group converted as in Review, and the path of the list. It returns nil for kinds
// without rules and for a nil pointer.
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

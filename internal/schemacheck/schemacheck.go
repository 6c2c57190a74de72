// Package schemacheck validates objects of Assay's kinds against the CRDs, as the API server does.
//
// It uses the code of the API server on the CRDs of the chart, so that the results are the same. That code is large: only the
// command line imports this package.
package schemacheck

import (
	"bytes"
	"context"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/charts"
)

// unchecked is the prefix of the API server's message that it did not evaluate CEL rules because of other errors.
const unchecked = "some validation rules were not checked"

// Kind validates the objects of one CRD.
type Kind struct {
	namespaced bool
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

// kinds returns the CRDs by kind. Each is parsed on first use, which takes tens of milliseconds: the name of its kind is read from a line.
var kinds = sync.OnceValue(func() map[string]func() *Kind {
	out := map[string]func() *Kind{}
	for _, data := range charts.CRDs() {
		_, names, _ := bytes.Cut(data, []byte("\n    kind: ")) // of spec.names
		kind, _, _ := bytes.Cut(names, []byte("\n"))
		out[string(kind)] = sync.OnceValue(func() *Kind {
			k, err := Parse(data)
			if err != nil {
				panic(err) // embedded files are valid, see the test
			}
			return k
		})
	}
	return out
})

// Parse reads a CRD with one version.
func Parse(definition []byte) (*Kind, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(definition, crd); err != nil {
		return nil, err
	}
	return newKind(crd)
}

func newKind(crd *apiextensionsv1.CustomResourceDefinition) (*Kind, error) {
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, props, nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		return nil, err
	}
	schema, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, err
	}
	return &Kind{
		namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped, structural: structural, schema: schema,
		rules: cel.NewValidator(structural, true, celconfig.PerCallLimit),
	}, nil
}

// Create returns the errors of the API server for creating an object with fieldValidation=Strict. It modifies the object. Objects
// of other kinds have no errors.
func Create(object map[string]any) field.ErrorList {
	kind := kinds()[(&unstructured.Unstructured{Object: object}).GetKind()]
	if kind == nil {
		return nil
	}
	return kind().Create(object)
}

// Create returns the errors of the API server for creating an object of the kind with fieldValidation=Strict. It modifies the object.
func (k *Kind) Create(object map[string]any) field.ErrorList {
	u := &unstructured.Unstructured{Object: object}
	delete(object, "status") // as the API server does on create
	if errs := k.metadata(u); len(errs) > 0 {
		return errs
	}
	unknown := pruning.PruneWithOptions(object, k.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	var errs field.ErrorList
	for _, path := range unknown {
		errs = append(errs, &field.Error{Type: field.ErrorTypeInvalid, Field: path, BadValue: field.OmitValueType{}, Detail: "unknown field"})
	}
	defaulting.Default(object, k.structural)
	defaulting.PruneNonNullableNullsWithoutDefaults(object, k.structural)
	return append(errs, k.validate(u)...)
}

// metadata decodes the metadata of an object as the API server does.
func (k *Kind) metadata(u *unstructured.Unstructured) field.ErrorList {
	path := field.NewPath("metadata")
	_, _, unknown, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, strings.TrimPrefix(err.Error(), "json: "))}
	}
	var errs field.ErrorList
	for _, name := range unknown {
		errs = append(errs, field.Invalid(field.NewPath(name), field.OmitValueType{}, "unknown field"))
	}
	if u.GetName() == "" && u.GetGenerateName() != "" {
		u.SetName(u.GetGenerateName() + "xxxxx")
	}
	switch namespace := u.GetNamespace(); {
	case k.namespaced && namespace == "":
		u.SetNamespace("default") // the default of kubectl
	case !k.namespaced && namespace != "":
		u.SetNamespace("") // the API server ignores it
	}
	return errs
}

// validate validates the schema and, if it is valid, the CEL rules.
func (k *Kind) validate(u *unstructured.Unstructured) field.ErrorList {
	ctx := context.Background()
	errs := apivalidation.ValidateObjectMetaAccessor(u, k.namespaced, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	errs = append(errs, validation.ValidateCustomResource(nil, u.Object, k.schema)...)
	errs = append(errs, objectmeta.Validate(ctx, nil, u.Object, k.structural, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, k.structural, u.Object)...)
	if len(errs) == 0 && k.rules != nil {
		errs, _ = k.rules.Validate(ctx, nil, k.structural, u.Object, nil, celconfig.RuntimeCELCostBudget)
	}
	out := errs[:0]
	for _, e := range errs {
		if !strings.HasPrefix(e.Detail, unchecked) {
			out = append(out, e)
		}
	}
	return out
}

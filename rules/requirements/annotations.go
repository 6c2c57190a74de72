package requirements

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules"
)

// MaxAnnotation is the maximum size in bytes of an annotation that requires or prefers features: an eighth of the maximum of all
// annotations of an object.
const MaxAnnotation = 32 << 10

// HasAny reports whether a pod's own annotations or labels require or prefer features. Admission and caches use it to select pods.
func HasAny(labels, annotations map[string]string) bool {
	return labels[assayv1alpha1.FeatureRequestLabel] != "" ||
		annotations[assayv1alpha1.RequiredFeaturesAnnotation] != "" ||
		annotations[assayv1alpha1.PreferredFeaturesAnnotation] != ""
}

// AnnotationKeys are the annotations with which a pod requires and prefers features.
var AnnotationKeys = []string{assayv1alpha1.RequiredFeaturesAnnotation, assayv1alpha1.PreferredFeaturesAnnotation}

// ReadAnnotations returns the requirement and the preferences in the annotations of a pod, and the errors of annotations that
// cannot be decoded. path is the path of the metadata. The paths of errors begin with the result of AnnotationPath.
func ReadAnnotations(annotations map[string]string, path *field.Path) (*Spec, field.ErrorList) {
	spec, errs := &Spec{}, field.ErrorList{}
	read := func(key string, into any, want string) {
		if err := decode(annotations[key], into, want); err != nil {
			errs = append(errs, field.Invalid(AnnotationPath(path, key), field.OmitValueType{}, err.Error()))
		}
	}
	if annotations[assayv1alpha1.RequiredFeaturesAnnotation] != "" {
		in := &assayv1alpha1.Requirement{}
		read(assayv1alpha1.RequiredFeaturesAnnotation, in, "a map with matchFeatures, matchAny or conditions")
		spec.Required = in
	}
	if annotations[assayv1alpha1.PreferredFeaturesAnnotation] != "" {
		read(assayv1alpha1.PreferredFeaturesAnnotation, &spec.Preferred, "a list of weight with matchFeatures, matchAny or conditions")
	}
	return spec, errs
}

// AnnotationPath returns the path of an annotation in the metadata at path.
func AnnotationPath(path *field.Path, key string) *field.Path {
	return path.Child("annotations").Key(key)
}

// Annotations compiles the requirement and the preferences in the annotations of a pod. It returns nil if there are none. path is
// the path of the metadata.
func Annotations(annotations map[string]string, path *field.Path, opt rules.Options) (*Requirements, *rules.Report) {
	spec, errs := ReadAnnotations(annotations, path)
	if len(errs) > 0 {
		return nil, &rules.Report{Errors: errs}
	}
	return CompileAnnotations(spec, path, opt)
}

// CompileAnnotations compiles the result of ReadAnnotations.
func CompileAnnotations(spec *Spec, path *field.Path, opt rules.Options) (*Requirements, *rules.Report) {
	reqs, report := &Requirements{}, &rules.Report{}
	if spec.Required != nil {
		key := assayv1alpha1.RequiredFeaturesAnnotation
		if r := compile(reqs, spec.Required, AnnotationPath(path, key), "annotation "+key, opt, report); r != nil {
			reqs.Required = append(reqs.Required, r)
		}
	}
	key := assayv1alpha1.PreferredFeaturesAnnotation
	compilePreferred(reqs, spec.Preferred, AnnotationPath(path, key), "annotation "+key, opt, report)
	if !report.OK() || reqs.Empty() {
		return nil, report
	}
	return reqs, report
}

// decode decodes YAML strictly: misspelled fields are errors.
func decode(text string, into any, want string) error {
	if len(text) > MaxAnnotation {
		return fmt.Errorf("it has %d bytes; at most %d are read: put it into a NodeFeatureRequest", len(text), MaxAnnotation)
	}
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		message, found := plain(err.Error())
		if found != "" {
			return fmt.Errorf("expected %s, found %s", want, found)
		}
		return fmt.Errorf("%s; expected %s", message, want)
	}
	return nil
}

// mismatch matches the error of encoding/json for a value of the wrong type, which may include the Go struct of the field.
var mismatch = regexp.MustCompile(`cannot unmarshal (\w+) into Go (?:struct field \w+\.(\S+)|value) of type \S+`)

// types maps JSON types to YAML types.
var types = map[string]string{"array": "a list", "object": "a map", "string": "a string", "number": "a number", "bool": "true or false"}

// plain removes Go details from error messages of the decoders. If the whole value has the wrong type, it returns its type.
func plain(message string) (text, whole string) {
	for _, noise := range []string{"error converting YAML to JSON: ", "error unmarshaling JSON: ", "while decoding JSON: ", "json: ", "yaml: "} {
		message = strings.ReplaceAll(message, noise, "")
	}
	found := mismatch.FindStringSubmatch(message)
	if found == nil {
		return message, ""
	}
	what, is := found[2], types[found[1]]
	if is == "" {
		is = "a " + found[1]
	}
	if what == "" {
		return "", is
	}
	return what + " cannot be " + is, ""
}

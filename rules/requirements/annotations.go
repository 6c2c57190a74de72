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

// MaxAnnotation is how long an annotation that asks for features may be: an eighth of what all annotations of an object may
// take together, and far more than anybody writes by hand.
const MaxAnnotation = 32 << 10

// Asks reports whether a pod's own metadata asks for features. It is what admission and caches select pods by.
func Asks(labels, annotations map[string]string) bool {
	return labels[assayv1alpha1.FeatureRequestLabel] != "" ||
		annotations[assayv1alpha1.RequiredFeaturesAnnotation] != "" ||
		annotations[assayv1alpha1.PreferredFeaturesAnnotation] != ""
}

// Annotations compiles what the annotations of a pod ask for; nil if they ask for nothing. Path is that of the metadata.
func Annotations(annotations map[string]string, path *field.Path, opt rules.Options) (*Ask, *rules.Report) {
	ask, report := &Ask{}, &rules.Report{}
	if text := annotations[assayv1alpha1.RequiredFeaturesAnnotation]; text != "" {
		name := assayv1alpha1.RequiredFeaturesAnnotation
		p := path.Child("annotations").Key(name)
		var in assayv1alpha1.Requirement
		if err := decode(text, &in, "matchFeatures, matchAny, conditions"); err != nil {
			report.Errors = append(report.Errors, field.Invalid(p, field.OmitValueType{}, err.Error()))
		} else if r := compile(ask, &in, p, "annotation "+name, opt, report); r != nil {
			ask.Required = append(ask.Required, r)
		}
	}
	if text := annotations[assayv1alpha1.PreferredFeaturesAnnotation]; text != "" {
		name := assayv1alpha1.PreferredFeaturesAnnotation
		p := path.Child("annotations").Key(name)
		var in []assayv1alpha1.Preference
		if err := decode(text, &in, "a list of weight with matchFeatures, matchAny or conditions"); err != nil {
			report.Errors = append(report.Errors, field.Invalid(p, field.OmitValueType{}, err.Error()))
		} else {
			compilePreferred(ask, in, p, "annotation "+name, opt, report)
		}
	}
	if !report.OK() || ask.Empty() {
		return nil, report
	}
	return ask, report
}

// decode reads YAML strictly: a misspelt field is an error, not something that is not asked for.
func decode(text string, into any, want string) error {
	if len(text) > MaxAnnotation {
		return fmt.Errorf("it has %d bytes; at most %d are read: put it into a NodeFeatureRequest", len(text), MaxAnnotation)
	}
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		return fmt.Errorf("%s; it must be YAML with %s", plain(err.Error()), want)
	}
	return nil
}

// mismatch is what encoding/json says of a value of the wrong type. Where it knows the field it names the field's Go struct too.
var mismatch = regexp.MustCompile(`cannot unmarshal (\w+) into Go (?:struct field \w+\.(\S+)|value) of type \S+`)

// types are the types of JSON, in the words of YAML.
var types = map[string]string{"array": "a list", "object": "a map", "string": "a text", "number": "a number", "bool": "true or false"}

// plain takes from an error of the decoders what speaks of the decoders.
func plain(message string) string {
	for _, noise := range []string{"error converting YAML to JSON: ", "error unmarshaling JSON: ", "while decoding JSON: ", "json: ", "yaml: "} {
		message = strings.ReplaceAll(message, noise, "")
	}
	found := mismatch.FindStringSubmatch(message)
	if found == nil {
		return message
	}
	what, is := found[2], types[found[1]]
	if what == "" {
		what = "it"
	}
	if is == "" {
		is = "a " + found[1]
	}
	return what + " cannot be " + is
}

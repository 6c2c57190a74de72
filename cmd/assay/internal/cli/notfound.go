package cli

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/assay-project/assay/cmd/assay/internal/column"
	"github.com/assay-project/assay/rules/dictionary"
	"github.com/assay-project/assay/rules/manifest"
)

// NotFound returns the error for an object that does not exist, in the words of the API server, such as: nodes "x" not found. Hint is the
// result of DidYouMean or Elsewhere, or empty. As for kubectl, this is a negative result.
func NotFound(resource schema.GroupResource, name, hint string) error {
	return Found(fmt.Errorf("%s %q not found%s", resource, name, hint))
}

// NoNodes returns the error for a selection of nodes that selects none. Without it, a command would be about all nodes or about none, which
// looks like success.
func NoNodes(selection string) error { return Found(fmt.Errorf("no Nodes match %s", selection)) }

// DidYouMean names the known name that is closest to one that does not exist, if one is close.
func DidYouMean(name string, known []string) string {
	if near := manifest.Nearest(name, known); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// MeantFeature names the feature, element or domain that is closest to one that does not exist, if one is close.
func MeantFeature(name string) string {
	feature, element, ok := column.Split(name)
	near := dictionary.Nearest(feature, slices.Concat(domains(), dictionary.Names()))
	if f := dictionary.Find(feature); f != nil && ok {
		if near = dictionary.Nearest(element, f.ElementNames()); near != "" {
			near = feature + "." + near
		}
	}
	if near == "" || strings.EqualFold(near, name) {
		return ""
	}
	return "; did you mean " + near + "?"
}

// domains returns the domains of the features.
func domains() (out []string) {
	for _, name := range dictionary.Names() {
		domain, _, _ := strings.Cut(name, ".")
		out = append(out, domain)
	}
	return slices.Compact(out)
}

// Elsewhere says in which namespace an object was searched.
func Elsewhere(namespace string) string {
	return fmt.Sprintf(" in namespace %s; use -n NAMESPACE for another namespace", namespace)
}

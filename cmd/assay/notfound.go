package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/assay-project/assay/rules/manifest"
)

// notFound returns the error for an object that does not exist, in the words of the API server, such as: nodes "x" not found. Hint is the
// result of didYouMean or elsewhere, or empty.
func notFound(resource schema.GroupResource, name, hint string) error {
	return fmt.Errorf("%s %q not found%s", resource, name, hint)
}

// didYouMean names the known name that is closest to one that does not exist, if one is close.
func didYouMean(name string, known []string) string {
	if near := manifest.Nearest(name, known); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// elsewhere says in which namespace an object was searched.
func elsewhere(namespace string) string {
	return fmt.Sprintf(" in namespace %s; use -n NAMESPACE for another namespace", namespace)
}

package main

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/assay-project/assay/cmd/assay/column"
	"github.com/assay-project/assay/rules/dictionary"
	"github.com/assay-project/assay/rules/manifest"
)

// notFound returns the error for an object that does not exist, in the words of the API server, such as: nodes "x" not found. Hint is the
// result of didYouMean or elsewhere, or empty. As for kubectl, this is a negative result.
func notFound(resource schema.GroupResource, name, hint string) error {
	return foundError{fmt.Errorf("%s %q not found%s", resource, name, hint)}
}

// noNodes returns the error for a selection of nodes that selects none. Without it, a command would be about all nodes or about none, which
// looks like success.
func noNodes(selection string) error { return foundError{fmt.Errorf("no Nodes match %s", selection)} }

// chosen returns the nodes of the world that a list of names and ranges selects; all if it is empty or "all".
func (w *world) chosen(expression string) ([]string, error) {
	all := w.fleet.Names()
	switch {
	case expression != "" && expression != "all":
		return chooseNodes(expression, all)
	case len(all) == 0:
		return nil, foundError{fmt.Errorf("no Nodes in %s", w.where)}
	}
	return all, nil
}

// chooseNodes returns the nodes in a comma-separated list of names and ranges such as n[1-20].
func chooseNodes(expression string, all []string) ([]string, error) {
	var out []string
	for _, part := range splitOutside(expression) {
		part = strings.TrimSpace(part)
		names, err := expandRange(part)
		if err != nil {
			return nil, err
		}
		found := false
		for _, name := range names {
			if slices.Contains(all, name) {
				out, found = append(out, name), true
			}
		}
		switch {
		case found:
		case len(names) > 1:
			return nil, noNodes(part)
		default:
			return nil, notFound(corev1.Resource("nodes"), part, didYouMean(part, all))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// didYouMean names the known name that is closest to one that does not exist, if one is close.
func didYouMean(name string, known []string) string {
	if near := manifest.Nearest(name, known); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// meantFeature names the feature, element or domain that is closest to one that does not exist, if one is close.
func meantFeature(name string) string {
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

// elsewhere says in which namespace an object was searched.
func elsewhere(namespace string) string {
	return fmt.Sprintf(" in namespace %s; use -n NAMESPACE for another namespace", namespace)
}

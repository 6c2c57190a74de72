package world

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cli"
)

// BaselineNamed returns the NodeBaseline of a list with a name. The error suggests a similar one.
func BaselineNamed(list []assayv1alpha1.NodeBaseline, name string) (*assayv1alpha1.NodeBaseline, error) {
	known := make([]string, len(list))
	for i := range list {
		if list[i].Name == name {
			return &list[i], nil
		}
		known[i] = list[i].Name
	}
	return nil, cli.NotFound(assayv1alpha1.NodeBaselineResource.GroupResource(), name, cli.DidYouMean(name, known))
}

// Chosen returns the nodes of the world that a list of names and ranges selects; all if it is empty or "all".
func (w *World) Chosen(expression string) ([]string, error) {
	all := w.Fleet.Names()
	switch {
	case expression != "" && expression != "all":
		return ChooseNodes(expression, all)
	case len(all) == 0:
		return nil, cli.Found(fmt.Errorf("no Nodes in %s", w.Where))
	}
	return all, nil
}

// ChooseNodes returns the nodes in a comma-separated list of names and ranges such as n[1-20].
func ChooseNodes(expression string, all []string) ([]string, error) {
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
			return nil, cli.NoNodes(part)
		default:
			return nil, cli.NotFound(corev1.Resource("nodes"), part, cli.DidYouMean(part, all))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

package serving

import (
	"slices"

	"github.com/assay-project/assay/cmd/assay/podlabels"
	"github.com/assay-project/assay/extender"
)

// Answer is what assay why says about a pod.
type Answer struct {
	extender.Explanation
	// Labels are the labels of nodes that the pod requires, with the number of nodes that have each.
	Labels []podlabels.Requirement `json:"labels,omitempty"`
	// Ways is what makes the scheduler respect the requirements.
	Ways []Way `json:"ways,omitempty"`
	// Warnings are the labels and annotations of the pod that look like those of Assay and mean nothing.
	Warnings []string `json:"warnings,omitempty"`
}

// Kinds names what the pod requires: labels, features or both.
func (a *Answer) Kinds() string {
	var origins []string
	for i := range a.Labels {
		origins = append(origins, a.Labels[i].Origin)
	}
	slices.Sort(origins)
	switch n := len(slices.Compact(origins)); n {
	case 0:
		return "features"
	case len(a.Origins):
		return "labels"
	}
	return "labels and features"
}

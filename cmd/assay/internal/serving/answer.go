package serving

import (
	"slices"
	"strings"

	"github.com/assay-project/assay/cmd/assay/internal/podlabels"
	"github.com/assay-project/assay/cmd/assay/internal/tracing"
	"github.com/assay-project/assay/extender"
)

// Answer is what assay why says about a pod.
type Answer struct {
	extender.Explanation
	// Subject is the kind, namespace and name of the pod or workload.
	Subject string `json:"subject"`
	// Labels are the labels, resources and devices of nodes that the pod requires, with the number of nodes that have each.
	Labels []Required `json:"labels,omitempty"`
	// On is the node on which Given of Labels is evaluated: the requested one, or the nearest.
	On string `json:"on,omitempty"`
	// Ways is what makes the scheduler respect the requirements.
	Ways []Way `json:"ways,omitempty"`
	// Warnings are the labels and annotations of the pod that look like those of Assay and mean nothing.
	Warnings []string `json:"warnings,omitempty"`
}

// Kinds names what the pod requires: labels, resources, features.
func (a *Answer) Kinds() string {
	var kinds, origins []string
	for i := range a.Labels {
		kind := a.Labels[i].Of()
		if plural := kind + "s"; !slices.Contains(kinds, plural) {
			kinds = append(kinds, plural)
		}
		origins = append(origins, a.Labels[i].Origin)
	}
	slices.Sort(origins)
	if len(slices.Compact(origins)) < len(a.Origins) {
		kinds = append(kinds, "features")
	}
	if n := len(kinds); n > 1 {
		return strings.Join(kinds[:n-1], ", ") + " and " + kinds[n-1]
	}
	return strings.Join(kinds, "")
}

// Required is a requirement of a pod on labels, resources or devices, and who gives them.
type Required struct {
	podlabels.Requirement
	// Given are the rules, requests, NodeFeatures and clients that give it to nodes.
	Given []Provider `json:"given,omitempty"`
	// Values are values that Nodes have of the label, if none meets the requirement.
	Values []string `json:"values,omitempty"`
	// Why is why nothing gives it.
	Why string `json:"why,omitempty"`
	// Has is what the node on which Given is evaluated has instead. It is empty if the node meets the requirement, or does not exist.
	Has string `json:"has,omitempty"`
}

// Of returns what the requirement is on: a label, a resource or a device.
func (r *Required) Of() string {
	switch {
	case r.OnLabels():
		return "label"
	case r.Resource != "":
		return "resource"
	}
	return "device"
}

// Provider gives a label or resource to nodes.
type Provider struct {
	// By is a rule, a NodeFeatureRequest, a NodeFeature or another client.
	By string `json:"by"`
	// Terms are the expressions of a rule or request, as evaluated on a node.
	Terms []tracing.Line `json:"terms,omitempty"`
	// Why is why it does not give it to that node, or to any.
	Why string `json:"why,omitempty"`
}

// String names what gives a requirement, for one line.
func (r *Required) String() string {
	var out []string
	for i := range r.Given {
		out = append(out, r.Given[i].By)
	}
	if r.Why != "" {
		out = append(out, r.Why)
	}
	if len(r.Values) > 0 {
		out = append(out, "Nodes have "+strings.Join(r.Values, ", "))
	}
	return strings.Join(out, "; ")
}

// Package podlabels determines which Nodes have the labels and resources that a pod requires of its node, as the scheduler does.
package podlabels

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// The parts of a pod that require labels.
const (
	selector = "node selector"
	affinity = "required node affinity"
)

// Requirement is a requirement of a pod on the labels or resources of its node. A pod has all of its requirements; several terms of a node
// affinity, of which one is enough, are one Requirement.
type Requirement struct {
	// Origin is the part of the pod: the node selector, the required node affinity, its resource requests or a resource claim.
	Origin string `json:"origin"`
	// Text is the requirement; that on labels in the form of a label selector.
	Text string `json:"requirement"`
	// Resource is the resource that the pod requests; empty: the requirement is on labels or devices.
	Resource string `json:"resource,omitempty"`
	// Nodes is the number of Nodes that meet it.
	Nodes int `json:"nodes"`

	terms []term // one of them is enough
}

// term is a list of expressions, all of which a Node must meet.
type term []expression

// expression is one requirement on a Node. Key is that of its label; empty: it is on something else.
type expression struct {
	key   string
	text  string
	meets func(*corev1.Node) bool
	lacks func(*corev1.Node) string // for a Node that does not meet it
}

// Of returns the requirements of a pod, in a fixed order. The error is about an expression that the API server would reject.
func Of(pod *corev1.PodSpec) ([]Requirement, error) {
	var out []Requirement
	keys := make([]string, 0, len(pod.NodeSelector))
	for key := range pod.NodeSelector {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		x, err := onLabel(corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{pod.NodeSelector[key]}})
		if err != nil {
			return nil, fmt.Errorf("spec.nodeSelector[%s]: %w", key, err)
		}
		out = append(out, requirement(selector, term{x}))
	}
	terms, err := affinityOf(pod)
	if err != nil {
		return nil, err
	}
	switch {
	case len(terms) == 1:
		for _, x := range terms[0] {
			out = append(out, requirement(affinity, term{x}))
		}
	case len(terms) > 1:
		out = append(out, requirement(affinity, terms...))
	case nodeSelector(pod) != nil:
		out = append(out, Requirement{Origin: affinity, Text: "a node selector term without expressions"})
	}
	return out, nil
}

func requirement(origin string, terms ...term) Requirement {
	all := make([]string, len(terms))
	for i, t := range terms {
		var one []string
		for _, x := range t {
			one = append(one, x.text)
		}
		all[i] = strings.Join(one, ",")
	}
	return Requirement{Origin: origin, Text: strings.Join(all, " or "), terms: terms}
}

// nodeSelector returns the required node affinity of a pod, or nil.
func nodeSelector(pod *corev1.PodSpec) *corev1.NodeSelector {
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil {
		return nil
	}
	return pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// required returns the terms of the required node affinity, without empty ones, which select no node.
func required(pod *corev1.PodSpec) []corev1.NodeSelectorTerm {
	selector := nodeSelector(pod)
	if selector == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(selector.NodeSelectorTerms),
		func(t corev1.NodeSelectorTerm) bool { return len(t.MatchExpressions)+len(t.MatchFields) == 0 })
}

func affinityOf(pod *corev1.PodSpec) (out []term, err error) {
	for i, t := range required(pod) {
		var all term
		for _, part := range []struct {
			name string
			list []corev1.NodeSelectorRequirement
			read func(corev1.NodeSelectorRequirement) (expression, error)
		}{{"matchExpressions", t.MatchExpressions, onLabel}, {"matchFields", t.MatchFields, onName}} {
			for j, r := range part.list {
				x, err := part.read(r)
				if err != nil {
					return nil, fmt.Errorf("nodeSelectorTerms[%d].%s[%d]: %w", i, part.name, j, err)
				}
				all = append(all, x)
			}
		}
		out = append(out, all)
	}
	return out, nil
}

// operators are the operators of label selectors.
var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn:           selection.In,
	corev1.NodeSelectorOpNotIn:        selection.NotIn,
	corev1.NodeSelectorOpExists:       selection.Exists,
	corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt:           selection.GreaterThan,
	corev1.NodeSelectorOpLt:           selection.LessThan,
}

func onLabel(r corev1.NodeSelectorRequirement) (expression, error) {
	operator, ok := operators[r.Operator]
	if !ok {
		return expression{}, fmt.Errorf("unknown operator %q", r.Operator)
	}
	if operator == selection.In && len(r.Values) == 1 {
		operator = selection.Equals // the shorter form
	}
	parsed, err := labels.NewRequirement(r.Key, operator, r.Values)
	if err != nil {
		return expression{}, err
	}
	return expression{
		key:   r.Key,
		text:  parsed.String(),
		meets: func(node *corev1.Node) bool { return parsed.Matches(labels.Set(node.Labels)) },
		lacks: func(node *corev1.Node) string {
			if value, ok := node.Labels[r.Key]; ok {
				return fmt.Sprintf("label %s is %q", r.Key, value)
			}
			return "label " + r.Key + " is missing"
		},
	}, nil
}

// onName returns a requirement on the only field that the API server accepts, the name. It may be longer than the value of a label.
func onName(r corev1.NodeSelectorRequirement) (expression, error) {
	if in := r.Operator == corev1.NodeSelectorOpIn; r.Key == metav1.ObjectNameField && (in || r.Operator == corev1.NodeSelectorOpNotIn) {
		return expression{
			text:  fmt.Sprintf("%s %s (%s)", r.Key, strings.ToLower(string(r.Operator)), strings.Join(r.Values, ",")),
			meets: func(node *corev1.Node) bool { return slices.Contains(r.Values, node.Name) == in },
			lacks: func(node *corev1.Node) string { return "its name is " + node.Name },
		}, nil
	}
	return expression{}, fmt.Errorf("invalid field %q with operator %q: use %s with In or NotIn", r.Key, r.Operator, metav1.ObjectNameField)
}

// Keys returns the keys of the labels that the requirement is about.
func (r *Requirement) Keys() (out []string) {
	for _, t := range r.terms {
		for _, x := range t {
			if x.key != "" && !slices.Contains(out, x.key) {
				out = append(out, x.key)
			}
		}
	}
	return out
}

// OnLabels reports whether the requirement is on labels of Nodes, or their names.
func (r *Requirement) OnLabels() bool { return r.Origin == selector || r.Origin == affinity }

// Lacks returns what a Node lacks to meet a requirement, with what it has instead; empty: it meets the requirement.
func (r *Requirement) Lacks(node *corev1.Node) string {
	if len(r.terms) == 0 {
		return r.Text + ", which no node meets"
	}
	var lacks []string
	for _, t := range r.terms {
		unmet := slices.IndexFunc(t, func(x expression) bool { return !x.meets(node) })
		if unmet < 0 {
			return ""
		}
		lacks = append(lacks, t[unmet].lacks(node))
	}
	return strings.Join(slices.Compact(lacks), "; ")
}

// Keys returns the keys of the labels that a pod requires, sorted.
func Keys(pod *corev1.PodSpec) (out []string) {
	for key := range pod.NodeSelector {
		out = append(out, key)
	}
	for _, t := range required(pod) {
		for _, x := range t.MatchExpressions {
			out = append(out, x.Key)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Count sets the number of Nodes that meet each requirement, and returns the number of Nodes that meet all.
func Count(list []Requirement, nodes iter.Seq[*corev1.Node]) (all int) {
	for node := range nodes {
		met := 0
		for i := range list {
			if list[i].Lacks(node) == "" {
				list[i].Nodes++
				met++
			}
		}
		if met == len(list) {
			all++
		}
	}
	return all
}

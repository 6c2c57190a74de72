// Package podadmission computes the changes that admission makes to pods that require features.
package podadmission

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/requirements"
)

// Input is the input of Decide.
type Input struct {
	Pod *corev1.Pod
	// Namespace holds the labels of the pod's namespace.
	Namespace map[string]string
	// Requirements holds all requirements. Policies are the policies that select the pod, sorted by name.
	Requirements *requirements.Requirements
	Policies     []*requirements.Policy
	// Labels maps requirements to equivalent labels. It may be nil.
	Labels Labels
}

// Patch is one operation of a JSON patch (RFC 6902).
type Patch struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Decide returns the changes to the pod. There are none for a pod without requirements and for a pod that already has the changes.
func Decide(in Input) []Patch {
	if in.Requirements.Empty() {
		return nil
	}
	var out []Patch
	pod := in.Pod
	if hash := in.Requirements.Hash(); hash != "" && pod.Annotations[assayv1alpha1.RequirementHashAnnotation] == "" {
		out = append(out, annotate(pod, assayv1alpha1.RequirementHashAnnotation, hash))
	}
	if pod.Spec.NodeName != "" {
		return out // the pod is bound to a node already, but its features are still watched
	}
	if selector := in.selector(); !maps.Equal(selector, pod.Spec.NodeSelector) {
		out = append(out, Patch{"add", "/spec/nodeSelector", selector})
	}
	if pod.Spec.SchedulerName != "" && pod.Spec.SchedulerName != corev1.DefaultSchedulerName {
		return out
	}
	if name := in.scheduler(); name != "" {
		out = append(out, Patch{"add", "/spec/schedulerName", name})
	}
	return out
}

// selector returns the pod's node selector with the labels that are equivalent to its requirements. A node must have all labels of
// the selector and match an affinity term, so the affinity stays as it is.
func (in *Input) selector() map[string]string {
	out := map[string]string{}
	maps.Copy(out, in.Pod.Spec.NodeSelector)
	for i := range in.Requirements.Required {
		label, ok := in.Labels.For(in.Requirements.Required[i].Key, in.Pod)
		if !ok {
			continue
		}
		if have, ok := out[label.Name]; ok && have != label.Value {
			label = Label{requirements.ImpossibleLabel, "true"} // a node has only one of the two values
		}
		out[label.Name] = label.Value
	}
	return out
}

// scheduler returns the scheduler of the pod: that of the first policy that sets one, otherwise the scheduler of the namespace.
func (in *Input) scheduler() string {
	for _, p := range in.Policies {
		if p.SchedulerName != "" {
			return p.SchedulerName
		}
	}
	return in.Namespace[assayv1alpha1.SchedulerLabel]
}

func annotate(pod *corev1.Pod, key, value string) Patch {
	if pod.Annotations == nil {
		return Patch{"add", "/metadata/annotations", map[string]string{key: value}}
	}
	return Patch{"add", "/metadata/annotations/" + escape(key), value}
}

// escape escapes a key for use in a JSON pointer (RFC 6901).
func escape(key string) string {
	out := make([]byte, 0, len(key)+2)
	for i := range len(key) {
		switch key[i] {
		case '~':
			out = append(out, "~0"...)
		case '/':
			out = append(out, "~1"...)
		default:
			out = append(out, key[i])
		}
	}
	return string(out)
}

// Shape says what is known of nodes that do not exist yet.
type Shape struct {
	// Known is set if the requirements are labels, so that the NodeShapes tell which new nodes meet them. Name is a NodeShape that
	// has all of them; empty: there is none.
	Known bool
	Name  string
	// Lost is a NodeShape that lost one of them, because a new node did not have it; empty: there is none.
	Lost string
}

// ShapeOf returns what NodeShapes say about the requirements of a pod.
func (l Labels) ShapeOf(reqs *requirements.Requirements, pod *corev1.Pod, shapes []assayv1alpha1.NodeShape) Shape {
	var want []Label
	for i := range reqs.Required {
		label, ok := l.For(reqs.Required[i].Key, pod)
		if !ok {
			return Shape{}
		}
		want = append(want, label)
	}
	out := Shape{Known: len(shapes) > 0}
	for i := range shapes {
		s := &shapes[i]
		lacks := slices.ContainsFunc(want, func(label Label) bool {
			value, ok := s.Status.Labels[label.Name]
			return !ok || value != label.Value
		})
		if !lacks && (out.Name == "" || s.Name < out.Name) {
			out.Name = s.Name
		}
		if contradicted(s, want) && (out.Lost == "" || s.Name < out.Lost) {
			out.Lost = s.Name
		}
	}
	return out
}

// contradicted reports whether a new node did not have one of the labels, which all nodes of the shape before it had.
func contradicted(s *assayv1alpha1.NodeShape, labels []Label) bool {
	return slices.ContainsFunc(s.Status.Differences, func(x assayv1alpha1.ShapeDifference) bool {
		return x.Output == string(keys.Label) && x.ContradictedBy != "" &&
			slices.ContainsFunc(labels, func(label Label) bool { return label.Name == x.Name })
	})
}

// Warning returns a warning about a workload whose requirements no node meets. It returns "" if a node meets them or if there are
// no nodes.
func Warning(matching, nodes int, nearest, lacks string, shape Shape) string {
	if matching > 0 || nodes == 0 {
		return ""
	}
	text := fmt.Sprintf("0 of %d nodes satisfy this now", nodes)
	if shape.Lost != "" { // before the rest, of which a long warning loses the end
		text += fmt.Sprintf("; NodeShape %s lost it, because a new node differs", shape.Lost)
	}
	switch {
	case shape.Name != "":
		text += fmt.Sprintf("; new nodes of NodeShape %s do", shape.Name)
	case nearest != "":
		text += fmt.Sprintf("; closest: %s lacks %s", nearest, lacks)
		if shape.Known {
			text += "; no NodeShape has it either, so autoscalers do not know which nodes to add"
		}
	}
	return text
}

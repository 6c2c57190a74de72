// Package podadmission computes the changes that admission makes to pods that require features.
package podadmission

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/requirements"
)

// Settings are the administrator's settings.
type Settings struct {
	// Marker adds marker resources if the extender must be called. They prevent an extender of the default scheduler from being
	// called for other pods and for calls that cannot change the result. The default is false, because markers change the resources
	// of pods, and the default scheduler has no extender unless the administrator adds it.
	Marker bool
}

// Input is the input of Decide.
type Input struct {
	Pod *corev1.Pod
	// Namespace holds the labels of the pod's namespace.
	Namespace map[string]string
	// Requirements holds all requirements. Policies are the policies that select the pod, sorted by name.
	Requirements *requirements.Requirements
	Policies     []*requirements.Policy
	// Labels maps requirements to equivalent labels. It may be nil.
	Labels   Labels
	Settings Settings
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
	terms, marks := in.translate()
	if p, ok := affinity(pod, terms); ok {
		out = append(out, p)
	}
	if pod.Spec.SchedulerName != "" && pod.Spec.SchedulerName != corev1.DefaultSchedulerName {
		return out
	}
	if name := in.scheduler(); name != "" {
		return append(out, Patch{"add", "/spec/schedulerName", name})
	}
	if in.Settings.Marker {
		out = append(out, mark(pod, marks)...)
	}
	return out
}

// translate returns the requirements as node affinity terms, and marker resources for those that only the extender can evaluate.
func (in *Input) translate() (terms []corev1.NodeSelectorRequirement, marks []corev1.ResourceName) {
	filter := in.Requirements.StaleAfter > 0
	for _, r := range in.Requirements.Required {
		term, ok := in.Labels.For(r.Key, in.Pod)
		if filter = filter || !ok; ok {
			terms = append(terms, term)
		}
	}
	if filter {
		marks = append(marks, assayv1alpha1.MarkerResource)
	}
	if len(in.Requirements.Preferred) > 0 {
		marks = append(marks, assayv1alpha1.PreferenceMarkerResource)
	}
	return terms, marks
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

// affinity adds terms to each alternative of the pod's required node affinity: alternatives are ORed, so one without the terms
// would allow other nodes. An empty alternative selects no node and stays unchanged.
func affinity(pod *corev1.Pod, terms []corev1.NodeSelectorRequirement) (Patch, bool) {
	if len(terms) == 0 {
		return Patch{}, false
	}
	all := &corev1.Affinity{}
	if pod.Spec.Affinity != nil {
		all = pod.Spec.Affinity.DeepCopy()
	}
	if all.NodeAffinity == nil {
		all.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := all.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: terms}}}
		all.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = required
		return Patch{"add", "/spec/affinity", all}, true
	}
	changed := false
	for i := range required.NodeSelectorTerms {
		t := &required.NodeSelectorTerms[i]
		if len(t.MatchExpressions)+len(t.MatchFields) == 0 {
			continue
		}
		for _, want := range terms {
			if !slices.ContainsFunc(t.MatchExpressions, func(have corev1.NodeSelectorRequirement) bool { return same(have, want) }) {
				t.MatchExpressions = append(t.MatchExpressions, want)
				changed = true
			}
		}
	}
	return Patch{"add", "/spec/affinity", all}, changed
}

func same(a, b corev1.NodeSelectorRequirement) bool {
	return a.Key == b.Key && a.Operator == b.Operator && slices.Equal(a.Values, b.Values)
}

// markAmount is the amount of a marker resource that a pod requests. A scheduler calls an extender with managed resources for pods
// that request any amount of such a resource, even zero. Components that count resources (kube-scheduler's fit, autoscalers,
// quotas, kubelets) ignore amounts of zero, so that components which do not know the marker can still place the pod. Zero is also
// cheaper: kube-scheduler matches the name of every resource with a nonzero amount against a regular expression for each node.
const markAmount = "0"

// mark adds marker resources to the first container.
func mark(pod *corev1.Pod, marks []corev1.ResourceName) []Patch {
	if len(pod.Spec.Containers) == 0 {
		return nil
	}
	have := pod.Spec.Containers[0].Resources
	marks = slices.DeleteFunc(marks, func(name corev1.ResourceName) bool {
		_, ok := have.Limits[name]
		return ok
	})
	if len(marks) == 0 {
		return nil
	}
	amount := resource.MustParse(markAmount)
	want := have.DeepCopy()
	// Resources outside of kubernetes.io cannot be overcommitted: request and limit must be equal.
	for _, list := range []*corev1.ResourceList{&want.Limits, &want.Requests} {
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		for _, name := range marks {
			(*list)[name] = amount
		}
	}
	return []Patch{{"add", "/spec/containers/0/resources", want}}
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
	var want []corev1.NodeSelectorRequirement
	for i := range reqs.Required {
		term, ok := l.For(reqs.Required[i].Key, pod)
		if !ok {
			return Shape{}
		}
		want = append(want, term)
	}
	out := Shape{Known: len(shapes) > 0}
	for i := range shapes {
		s := &shapes[i]
		lacks := slices.ContainsFunc(want, func(term corev1.NodeSelectorRequirement) bool {
			value, ok := s.Status.Labels[term.Key]
			return !ok || !slices.Contains(term.Values, value)
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
func contradicted(s *assayv1alpha1.NodeShape, labels []corev1.NodeSelectorRequirement) bool {
	return slices.ContainsFunc(s.Status.Differences, func(x assayv1alpha1.ShapeDifference) bool {
		return x.Output == string(keys.Label) && x.ContradictedBy != "" &&
			slices.ContainsFunc(labels, func(term corev1.NodeSelectorRequirement) bool { return term.Key == x.Name })
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

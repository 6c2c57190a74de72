// Package serving determines what makes the scheduler respect the features that a pod requires.
package serving

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/requirements"
)

// Installed is what the cluster has for pods that require features. The zero value has nothing.
type Installed struct {
	// Policy and Webhook are the names of what adds labels of requests to node selectors; empty: it is not installed.
	Policy, Webhook string
	// Scheduler is the name of the scheduler with the extender; empty: it does not run.
	Scheduler string
	// RuleLabels are the labels that rules write on Nodes.
	RuleLabels map[string]bool
	// Policies returns the NodeFeatureSchedulingPolicies that select a pod; nil: there are none.
	Policies func(namespace string, labels map[string]string) []*requirements.Policy
}

// Way is what makes the scheduler respect one part of a pod's requirements.
type Way struct {
	// Part is the part: an annotation, a NodeFeatureRequest or a NodeFeatureSchedulingPolicy.
	Part string `json:"part"`
	// By is the way, with what wrote it. It is empty if nothing serves the part.
	By string `json:"by,omitempty"`
	// Problem is why the pod waits although the part is served, or why it is not served.
	Problem string `json:"problem,omitempty"`
}

// Served reports whether something makes the scheduler respect the part.
func (w *Way) Served() bool { return w.By != "" }

// String returns the way as one sentence without a period.
func (w *Way) String() string {
	out := w.Part + ": "
	if w.Served() {
		out += "served by " + w.By
		if w.Problem != "" {
			out += "; " + w.Problem
		}
		return out
	}
	return out + "not served: " + w.Problem
}

// Of returns the ways of the requirements of a pod, and none if it has no requirements. find returns the NodeFeatureRequest
// of that name in the namespace of the pod, nil if it does not exist.
func (in *Installed) Of(pod *corev1.Pod, find func(name string) *assayv1alpha1.NodeFeatureRequest) (out []Way) {
	if name := pod.Labels[assayv1alpha1.FeatureRequestLabel]; name != "" {
		out = append(out, in.request(pod, name, find(name))...)
	} else if label, name, ok := selects(pod); ok {
		w := Way{Part: "NodeFeatureRequest " + pod.Namespace + "/" + name, By: "node selector " + label + " of the pod"}
		w.Problem = noLabel(find(name))
		out = append(out, w)
	}
	for _, key := range requirements.AnnotationKeys {
		if pod.Annotations[key] != "" {
			out = append(out, in.annotation(pod, key))
		}
	}
	if in.Policies != nil {
		for _, p := range in.Policies(pod.Namespace, pod.Labels) {
			out = append(out, in.selected(pod, p))
		}
	}
	return out
}

// selected returns the way of a policy that selects a pod: the extender alone evaluates policies.
func (in *Installed) selected(pod *corev1.Pod, p *requirements.Policy) Way {
	w := Way{Part: "NodeFeatureSchedulingPolicy " + p.Name}
	if in.extender(pod) {
		w.By = in.extended()
	} else {
		w.Problem = in.unserved(pod)
	}
	return w
}

// selects returns the label of a request of the pod's namespace in its node selector, and the name of the request.
func selects(pod *corev1.Pod) (label, name string, ok bool) {
	prefix := requirements.LabelOf(pod.Namespace, "x")
	prefix = prefix[:len(prefix)-1]
	var found []string
	for key := range pod.Spec.NodeSelector {
		if len(key) > len(prefix) && key[:len(prefix)] == prefix {
			found = append(found, key)
		}
	}
	if len(found) == 0 {
		return "", "", false
	}
	label = slices.Min(found)
	return label, label[len(prefix):], true
}

// request returns the ways of the requirements and preferences of the request that a pod names.
func (in *Installed) request(pod *corev1.Pod, name string, request *assayv1alpha1.NodeFeatureRequest) []Way {
	w := Way{Part: "NodeFeatureRequest " + pod.Namespace + "/" + name}
	label := requirements.LabelOf(pod.Namespace, name)
	_, selected := pod.Spec.NodeSelector[label]
	switch {
	case selected:
		w.By, w.Problem = "node selector "+label+in.writer(), noLabel(request)
		if label == requirements.ImpossibleLabel {
			w.Problem = requirements.NameTooLong(pod.Namespace, name)
		}
	case in.extender(pod):
		w.By = in.extended()
	case request == nil:
		w.Problem = "it does not exist, and the pod has no node selector " + label
	default:
		w.Problem = in.unserved(pod)
		if why := requirements.WithoutLabel(request); why != "" {
			w.Problem = "nodes get no label (" + why + "), and " + w.Problem
		} else {
			w.Problem = "the pod has no node selector " + label + ", and " + w.Problem
		}
	}
	out := []Way{w}
	if request != nil && len(request.Spec.Preferred) > 0 && selected && !in.extender(pod) {
		out = append(out, Way{Part: "preferred of " + w.Part, Problem: in.unserved(pod)})
	}
	return out
}

func (in *Installed) annotation(pod *corev1.Pod, key string) Way {
	w := Way{Part: "annotation " + key}
	if in.extender(pod) {
		w.By = in.extended()
		return w
	}
	if key == assayv1alpha1.RequiredFeaturesAnnotation {
		var labels []string
		for label := range pod.Spec.NodeSelector {
			if in.RuleLabels[label] {
				labels = append(labels, label)
			}
		}
		if len(labels) > 0 {
			w.By = "node selector " + slices.Min(labels) + ", which a rule writes"
			return w
		}
	}
	w.Problem = in.unserved(pod)
	return w
}

// extender reports whether the scheduler of a pod has the extender. That of the default scheduler is not known.
func (in *Installed) extender(pod *corev1.Pod) bool {
	return in.Scheduler != "" && pod.Spec.SchedulerName == in.Scheduler
}

func (in *Installed) extended() string { return "the extender of the scheduler " + in.Scheduler }

func (in *Installed) unserved(pod *corev1.Pod) string {
	scheduler := pod.Spec.SchedulerName
	if scheduler == "" || scheduler == corev1.DefaultSchedulerName {
		return "the default scheduler does not check it unless the extender is attached to it"
	}
	return fmt.Sprintf("the scheduler %s does not check it unless it runs and the extender is attached to it", scheduler)
}

// writer returns what adds labels of requests to node selectors, for the end of a sentence.
func (in *Installed) writer() string {
	switch {
	case in.Policy != "":
		return " by the MutatingAdmissionPolicy " + in.Policy
	case in.Webhook != "":
		return " by the webhook " + in.Webhook
	}
	return " of the pod"
}

// noLabel returns why no node gets the label of a request now, or "".
func noLabel(request *assayv1alpha1.NodeFeatureRequest) string {
	if request == nil {
		return "no node has the label: the request does not exist"
	}
	if why := NotYet(request); why != "" {
		return "no node gets the label: " + why
	}
	return ""
}

// NotYet returns why the nodes that meet a request do not have its label now, or "".
func NotYet(r *assayv1alpha1.NodeFeatureRequest) string {
	if why := requirements.WithoutLabel(r); why != "" {
		return why
	}
	c := meta.FindStatusCondition(r.Status.Conditions, assayv1alpha1.ConditionMaterialized)
	switch {
	case c == nil || c.ObservedGeneration != r.Generation:
		return "the controller has not evaluated the request"
	case c.Status != metav1.ConditionTrue:
		return c.Reason + ": " + c.Message
	}
	return ""
}

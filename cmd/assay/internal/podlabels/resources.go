package podlabels

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// requested is the part of a pod that requires resources.
const requested = "resource requests"

// New returns a requirement of a part of a pod that only the caller can evaluate.
func New(origin, text string, meets func(*corev1.Node) bool, lacks func(*corev1.Node) string) Requirement {
	return Requirement{Origin: origin, Text: text, terms: []term{{{text: text, meets: meets, lacks: lacks}}}}
}

// Or adds an alternative to a requirement.
func (r *Requirement) Or(meets func(*corev1.Node) bool, lacks string) {
	r.terms = append(r.terms, term{{meets: meets, lacks: func(*corev1.Node) string { return lacks }}})
}

// Resources returns what a pod requests of the resources that its node can allocate, sorted by name. It does not subtract what other pods use.
func Resources(pod *corev1.PodSpec) (out []Requirement) {
	requests := requests(pod)
	names := make([]corev1.ResourceName, 0, len(requests))
	for name := range requests {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		want := requests[name]
		if want.Sign() <= 0 {
			continue
		}
		r := New(requested, fmt.Sprintf("%s: %s", name, want.String()), func(node *corev1.Node) bool {
			has, ok := node.Status.Allocatable[name]
			return ok && has.Cmp(want) >= 0
		}, func(node *corev1.Node) string {
			if has, ok := node.Status.Allocatable[name]; ok {
				return fmt.Sprintf("it can allocate %s of %s", has.String(), name)
			}
			return fmt.Sprintf("it has no %s", name)
		})
		r.Resource = string(name)
		out = append(out, r)
	}
	return out
}

// requests returns what the scheduler reserves for a pod. Requests of the pod as a whole replace those of its containers.
func requests(pod *corev1.PodSpec) corev1.ResourceList {
	out := ContainerRequests(pod)
	if pod.Resources != nil {
		for name, quantity := range pod.Resources.Requests {
			out[name] = quantity
		}
	}
	add(out, pod.Overhead)
	return out
}

// ContainerRequests returns what the containers of a pod request together: the sum over containers and sidecars, or the largest init container
// with the sidecars before it if that is more.
func ContainerRequests(pod *corev1.PodSpec) corev1.ResourceList {
	out, sidecars, largest := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for i := range pod.InitContainers {
		c := &pod.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(out, c.Resources.Requests)
			add(sidecars, c.Resources.Requests)
			continue
		}
		during := corev1.ResourceList{}
		add(during, sidecars)
		add(during, c.Resources.Requests)
		larger(largest, during)
	}
	for i := range pod.Containers {
		add(out, pod.Containers[i].Resources.Requests)
	}
	larger(out, largest)
	return out
}

func add(sum, list corev1.ResourceList) {
	for name, quantity := range list {
		total := sum[name]
		total.Add(quantity)
		sum[name] = total
	}
}

// larger replaces the quantities that are smaller than those of list.
func larger(out, list corev1.ResourceList) {
	for name, quantity := range list {
		if has, ok := out[name]; !ok || has.Cmp(quantity) < 0 {
			out[name] = quantity
		}
	}
}

// HasAllocatable reports whether a Node says what it can allocate. In files Nodes may lack their status.
func HasAllocatable(node *corev1.Node) bool {
	return slices.ContainsFunc([]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods}, func(name corev1.ResourceName) bool {
		_, ok := node.Status.Allocatable[name]
		return ok
	})
}

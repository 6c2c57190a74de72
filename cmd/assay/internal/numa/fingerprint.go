package numa

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/discovery/topology"
)

// Comparison is the fingerprint of a node's topology beside those that schedulers compute from the API's pods.
type Comparison struct {
	Published string `json:"published"`
	Method    string `json:"method"`
	// Dedicated and Shared are the fingerprints in the two informer modes of the plug-in: of bound pods that are not Pending, finished
	// ones included, and of pods that are Running.
	Dedicated string `json:"dedicated"`
	Shared    string `json:"shared"`
	// Kubelet is that of the pods that a kubelet lists: bound and not finished.
	Kubelet string `json:"kubelet"`
	// Pods are those that the sets do not have in common, and why.
	Pods []string `json:"pods,omitempty"`
}

// Matches reports whether a scheduler in one of the modes computes the published fingerprint.
func (c *Comparison) Matches() bool { return c.Published == c.Dedicated || c.Published == c.Shared }

// Compare computes the fingerprints of a node. Pods are all pods that are bound to it.
func Compare(t *v1alpha2.NodeResourceTopology, pods []corev1.Pod) Comparison {
	c := Comparison{Published: Attribute(t, topology.AttributeFingerprint), Method: Attribute(t, topology.AttributeFingerprintMethod)}
	var dedicated, shared, kubelet []topology.PodName
	for i := range pods {
		p := &pods[i]
		if c.Method == topology.MethodExclusive && !exclusive(p, t) {
			continue
		}
		name := topology.PodName{Namespace: p.Namespace, Name: p.Name}
		finished := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if p.Status.Phase != corev1.PodPending {
			dedicated = append(dedicated, name)
		}
		if p.Status.Phase == corev1.PodRunning {
			shared = append(shared, name)
		}
		if !finished {
			kubelet = append(kubelet, name)
		}
		switch {
		case finished:
			c.Pods = append(c.Pods, fmt.Sprintf("%s/%s is %s: schedulers with informerMode Dedicated count it until it is deleted", p.Namespace, p.Name, p.Status.Phase))
		case p.Status.Phase == corev1.PodPending:
			c.Pods = append(c.Pods, fmt.Sprintf("%s/%s is Pending: the kubelet counts it, schedulers do not yet", p.Namespace, p.Name))
		}
	}
	slices.Sort(c.Pods)
	c.Dedicated, c.Shared, c.Kubelet = topology.Fingerprint(dedicated), topology.Fingerprint(shared), topology.Fingerprint(kubelet)
	return c
}

// exclusive reports whether a scheduler counts a pod with the method with-exclusive-resources: a guaranteed pod with a whole number of CPUs
// or with memory, and a pod with devices that the topology names.
func exclusive(p *corev1.Pod, t *v1alpha2.NodeResourceTopology) bool {
	guaranteed := QOS(p) == corev1.PodQOSGuaranteed
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for name, q := range c.Resources.Requests {
			switch {
			case q.IsZero():
			case name == corev1.ResourceCPU:
				if guaranteed && q.MilliValue()%1000 == 0 {
					return true
				}
			case native(string(name)):
				if guaranteed {
					return true
				}
			case slices.ContainsFunc(t.Zones, func(z v1alpha2.Zone) bool { return Find(&z, string(name)) != nil }):
				return true
			}
		}
	}
	return false
}

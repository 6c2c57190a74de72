// Package numa explains NodeResourceTopologies, as the scheduler plug-in NodeResourceTopologyMatch (scheduler-plugins v0.34) reads them.
package numa

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/cmd/assay/internal/podlabels"
	"github.com/assay-project/assay/discovery/topology"
)

const (
	singleNUMA = "single-numa-node"
	scopePod   = "pod"
)

// Attribute returns the value of an attribute, or an empty string.
func Attribute(t *v1alpha2.NodeResourceTopology, name string) string {
	for _, a := range t.Attributes {
		if a.Name == name {
			return a.Value
		}
	}
	return ""
}

// Find returns a resource of a zone, or nil.
func Find(z *v1alpha2.Zone, name string) *v1alpha2.Resource {
	for i := range z.Resources {
		if z.Resources[i].Name == name {
			return &z.Resources[i]
		}
	}
	return nil
}

// Verdict says whether the plug-in lets a pod be placed on a node.
type Verdict struct {
	Node string `json:"node"`
	Fits bool   `json:"fits"`
	// Reason says why, in a sentence.
	Reason string `json:"reason"`
	// Zones are what each zone lacks, if none fits.
	Zones []Lack `json:"zones,omitempty"`
}

// Lack is what a zone lacks for a container, or for the pod as a whole.
type Lack struct {
	Zone    string   `json:"zone"`
	Missing []string `json:"missing"`
}

// Why evaluates the filter of the plug-in for one node. T is nil if the node has no topology.
func Why(pod *corev1.Pod, node *corev1.Node, t *v1alpha2.NodeResourceTopology) Verdict {
	v := Verdict{Node: node.Name, Fits: true}
	guaranteed := QOS(pod) == corev1.PodQOSGuaranteed
	switch {
	case t == nil:
		v.Reason = "no NodeResourceTopology is published, so the plug-in does not filter the node"
		return v
	case Attribute(t, topology.AttributePolicy) != singleNUMA:
		v.Reason = "topologyManagerPolicy is " + Attribute(t, topology.AttributePolicy) + ": the plug-in filters by " + singleNUMA + " only"
		return v
	case QOS(pod) == corev1.PodQOSBestEffort && !asksDevices(pod):
		v.Reason = "the pod is BestEffort and requests no devices"
		return v
	}
	free := available(t)
	if Attribute(t, topology.AttributeScope) == scopePod {
		zones, lacks := fit(podlabels.ContainerRequests(&pod.Spec), node, free, guaranteed)
		if len(zones) > 0 {
			v.Reason = "the pod fits " + strings.Join(zones, ", ")
			return v
		}
		v.Fits, v.Zones, v.Reason = false, lacks, "the pod fits no zone"
		return v
	}
	for _, c := range pod.Spec.InitContainers {
		if zones, lacks := fit(c.Resources.Requests, node, free, guaranteed); len(zones) == 0 {
			v.Fits, v.Zones, v.Reason = false, lacks, "init container "+c.Name+" fits no zone"
			return v
		}
	}
	var placed []string
	for _, c := range pod.Spec.Containers {
		zones, lacks := fit(c.Resources.Requests, node, free, guaranteed)
		if len(zones) == 0 {
			v.Fits, v.Zones, v.Reason = false, lacks, "container "+c.Name+" fits no zone"
			return v
		}
		take(free, zones[0], c.Resources.Requests)
		placed = append(placed, c.Name+" in "+zones[0])
	}
	v.Reason = "the containers fit: " + strings.Join(placed, ", ")
	return v
}

// zone is what a zone has left.
type zone struct {
	name string
	free map[string]resource.Quantity
}

func available(t *v1alpha2.NodeResourceTopology) []zone {
	var out []zone
	for _, z := range t.Zones {
		if z.Type != v1alpha2.ZoneTypeNode {
			continue
		}
		one := zone{name: z.Name, free: map[string]resource.Quantity{}}
		for _, r := range z.Resources {
			one.free[r.Name] = r.Available.DeepCopy()
		}
		out = append(out, one)
	}
	return out
}

// fit returns the zones that have all that is requested, or what each lacks.
func fit(requests corev1.ResourceList, node *corev1.Node, zones []zone, guaranteed bool) (names []string, lacks []Lack) {
	missing := make([][]string, len(zones))
	for _, name := range sorted(requests) {
		wanted := requests[corev1.ResourceName(name)]
		if wanted.IsZero() {
			continue
		}
		if _, ok := node.Status.Allocatable[corev1.ResourceName(name)]; !ok {
			for i := range zones {
				missing[i] = append(missing[i], fmt.Sprintf("%s: the node has none", name))
			}
			continue
		}
		anywhere := slices.ContainsFunc(zones, func(z zone) bool { _, ok := z.free[name]; return ok })
		for i, z := range zones {
			has, ok := z.free[name]
			switch {
			case !anywhere && !native(name):
				// Devices without a NUMA node, ephemeral storage: of the node as a whole.
			case !ok:
				missing[i] = append(missing[i], fmt.Sprintf("%s: %s requested, the zone has none", name, wanted.String()))
			case !guaranteed && native(name):
				// Only guaranteed pods get CPUs and memory of a zone.
			case has.Cmp(wanted) < 0:
				missing[i] = append(missing[i], fmt.Sprintf("%s: %s requested, %s available", name, wanted.String(), has.String()))
			}
		}
	}
	for i, z := range zones {
		if len(missing[i]) == 0 {
			names = append(names, z.name)
		}
		lacks = append(lacks, Lack{Zone: z.name, Missing: missing[i]})
	}
	return names, lacks
}

// native reports whether the kubelet gives a resource of a NUMA node itself.
func native(name string) bool {
	return name == "cpu" || name == "memory" || strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
}

func take(zones []zone, name string, requests corev1.ResourceList) {
	for _, z := range zones {
		if z.name != name {
			continue
		}
		for r, wanted := range requests {
			if has, ok := z.free[string(r)]; ok {
				has.Sub(wanted)
				z.free[string(r)] = has
			}
		}
	}
}

func sorted(requests corev1.ResourceList) []string {
	var names []string
	for name := range requests {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}

// asksDevices reports whether a pod requests something other than CPUs, memory and storage.
func asksDevices(pod *corev1.Pod) bool {
	return slices.ContainsFunc(sorted(podlabels.ContainerRequests(&pod.Spec)), func(name string) bool { return strings.Contains(name, "/") })
}

// QOS returns the QoS class of a pod: that of its status, which the API server sets when the pod is created.
func QOS(pod *corev1.Pod) corev1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	return corev1.PodQOSBestEffort
}

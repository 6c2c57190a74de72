package export

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
)

const (
	capacityPrefix = "capacity.cluster-autoscaler.kubernetes.io/"
	templatePrefix = "k8s.io/cluster-autoscaler/node-template/"
)

// machineDeployment is the part of Cluster API's MachineDeployment that is exported.
type machineDeployment struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
}

// clusterAPI renders the annotations of MachineDeployments from which Cluster Autoscaler makes the template of a node.
func (r *Result) clusterAPI(shapes []assayv1alpha1.NodeShape, opt Options) {
	for _, g := range r.groups(shapes, opt, "label "+assayv1alpha1.MachineDeploymentLabel, func(key map[string]string) string {
		return key[assayv1alpha1.MachineDeploymentLabel]
	}) {
		d := &machineDeployment{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "MachineDeployment", Metadata: metadata{
			Name: g.name, Namespace: opt.Namespace, Annotations: map[string]string{},
		}}
		var labels, taints []string
		for _, name := range slices.Sorted(maps.Keys(g.labels)) {
			labels = append(labels, name+"="+g.labels[name])
		}
		for _, t := range g.taints {
			taints = append(taints, formatTaint(t))
		}
		d.Metadata.Annotations[capacityPrefix+"labels"] = strings.Join(labels, ",")
		d.Metadata.Annotations[capacityPrefix+"taints"] = strings.Join(taints, ",")
		r.Documents = append(r.Documents, d)
		if slices.ContainsFunc(g.shapes, func(s *assayv1alpha1.NodeShape) bool { return len(s.Status.ExtendedResources) > 0 }) {
			r.note("MachineDeployment %s: its extended resources are left out; Cluster Autoscaler has no annotation for them.", g.name)
		}
	}
	if len(r.Documents) > 0 {
		r.note("The output is a part of MachineDeployments. Apply it with %s; use kubectl annotate for those that were created with kubectl apply.",
			applyPart)
		r.noteStartupTaint()
	}
}

// noteStartupTaint says what else nodes need: the template promises labels that a new node does not have at once.
func (r *Result) noteStartupTaint() {
	r.note("Cluster Autoscaler adds node after node while a Ready node lacks these labels. Let nodes join with a taint whose key begins with "+
		"%s/, or that the autoscaler is given as --startup-taint, and set controller.startupTaint to its key.", assayv1alpha1.StartupTaintNamespace)
}

// nodeGroup is a node group with the tags from which Cluster Autoscaler makes the template of a node.
type nodeGroup struct {
	NodeGroup string            `json:"nodeGroup"`
	Tags      map[string]string `json:"tags"`
}

// clusterAutoscaler renders the tags of node groups.
func (r *Result) clusterAutoscaler(shapes []assayv1alpha1.NodeShape, opt Options) {
	for _, g := range r.groups(shapes, opt, "label of a node group", nodeGroupOf) {
		out := &nodeGroup{NodeGroup: g.name, Tags: map[string]string{}}
		for name, value := range g.labels {
			out.Tags[templatePrefix+"label/"+name] = value
		}
		for _, t := range g.taints {
			out.Tags[templatePrefix+"taint/"+t.Key] = t.Value + ":" + string(t.Effect)
		}
		for name, amount := range g.shapes[0].Status.ExtendedResources {
			if !slices.ContainsFunc(g.shapes, func(s *assayv1alpha1.NodeShape) bool {
				got, ok := s.Status.ExtendedResources[name]
				return !ok || !got.Equal(amount)
			}) {
				out.Tags[templatePrefix+"resources/"+string(name)] = amount.String()
			}
		}
		if len(out.Tags) > 0 {
			r.Documents = append(r.Documents, out)
		}
	}
	if len(r.Documents) > 0 {
		r.noteStartupTaint()
	}
}

// nodeGroupOf returns the value of the first label of a key that names a node group.
func nodeGroupOf(key map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(key)) {
		switch name {
		case corev1.LabelArchStable, corev1.LabelOSStable, corev1.LabelInstanceTypeStable, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
			assayv1alpha1.NodePoolLabel:
		default:
			return key[name]
		}
	}
	return ""
}

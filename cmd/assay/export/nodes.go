package export

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
)

// list is a List of Nodes: the provider kwok reads it also if it has only one item.
type list struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Items      []map[string]any `json:"items"`
}

// nodes renders one Node for each group.
func (r *Result) nodes(groups []*group, opt Options) {
	out := &list{APIVersion: "v1", Kind: "List"}
	for _, g := range groups {
		node := template(g, opt.Nodes)
		out.Items = append(out.Items, node)
		if allocatable, _ := object(node, "status")["allocatable"].(corev1.ResourceList); allocatable.Cpu().IsZero() {
			r.note("Node %s has no CPU and memory, which NodeShapes do not contain: pass your template of the group with --from, or add "+
				"cpu, memory and pods to status.allocatable.", g.shapes[0].Name)
		}
	}
	if len(out.Items) > 0 {
		r.Documents = append(r.Documents, out)
	}
}

// NodeTemplate is a Node that a user has written as the template of a node group.
type NodeTemplate struct {
	node  corev1.Node
	whole map[string]any // with the fields that were written, and no others
}

// UnmarshalJSON decodes a Node.
func (t *NodeTemplate) UnmarshalJSON(data []byte) error {
	return errors.Join(json.Unmarshal(data, &t.node), json.Unmarshal(data, &t.whole))
}

// template returns the Node that new nodes of a group will be: the user's template of the group, if there is one, with what the shapes add.
func template(g *group, templates []NodeTemplate) map[string]any {
	label, _ := nodeGroupOf(g.shapes[0].Status.Key)
	var base NodeTemplate
	if i := slices.IndexFunc(templates, func(t NodeTemplate) bool { return t.node.Labels[label] == g.name }); i >= 0 {
		base = templates[i]
	}
	out := map[string]any{"apiVersion": "v1", "kind": "Node"}
	maps.Copy(out, base.whole)
	meta, spec, status := object(out, "metadata"), object(out, "spec"), object(out, "status")
	if meta["name"] == nil {
		meta["name"] = g.shapes[0].Name
	}
	labels := g.commonKey()
	maps.Copy(labels, g.labels)
	maps.Copy(labels, base.node.Labels)
	meta["labels"] = labels
	taints := slices.Clone(base.node.Spec.Taints)
	for _, t := range g.taints {
		if !slices.ContainsFunc(taints, func(old corev1.Taint) bool { return old.MatchTaint(&t) }) {
			taints = append(taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
		}
	}
	set(spec, "taints", taints, len(taints))
	for field, have := range map[string]corev1.ResourceList{"capacity": base.node.Status.Capacity, "allocatable": base.node.Status.Allocatable} {
		all := g.resources()
		maps.Copy(all, have)
		set(status, field, all, len(all))
	}
	out["metadata"] = meta
	set(out, "spec", spec, len(spec))
	set(out, "status", status, len(status))
	return out
}

// commonKey returns the labels that all shapes of a group have in their keys.
func (g *group) commonKey() map[string]string {
	out := map[string]string{}
	for name := range g.shapes[0].Status.Key {
		if value := g.common(name); value != "" {
			out[name] = value
		}
	}
	return out
}

// common returns the value of a label that all shapes of a group have in their keys; empty if they differ.
func (g *group) common(label string) string {
	value := g.shapes[0].Status.Key[label]
	if slices.ContainsFunc(g.shapes, func(s *assayv1alpha1.NodeShape) bool { return s.Status.Key[label] != value }) {
		return ""
	}
	return value
}

// resources returns the extended resources that all shapes of a group have, with the same amount.
func (g *group) resources() corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, amount := range g.shapes[0].Status.ExtendedResources {
		if !slices.ContainsFunc(g.shapes, func(s *assayv1alpha1.NodeShape) bool {
			got, ok := s.Status.ExtendedResources[name]
			return !ok || !got.Equal(amount)
		}) {
			out[name] = amount
		}
	}
	return out
}

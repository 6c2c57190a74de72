package export

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/plan"
)

// maxPoolLabels is the maximum number of labels in the template of a NodePool; the CustomResourceDefinition of Karpenter sets it.
const maxPoolLabels = 100

// NodePool is Karpenter's NodePool: the part that is exported, and the object that it is a part of.
type NodePool struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       struct {
		Template struct {
			Metadata struct {
				Annotations map[string]string `json:"annotations,omitempty"`
				Labels      map[string]string `json:"labels,omitempty"`
			} `json:"metadata"`
			Spec *poolSpec `json:"spec,omitempty"`
		} `json:"template"`
	} `json:"spec"`

	// whole is the object as it was read; nil if it was not.
	whole map[string]any
}

// poolSpec holds the taints of a NodePool.
type poolSpec struct {
	Taints []corev1.Taint `json:"taints"`
}

type metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// UnmarshalJSON also keeps the fields that are not exported.
func (p *NodePool) UnmarshalJSON(data []byte) error {
	type fields NodePool
	return errors.Join(json.Unmarshal(data, (*fields)(p)), json.Unmarshal(data, &p.whole))
}

// MarshalJSON returns all fields that users set, so that kubectl apply removes none of them; without the whole object only the part that
// is exported.
func (p *NodePool) MarshalJSON() ([]byte, error) {
	if p.whole == nil {
		type fields NodePool
		return json.Marshal((*fields)(p))
	}
	spec := object(p.whole, "spec")
	template := object(spec, "template")
	meta, inner := object(template, "metadata"), object(template, "spec")
	have := &p.Spec.Template
	var taints []corev1.Taint
	if have.Spec != nil {
		taints = have.Spec.Taints
	}
	set(meta, "labels", have.Metadata.Labels, len(have.Metadata.Labels))
	set(meta, "annotations", have.Metadata.Annotations, len(have.Metadata.Annotations))
	set(inner, "taints", taints, len(taints))
	template["spec"], spec["template"] = inner, template
	set(template, "metadata", meta, len(meta))
	return json.Marshal(map[string]any{"apiVersion": p.APIVersion, "kind": p.Kind, "metadata": applied(p.whole), "spec": spec})
}

// commented returns the YAML of a NodePool with a comment where it has to be completed, if only a part of it is known.
func (p *NodePool) commented(text []byte) []byte {
	if p.whole != nil {
		return text
	}
	comment := func(indent string) string {
		return indent + "# To create the NodePool, add nodeClassRef and requirements here. To change one that exists, apply this part with\n" +
			indent + "# " + applyPart + "\n"
	}
	const spec = "\n    spec:\n" // of spec.template
	if before, after, ok := strings.Cut(string(text), spec); ok {
		return []byte(before + spec + comment("      ") + after)
	}
	return []byte(string(text) + comment("    ") + "    # spec: {nodeClassRef: {group: GROUP, kind: KIND, name: NAME}, requirements: []}\n")
}

// set sets a field, or deletes it if the value is empty.
func set(in map[string]any, field string, value any, length int) {
	if length == 0 {
		delete(in, field)
		return
	}
	in[field] = value
}

// applied returns the metadata of an object that users set.
func applied(whole map[string]any) map[string]any {
	from := object(whole, "metadata")
	out := map[string]any{"name": from["name"]}
	annotations := object(from, "annotations")
	for _, name := range []string{corev1.LastAppliedConfigAnnotation, poolHash, poolHashVersion} {
		delete(annotations, name)
	}
	labels := object(from, "labels")
	set(out, "annotations", annotations, len(annotations))
	set(out, "labels", labels, len(labels))
	return out
}

// Annotations of a NodePool that Karpenter writes.
const (
	poolHash        = "karpenter.sh/nodepool-hash"
	poolHashVersion = "karpenter.sh/nodepool-hash-version"
)

// object returns a shallow copy of a field that is an object; empty if there is none.
func object(of map[string]any, field string) map[string]any {
	out := map[string]any{}
	from, _ := of[field].(map[string]any)
	maps.Copy(out, from)
	return out
}

// nodeOverlay is Karpenter's NodeOverlay, which adds extended resources to instance types.
type nodeOverlay struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       struct {
		Requirements []corev1.NodeSelectorRequirement `json:"requirements"`
		Capacity     corev1.ResourceList              `json:"capacity"`
	} `json:"spec"`
}

// applyPart is the command that applies a part of an object. With the field manager of other applies, the API server would remove the rest.
const applyPart = "kubectl apply --server-side --force-conflicts --field-manager=assay-export"

// karpenter renders NodePools and NodeOverlays.
//
// Karpenter sets the labels and taints of the template on a Node when it registers. The annotations are the record of them: the
// controller removes what the rules do not give to the node in fact.
func (r *Result) karpenter(shapes []assayv1alpha1.NodeShape, opt Options) {
	existing := map[string]*NodePool{}
	for i := range opt.Pools {
		existing[opt.Pools[i].Metadata.Name] = &opt.Pools[i]
	}
	for _, g := range r.groups(shapes, opt, "label "+assayv1alpha1.NodePoolLabel, func(key map[string]string) string { return key[assayv1alpha1.NodePoolLabel] }) {
		old := existing[g.name]
		if old == nil {
			old = &NodePool{}
			if opt.All {
				r.note("NodePool %s is left out: it does not exist any more.", g.name)
				continue
			}
		}
		if pool := r.pool(g, old, opt); pool != nil {
			r.Documents = append(r.Documents, pool)
			if existing[g.name] == nil {
				r.note("NodePool %s was not read: the output is a part of it. Apply it with %s; or pass the NodePool with --from, "+
					"which is necessary if it was created with kubectl apply.", g.name, applyPart)
			}
		}
		for _, s := range g.shapes {
			if len(s.Status.ExtendedResources) > 0 {
				r.Documents = append(r.Documents, overlay(s))
			}
		}
	}
}

// pool returns a NodePool with what it has from others, and what the shapes have; nil if there is nothing to write.
func (r *Result) pool(g *group, old *NodePool, opt Options) *NodePool {
	var record plan.Record
	was := &old.Spec.Template
	labels, taints := maps.Clone(was.Metadata.Labels), []corev1.Taint{}
	if labels == nil {
		labels = map[string]string{}
	}
	if was.Spec != nil {
		taints = append(taints, was.Spec.Taints...)
	}
	for _, name := range record.Parse(was.Metadata.Annotations[record.Labels()]) {
		delete(labels, name)
	}
	for _, t := range plan.ParseTaints(was.Metadata.Annotations[record.Taints()]) {
		taints = slices.DeleteFunc(taints, func(have corev1.Taint) bool { return have.MatchTaint(&t) })
	}
	var names, given []string
	var left []string
	for _, name := range opt.sortedLabels(g.labels) {
		if _, foreign := labels[name]; foreign {
			continue
		}
		if len(labels) == maxPoolLabels {
			left = append(left, name)
			continue
		}
		labels[name] = g.labels[name]
		names = append(names, name)
	}
	if len(left) > 0 {
		r.note("NodePool %s: left out are %s, because a NodePool has at most %d labels. Choose labels with --labels.", g.name, first(left), maxPoolLabels)
	}
	for _, t := range g.taints {
		if !slices.ContainsFunc(taints, func(have corev1.Taint) bool { return have.MatchTaint(&t) }) {
			taints, given = append(taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}), append(given, formatTaint(t))
		}
	}
	out := &NodePool{APIVersion: "karpenter.sh/v1", Kind: "NodePool", Metadata: metadata{Name: g.name}, whole: old.whole}
	to := &out.Spec.Template
	to.Metadata.Labels, to.Metadata.Annotations = labels, map[string]string{}
	maps.Copy(to.Metadata.Annotations, was.Metadata.Annotations)
	delete(to.Metadata.Annotations, nfdv1alpha1.FeatureLabelsAnnotation)
	delete(to.Metadata.Annotations, nfdv1alpha1.TaintsAnnotation)
	if len(taints) > 0 || was.Metadata.Annotations[nfdv1alpha1.TaintsAnnotation] != "" {
		// The API server rejects a server-side apply that leaves out the spec after one that had taints: an empty list removes them.
		to.Spec = &poolSpec{taints}
	}
	if len(names) > 0 {
		to.Metadata.Annotations[nfdv1alpha1.FeatureLabelsAnnotation] = record.Format(names)
	}
	if len(given) > 0 {
		to.Metadata.Annotations[nfdv1alpha1.TaintsAnnotation] = strings.Join(given, ",")
	}
	if len(names) == 0 && len(given) == 0 && !exported(was.Metadata.Annotations) {
		return nil
	}
	return out
}

// exported reports whether an earlier export has written to a NodePool, which has to be replaced.
func exported(annotations map[string]string) bool {
	return annotations[nfdv1alpha1.FeatureLabelsAnnotation] != "" || annotations[nfdv1alpha1.TaintsAnnotation] != ""
}

// overlay returns the extended resources of a shape.
func overlay(s *assayv1alpha1.NodeShape) *nodeOverlay {
	out := &nodeOverlay{APIVersion: "karpenter.sh/v1alpha1", Kind: "NodeOverlay", Metadata: metadata{Name: s.Name}}
	for _, name := range slices.Sorted(maps.Keys(s.Status.Key)) {
		out.Spec.Requirements = append(out.Spec.Requirements, corev1.NodeSelectorRequirement{
			Key: name, Operator: corev1.NodeSelectorOpIn, Values: []string{s.Status.Key[name]},
		})
	}
	out.Spec.Capacity = s.Status.ExtendedResources
	return out
}

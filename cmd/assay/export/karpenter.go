package export

import (
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

// NodePool is the part of Karpenter's NodePool that is exported.
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
		if pool := r.pool(g, old); pool != nil {
			r.Documents = append(r.Documents, pool)
		}
		for _, s := range g.shapes {
			if len(s.Status.ExtendedResources) > 0 {
				r.Documents = append(r.Documents, overlay(s))
			}
		}
	}
}

// pool returns the template of a NodePool: what the pool has from others, and what the shapes have; nil if there is nothing to write.
func (r *Result) pool(g *group, old *NodePool) *NodePool {
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
	left := 0
	for _, name := range sortedLabels(g.labels) {
		if _, foreign := labels[name]; foreign {
			continue
		}
		if len(labels) == maxPoolLabels {
			left++
			continue
		}
		labels[name] = g.labels[name]
		names = append(names, name)
	}
	if left > 0 {
		r.note("NodePool %s: %d labels are left out, because a NodePool has at most %d; choose labels with --labels.", g.name, left, maxPoolLabels)
	}
	for _, t := range g.taints {
		if !slices.ContainsFunc(taints, func(have corev1.Taint) bool { return have.MatchTaint(&t) }) {
			taints, given = append(taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}), append(given, formatTaint(t))
		}
	}
	out := &NodePool{APIVersion: "karpenter.sh/v1", Kind: "NodePool", Metadata: metadata{Name: g.name}}
	to := &out.Spec.Template
	to.Metadata.Labels, to.Metadata.Annotations = labels, map[string]string{}
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

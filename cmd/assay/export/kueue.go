package export

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
)

const (
	kueueVersion = "kueue.x-k8s.io/v1beta2"
	// maxFlavorLabels and maxFlavorTaints are the maximum numbers of labels and taints of a ResourceFlavor; its
	// CustomResourceDefinition sets them.
	maxFlavorLabels, maxFlavorTaints = 8, 8
	// usualTopologyName is the name of the Topology that is exported.
	usualTopologyName = "assay"
)

// resourceFlavor is Kueue's ResourceFlavor: a kind of nodes for which a ClusterQueue has a quota.
type resourceFlavor struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Metadata   metadata   `json:"metadata"`
	Spec       flavorSpec `json:"spec"`
}

type flavorSpec struct {
	NodeLabels   map[string]string `json:"nodeLabels"`
	NodeTaints   []corev1.Taint    `json:"nodeTaints,omitempty"`
	TopologyName string            `json:"topologyName,omitempty"`
}

// topology is Kueue's Topology: labels of nodes from the highest to the lowest level.
type topology struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       struct {
		Levels []topologyLevel `json:"levels"`
	} `json:"spec"`
}

type topologyLevel struct {
	NodeLabel string `json:"nodeLabel"`
}

// kueue renders one ResourceFlavor for each shape, and a Topology if the options have levels.
//
// Kueue adds all labels of a flavor to pods as a node selector. Without a selection, only labels of requests are exported, which pods refer to.
func (r *Result) kueue(shapes []assayv1alpha1.NodeShape, opt Options) {
	if len(opt.Labels) == 0 {
		opt.Labels = []string{assayv1alpha1.RequestLabelNamespace + "/*"}
	}
	opt.TopologyName = cmp.Or(opt.TopologyName, usualTopologyName)
	if len(opt.Topology) > 0 && len(shapes) > 0 {
		r.Documents = append(r.Documents, r.topology(shapes, opt))
	}
	sorted := slices.Clone(shapes)
	slices.SortFunc(sorted, func(a, b assayv1alpha1.NodeShape) int { return strings.Compare(a.Name, b.Name) })
	var flavors []*resourceFlavor
	for i := range sorted {
		flavors = append(flavors, r.flavor(&sorted[i], opt))
		r.Documents = append(r.Documents, flavors[i])
	}
	if opt.InTopology != nil {
		r.outside(flavors, opt)
	}
	r.Incomplete = incomplete(opt.Fleet, flavors, opt.Topology)
}

// flavor returns the ResourceFlavor of a shape: the labels of its key, by which its nodes are known, and the selected labels.
func (r *Result) flavor(s *assayv1alpha1.NodeShape, opt Options) *resourceFlavor {
	out := &resourceFlavor{APIVersion: kueueVersion, Kind: "ResourceFlavor", Metadata: metadata{Name: s.Name}}
	out.Spec.NodeLabels = map[string]string{}
	var left []string
	add := func(name, value string) {
		if len(out.Spec.NodeLabels) == maxFlavorLabels {
			left = append(left, name)
			return
		}
		out.Spec.NodeLabels[name] = value
	}
	for _, name := range slices.Sorted(maps.Keys(s.Status.Key)) {
		add(name, s.Status.Key[name])
	}
	for _, name := range opt.sortedLabels(s.Status.Labels) {
		if opt.exports(name) {
			add(name, s.Status.Labels[name])
		}
	}
	if len(left) > 0 {
		r.note("ResourceFlavor %s: left out are %s, because a ResourceFlavor has at most %d labels. Choose labels with --labels.",
			s.Name, first(left), maxFlavorLabels)
	}
	for i, t := range s.Status.Taints {
		if i == maxFlavorTaints {
			r.note("ResourceFlavor %s: %d taints are left out, because a ResourceFlavor has at most %d.", s.Name, len(s.Status.Taints)-i, maxFlavorTaints)
			break
		}
		out.Spec.NodeTaints = append(out.Spec.NodeTaints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	if len(opt.Topology) > 0 {
		out.Spec.TopologyName = opt.TopologyName
	}
	return out
}

// topology returns the Topology of the levels of the options, with the node as the lowest one.
func (r *Result) topology(shapes []assayv1alpha1.NodeShape, opt Options) *topology {
	out := &topology{APIVersion: kueueVersion, Kind: "Topology", Metadata: metadata{Name: opt.TopologyName}}
	for _, level := range opt.Topology {
		if level == corev1.LabelHostname {
			continue
		}
		out.Spec.Levels = append(out.Spec.Levels, topologyLevel{level})
		for i := range shapes {
			if s := &shapes[i]; len(opt.Fleet) == 0 && !knows(s, level) { // otherwise the nodes themselves are read
				r.note("NodeShape %s: its nodes have no label %s from a rule. Kueue places pods by topology only on nodes with all levels.", s.Name, level)
			}
		}
	}
	out.Spec.Levels = append(out.Spec.Levels, topologyLevel{corev1.LabelHostname})
	return out
}

// knows reports whether nodes of a shape have a label, with the same or with different values, or whether clouds set it.
func knows(s *assayv1alpha1.NodeShape, label string) bool {
	_, inKey := s.Status.Key[label]
	_, inLabels := s.Status.Labels[label]
	return inKey || inLabels || label == corev1.LabelTopologyZone || label == corev1.LabelTopologyRegion ||
		slices.ContainsFunc(s.Status.Differences, func(d assayv1alpha1.ShapeDifference) bool { return d.Output == "label" && d.Name == label })
}

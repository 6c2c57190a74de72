package export

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
)

// The forms in which the template of a node group is printed for Cluster Autoscaler.
const (
	// Tags are the tags of an Auto Scaling group of AWS, or of a scale set of Azure for node groups of AKS.
	Tags = "tags"
	// AzureTags are the tags of scale sets of Azure for all node groups.
	AzureTags = "azure-tags"
	// Nodes is a list of Nodes, for the providers kwok and externalgrpc.
	Nodes = "nodes"
)

// Forms are the forms of the output for Cluster Autoscaler.
var Forms = []string{Tags, AzureTags, Nodes}

// Labels that tell the provider of a node group.
const (
	azureGroupLabel  = "kubernetes.azure.com/agentpool"
	googleGroupLabel = "cloud.google.com/gke-nodepool"
)

// maxTags is the maximum number of tags of a node group in an export. AWS and Azure limit a resource to 50; ten are left for those that
// others set, such as the tags by which the autoscaler discovers the group.
const maxTags = 40

// provider says how a provider of Cluster Autoscaler reads tags.
type provider struct {
	name string
	// prefix precedes the kind and the name of what a tag declares.
	prefix, separator string
	// maxName is the maximum length of the name of a tag. The maximum length of a value, 256, is longer than any value here.
	maxName int
	// encode returns the name of a label, taint or resource in the form that the provider decodes; false if there is none.
	encode func(kind tagKind, name string) (string, bool)
}

// tagKind is the kind of what a tag declares, as it is written in the tag.
type tagKind string

const (
	labelTag    tagKind = "label"
	taintTag    tagKind = "taint"
	resourceTag tagKind = "resources"
)

// aws is https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-tagging.html.
var aws = provider{
	name: "AWS", prefix: "k8s.io/cluster-autoscaler/node-template/", separator: "/", maxName: 128,
	encode: func(_ tagKind, name string) (string, bool) { return name, true },
}

// azure is https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources. The autoscaler decodes "_" as "/", and then
// "~2" as "_" in labels and taints, but as "/" in resources (cluster-autoscaler/cloudprovider/azure/azure_template.go).
var azure = provider{
	name: "Azure", prefix: "k8s.io_cluster-autoscaler_node-template_", separator: "_", maxName: 512,
	encode: func(kind tagKind, name string) (string, bool) {
		if kind == resourceTag && strings.Contains(name, "_") {
			return "", false
		}
		return strings.NewReplacer("_", "~2", "/", "_").Replace(name), true
	},
}

// nodeGroup is a node group with the tags from which Cluster Autoscaler makes the template of a node.
type nodeGroup struct {
	NodeGroup string            `json:"nodeGroup"`
	Tags      map[string]string `json:"tags"`
}

// clusterAutoscaler renders the templates of node groups in the form of the options.
func (r *Result) clusterAutoscaler(shapes []assayv1alpha1.NodeShape, opt Options) {
	groups := r.groups(shapes, opt, "label of a node group", func(key map[string]string) string {
		_, value := nodeGroupOf(key)
		return value
	})
	if opt.Form == Nodes {
		r.nodes(groups, opt)
	} else {
		r.tags(groups, opt)
	}
	if len(r.Documents) > 0 {
		r.noteClusterAutoscaler()
	}
}

// tags renders the tags of node groups.
func (r *Result) tags(groups []*group, opt Options) {
	for _, g := range groups {
		by := &aws
		label, _ := nodeGroupOf(g.shapes[0].Status.Key)
		switch {
		case opt.Form == AzureTags, label == azureGroupLabel:
			by = &azure
		case label == googleGroupLabel:
			r.note("Node group %s is left out: Cluster Autoscaler reads no tags on Google Cloud. Set the labels and taints of the node pool.", g.name)
			continue
		}
		if out := r.nodeGroup(g, by, opt); len(out.Tags) > 0 {
			r.Documents = append(r.Documents, out)
		}
	}
}

// nodeGroup returns the tags of one group: labels that pods refer to first, then taints and resources, without which the autoscaler would
// add nodes on which a pod cannot run.
func (r *Result) nodeGroup(g *group, by *provider, opt Options) *nodeGroup {
	out := &nodeGroup{NodeGroup: g.name, Tags: map[string]string{}}
	folded := map[string]bool{} // names of tags on Azure are not case-sensitive
	var left []string
	add := func(kind tagKind, name, value string) {
		encoded, ok := by.encode(kind, name)
		tag := by.prefix + string(kind) + by.separator + encoded
		if lower := strings.ToLower(tag); !ok || len(tag) > by.maxName || len(out.Tags) == maxTags || by == &azure && folded[lower] {
			left = append(left, name)
			return
		}
		folded[strings.ToLower(tag)] = true
		out.Tags[tag] = value
	}
	labels := opt.sortedLabels(g.labels)
	selected := labels[:len(labels)-len(slices.DeleteFunc(slices.Clone(labels), opt.first))]
	for _, name := range selected {
		add(labelTag, name, g.labels[name])
	}
	for _, t := range r.oneEffect(g) {
		add(taintTag, t.Key, t.Value+":"+string(t.Effect))
	}
	resources := g.resources()
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		amount := resources[name]
		add(resourceTag, string(name), amount.String())
	}
	for _, name := range labels[len(selected):] {
		add(labelTag, name, g.labels[name])
	}
	if len(left) > 0 {
		r.note("Node group %s: left out are %s: the export has at most %d tags of at most %d characters for %s. Choose labels with --labels.",
			g.name, first(left), maxTags, by.maxName, by.name)
	}
	return out
}

// oneEffect returns the taints of a group with one effect for each key, the strongest one: the name of a tag is the key.
func (r *Result) oneEffect(g *group) []corev1.Taint {
	strength := []corev1.TaintEffect{corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}
	taints := slices.Clone(g.taints)
	slices.SortFunc(taints, func(a, b corev1.Taint) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), cmp.Compare(slices.Index(strength, b.Effect), slices.Index(strength, a.Effect)))
	})
	var out []corev1.Taint
	for _, t := range taints {
		if last := len(out) - 1; last >= 0 && out[last].Key == t.Key {
			r.note("Node group %s: the taint %s is left out, because a tag holds only one taint of a key, which is %s. "+
				"A pod that tolerates only this one gets nodes on which it does not run.", g.name, formatTaint(t), formatTaint(out[last]))
			continue
		}
		out = append(out, t)
	}
	return out
}

// nodeGroupOf returns the first label of a key that names a node group, and its value; empty strings if there is none.
func nodeGroupOf(key map[string]string) (label, value string) {
	for _, name := range slices.Sorted(maps.Keys(key)) {
		switch name {
		case corev1.LabelArchStable, corev1.LabelOSStable, corev1.LabelInstanceTypeStable, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
			assayv1alpha1.NodePoolLabel:
		default:
			return name, key[name]
		}
	}
	return "", ""
}

// noteClusterAutoscaler says what else has to be done: the template promises labels that a new node does not have at once, and the
// autoscaler does not read a template again.
func (r *Result) noteClusterAutoscaler() {
	r.note("Cluster Autoscaler adds node after node while a Ready node lacks these labels. Let nodes join with a taint whose key begins with "+
		"%s/, or that the autoscaler is given as --startup-taint, and set controller.startupTaint to its key.", assayv1alpha1.StartupTaintNamespace)
	r.note("Cluster Autoscaler remembers the last node of a group that had nodes until it restarts, or for --node-info-cache-expire-time: " +
		"restart it after a change.")
}

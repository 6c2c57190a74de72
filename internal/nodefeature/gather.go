package nodefeature

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// Gather builds the inputs of rules for a node from the objects that describe it. It is immutable and safe for concurrent use; the
// zero value is for an installation with default settings.
type Gather struct {
	// Namespace is Assay's own: NodeFeatures in other namespaces have precedence over those in it.
	Namespace string
	// Keys adds the default namespace to labels without one.
	Keys keys.Policy
	// IgnoreLabels ignores spec.labels of all objects except the worker's own.
	IgnoreLabels bool
	// Record distinguishes Assay's own labels and annotations from others.
	Record plan.Record
}

// Own reports whether a NodeFeature is the worker's.
func (g Gather) Own(f *NodeFeature) bool {
	return f.Namespace == g.Namespace && f.Name == f.NodeName()
}

// Counts reports whether a NodeFeature that names the Node describes it. The worker's own object does not if its owner is a deleted
// Node of the same name: the pod that wrote it, or its token, has outlived that Node.
func (g Gather) Counts(f metav1.Object, node *corev1.Node) bool {
	if f.GetNamespace() != g.Namespace || f.GetName() != node.Name {
		return true
	}
	return !slices.ContainsFunc(f.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		return ref.APIVersion == "v1" && ref.Kind == "Node" && ref.UID != node.UID
	})
}

// Sort sorts NodeFeatures of one node in merge order: the last one has precedence.
func (g Gather) Sort(list []*NodeFeature) {
	order := rules.Gather{Namespace: g.Namespace}
	slices.SortFunc(list, func(a, b *NodeFeature) int { return order.Compare(a.Namespace, a.Name, b.Namespace, b.Name) })
}

// Input returns the inputs of rules for a node with these NodeFeatures, including the metadata of the Node. The caller excludes
// NodeFeatures that could not be read or are being deleted.
func (g Gather) Input(node *corev1.Node, features []*NodeFeature) rules.Input {
	list := make([]rules.Published, 0, len(features))
	for _, f := range features {
		if !g.Counts(f, node) {
			continue
		}
		published := rules.Published{Namespace: f.Namespace, Name: f.Name, Facts: f.Spec.Features.Facts, Labels: f.Spec.Labels}
		if g.IgnoreLabels && !g.Own(f) {
			published.Labels = nil
		}
		list = append(list, published)
	}
	all := rules.Gather{Namespace: g.Namespace, Keys: &g.Keys, Interner: interner}
	in := all.Input(g.Node(node), facts.FromNode(node, interner), list)
	in.Labels = labelSets.share(in.Labels)
	return in
}

// Node returns the inputs of rules from the metadata of a Node, except for what Assay itself wrote.
func (g Gather) Node(node *corev1.Node) rules.Node {
	return rules.Node{
		Name:        node.Name,
		Labels:      g.foreign(node.Labels, node.Annotations[g.Record.Labels()]),
		Annotations: g.foreign(node.Annotations, node.Annotations[g.Record.Annotations()]),
	}
}

// foreign removes keys that Assay itself has written, and its record of them: a rule that selects nodes by the outputs of rules
// would be circular.
func (g Gather) foreign(all map[string]string, owned string) map[string]string {
	own := make(map[string]bool, len(all))
	for _, k := range g.Record.Parse(owned) {
		own[k] = true
	}
	out := map[string]string{} // most keys of a Node are Assay's own
	for k, v := range all {
		namespace, _ := keys.Split(k)
		ours := own[k] || namespace == nfdv1alpha1.BookkeepingNamespace || k == assayv1alpha1.FailedAnnotation ||
			k == assayv1alpha1.FeaturesGenerationAnnotation || k == g.Record.Conditions() ||
			strings.HasSuffix(namespace, "."+nfdv1alpha1.BookkeepingNamespace)
		if !ours {
			out[k] = v
		}
	}
	return out
}

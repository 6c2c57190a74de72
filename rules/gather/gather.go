// Package gather makes the input of rules for a node from the objects that describe it.
//
// It decides which NodeFeatures count for a node, in which order they are merged, and what rules may read of the Node. Everything that
// evaluates rules on a node does it with this package: the controller, the webhook, the extender, the command line and the tests of
// users. So they evaluate the same input.
package gather

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// Policy holds the settings that the input of rules depends on. The zero value has the defaults. It is immutable and safe for
// concurrent use.
type Policy struct {
	// Namespace is Assay's own, in which the workers publish. NodeFeatures in it always count, and those in other namespaces have
	// precedence over them.
	Namespace string
	// Namespaces selects other namespaces whose NodeFeatures count, by their labels; nil: all of them.
	Namespaces labels.Selector
	// IgnoreLabels ignores spec.labels of all objects except the workers' own.
	IgnoreLabels bool
	// Drivers are the names of the DRA drivers whose devices count; none: all of them.
	Drivers []string
	// Keys adds the default namespace to labels without one.
	Keys keys.Policy
	// Record distinguishes Assay's own labels and annotations of a Node from others.
	Record plan.Record
}

// Published is the content of one NodeFeature. Features without an object have no name.
type Published struct {
	Namespace, Name string
	Node            string      // the name of the node that it describes; may be empty without an object
	Owners          []types.UID // of the Nodes that own it
	Created         metav1.Time // when it was created; zero: unknown
	Changed         metav1.Time // when its content changed last, by managedFields, which caches drop; zero: unknown
	Bytes           int         // the size of its features as JSON; of a stored object, this is part of a limit
	Deleted         bool        // it is being deleted
	Err             error       // why its features cannot be used; nil: they can
	Facts           *facts.Facts
	// Labels are the labels that the NodeFeature requests directly.
	Labels map[string]string
	// FeatureSets are the names of feature sets whose features are not among the facts yet.
	FeatureSets []string
}

// Describe returns the Published of a NodeFeature without its content.
func Describe(object metav1.Object) Published {
	p := Published{
		Namespace: object.GetNamespace(), Name: object.GetName(), Node: object.GetLabels()[nfdv1alpha1.NodeNameLabel],
		Deleted: object.GetDeletionTimestamp() != nil, Created: object.GetCreationTimestamp(),
	}
	for _, entry := range object.GetManagedFields() {
		if entry.Time != nil && p.Changed.Before(entry.Time) {
			p.Changed = *entry.Time
		}
	}
	for _, ref := range object.GetOwnerReferences() {
		if ref.APIVersion == "v1" && ref.Kind == "Node" {
			p.Owners = append(p.Owners, ref.UID)
		}
	}
	return p
}

// Published implements Object.
func (p Published) Published() Published { return p }

// Object is a NodeFeature in any form.
type Object interface{ Published() Published }

// Node is the node that rules are evaluated for.
type Node struct {
	// Object is the stored Node; nil: only the fields below are known, and rules cannot read kubernetes.* features.
	Object *corev1.Node
	Name   string
	Labels map[string]string
	// Devices are the features that come from the ResourceSlices of the node; nil: they are unknown.
	Devices *facts.Facts
}

// Stored returns the Node for an object.
func Stored(object *corev1.Node) Node { return Node{Object: object, Name: object.Name} }

// Namespaces returns the labels of a namespace, and whether it exists.
type Namespaces func(name string) (of map[string]string, exists bool, err error)

// Own reports whether a NodeFeature is the worker's of its node. Features without an object are too. An object in a file without a
// namespace is in Assay's own.
func (p Policy) Own(f Published) bool {
	return f.Name == "" || (f.Namespace == p.Namespace || f.Namespace == "") && f.Name == f.Node
}

// Outlived reports whether a NodeFeature is the worker's own and its owner is a deleted Node of the same name: the pod that wrote it, or
// its token, has outlived that Node.
func (p Policy) Outlived(f Published, node Node) bool {
	return p.Own(f) && node.Object != nil && node.Object.UID != "" &&
		slices.ContainsFunc(f.Owners, func(owner types.UID) bool { return owner != node.Object.UID })
}

// Ignores returns why a NodeFeature that names the node does not count for it; empty: it counts. It does not if it is being deleted, if it
// has Outlived its Node, or if its namespace is not selected.
func (p Policy) Ignores(f Published, node Node, namespaces Namespaces) (why string, err error) {
	switch {
	case f.Deleted:
		return "it is being deleted", nil
	case p.Outlived(f, node):
		return "its owner is a deleted Node of the same name", nil
	case p.Namespaces == nil, f.Namespace == p.Namespace, f.Name == "":
		return "", nil
	}
	of, exists, err := namespaces(f.Namespace)
	switch {
	case err != nil:
		return "", err
	case !exists:
		return "restrictions.nodeFeatureNamespaceSelector selects by the labels of namespace " + f.Namespace + ", which is unknown", nil
	case !p.Namespaces.Matches(labels.Set(of)):
		return "restrictions.nodeFeatureNamespaceSelector does not select namespace " + f.Namespace, nil
	}
	return "", nil
}

// Selection are the NodeFeatures that count for a node. Only Select makes one, so that no input of rules has others.
type Selection[T Object] struct {
	policy    Policy
	use, left []T
}

// Select returns the NodeFeatures that count for a node among all that name it, in any order. Without Policy.Namespaces, namespaces can be
// nil and there is no error.
func Select[T Object](p Policy, node Node, namespaces Namespaces, all []T) (Selection[T], error) {
	s := Selection[T]{policy: p}
	for _, f := range all {
		published := f.Published()
		why, err := p.Ignores(published, node, namespaces)
		switch {
		case err != nil:
			return Selection[T]{}, err
		case why != "":
		case published.Err != nil:
			s.left = append(s.left, f)
		default:
			s.use = append(s.use, f)
		}
	}
	s.sort()
	return s, nil
}

// All returns the NodeFeatures that count, in merge order.
func (s Selection[T]) All() []T { return s.use }

// Left returns the NodeFeatures that would count if they could be used: see Published.Err.
func (s Selection[T]) Left() []T { return s.left }

// With returns the selection with what the worker of the node published last, which counts for a while after it was deleted.
func (s Selection[T]) With(deleted T) Selection[T] {
	s.use = append(slices.Clone(s.use), deleted)
	s.sort()
	return s
}

// Reread returns the selection with what read returns for each NodeFeature that counts.
func Reread[T, U Object](s Selection[T], read func(T) (U, error)) (Selection[U], error) {
	out := Selection[U]{policy: s.policy}
	for _, f := range s.use {
		now, err := read(f)
		if err != nil {
			return Selection[U]{}, err
		}
		out.use = append(out.use, now)
	}
	return out, nil
}

// sort sorts in merge order, in which the last one wins: Assay's own namespace first, then by name, of which those without an object have
// none, then by namespace, as in NFD.
func (s Selection[T]) sort() {
	slices.SortStableFunc(s.use, func(a, b T) int { return s.policy.compare(a.Published(), b.Published()) })
}

func (p Policy) compare(a, b Published) int {
	if own := a.Namespace == p.Namespace; own != (b.Namespace == p.Namespace) {
		if own {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
}

// CountsDriver reports whether the devices of a DRA driver count.
func (p Policy) CountsDriver(name string) bool {
	return len(p.Drivers) == 0 || slices.Contains(p.Drivers, name)
}

// Input returns the input of rules for a node. It is the only function that makes one from stored objects. The features of the stored Node
// win over published ones of the same name, and rules with featureSources do not read them. Published features of devices are ignored in a
// cluster, so that no publisher can invent devices; without a cluster, a file of features can have them. What the worker says about its
// own publication counts from its object alone, so that no other publisher can freeze a node. The interner shares facts between nodes; nil
// shares none.
func (s Selection[T]) Input(node Node, interner *facts.Interner) rules.Input {
	p := s.policy
	in, inCluster := rules.Input{Node: p.node(node)}, node.Object != nil || node.Devices != nil
	all, worker := make([]*facts.Facts, 0, len(s.use)+1), []*facts.Facts(nil)
	for _, object := range s.use {
		f := object.Published()
		own := p.Own(f)
		f.Facts = f.Facts.Without(interner, func(feature string) bool {
			return inCluster && facts.IsDevices(feature) || !own && nfdv1alpha1.DescribesPublication(feature)
		})
		if all = append(all, f.Facts); own {
			worker = append(worker, f.Facts)
		}
		in.Publishers = append(in.Publishers, rules.Publisher{Name: f.Namespace + "/" + f.Name, Facts: f.Facts})
		if p.IgnoreLabels && !own {
			continue
		}
		for key, value := range p.Keys.QualifyAll(f.Labels) {
			if in.Labels == nil {
				in.Labels = make(map[string]string, len(f.Labels))
			}
			in.Labels[key] = value
		}
	}
	if node.Object != nil {
		// A rule that reads an extended resource that rules write would be circular.
		own := p.Record.Parse(node.Object.Annotations[p.Record.Resources()])
		all = append(all, facts.FromNode(node.Object, own, interner))
	}
	if node.Devices != nil {
		all = append(all, node.Devices)
	}
	if in.Facts = facts.Merge(interner, all...); len(worker) > 0 {
		in.Worker = facts.Merge(interner, worker...)
	}
	return in
}

// node returns what rules read of the metadata of a Node: all except for what Assay itself wrote.
func (p Policy) node(n Node) rules.Node {
	if n.Object == nil {
		return rules.Node{Name: n.Name, Labels: n.Labels}
	}
	return rules.Node{
		Name:        n.Name,
		Labels:      p.foreign(n.Object.Labels, n.Object.Annotations[p.Record.Labels()]),
		Annotations: p.foreign(n.Object.Annotations, n.Object.Annotations[p.Record.Annotations()]),
	}
}

// foreign removes keys that Assay itself has written, and its record of them: a rule that selects nodes by the outputs of rules
// would be circular.
func (p Policy) foreign(all map[string]string, owned string) map[string]string {
	own := make(map[string]bool, len(all))
	for _, k := range p.Record.Parse(owned) {
		own[k] = true
	}
	out := map[string]string{} // most keys of a Node are Assay's own
	for k, v := range all {
		namespace, _ := keys.Split(k)
		ours := own[k] || namespace == nfdv1alpha1.BookkeepingNamespace || k == assayv1alpha1.FailedAnnotation ||
			k == assayv1alpha1.FeaturesGenerationAnnotation || k == p.Record.Conditions() ||
			strings.HasSuffix(namespace, "."+nfdv1alpha1.BookkeepingNamespace)
		if !ours {
			out[k] = v
		}
	}
	return out
}

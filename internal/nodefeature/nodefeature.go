// Package nodefeature caches NodeFeatures with their features decoded into shared facts.
//
// A NodeFeature of a large server is 130 kB of JSON and 400 kB of Go maps, and most of it is the same on every server of
// its kind. NodeFeature in this package reads the same JSON and holds one pointer to facts that equal nodes share. Registered
// with a scheme in place of the API type, it is what informers decode into.
package nodefeature

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
)

// interner is shared by everything in the process that decodes NodeFeatures: decoding has no other way to be handed one.
var interner = facts.NewInterner()

// Interner returns the interner that decoded features are shared through.
func Interner() *facts.Interner { return interner }

// NodeFeature is a NodeFeature with its features as facts.
type NodeFeature struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              Spec `json:"spec"`
}

// Spec is the spec of a NodeFeature.
type Spec struct {
	Features    Features          `json:"features"`
	Labels      map[string]string `json:"labels,omitempty"`
	FeatureSets []string          `json:"featureSets,omitempty"` // names; see internal/fleet/featuresets
}

// Features are the facts of one NodeFeature. The facts are immutable and shared.
type Features struct {
	*facts.Facts
	// Err is why the features could not be read, or do not count. An informer must not fail on one bad object, so it is kept here.
	Err error
	// Bytes is the length of the JSON that they were decoded from.
	Bytes int
}

// UnmarshalJSON decodes features into shared facts. It never fails; see Err.
func (f *Features) UnmarshalJSON(raw []byte) error {
	f.Facts, f.Err = facts.Decode(raw, interner)
	f.Bytes = len(raw)
	return nil
}

// MarshalJSON writes the features as the API has them.
func (f Features) MarshalJSON() ([]byte, error) {
	if f.Facts == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(f.Facts.Features())
}

// NodeName is the Node that the features describe, or empty if the object does not say.
func (f *NodeFeature) NodeName() string { return f.Labels[nfdv1alpha1.NodeNameLabel] }

// ByNode is the name of the index of NodeFeatures by the Node they describe. Without it each look-up would read all of them.
const ByNode = "assay.dev/node"

// IndexByNode returns the index keys of a NodeFeature: the Node that it describes, if it says.
func IndexByNode(f *NodeFeature) []string {
	if name := f.NodeName(); name != "" {
		return []string{name}
	}
	return nil
}

// Publisher is namespace/name, which spec.featureSources of a rule is matched against.
func (f *NodeFeature) Publisher() string { return f.Namespace + "/" + f.Name }

// DeepCopyObject implements runtime.Object. The facts are immutable and stay shared.
func (f *NodeFeature) DeepCopyObject() runtime.Object {
	out := &NodeFeature{TypeMeta: f.TypeMeta, Spec: f.Spec}
	f.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Labels = copyMap(f.Spec.Labels)
	return out
}

// NodeFeatureList is a list of NodeFeatures.
type NodeFeatureList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeFeature `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *NodeFeatureList) DeepCopyObject() runtime.Object {
	out := &NodeFeatureList{TypeMeta: l.TypeMeta, Items: make([]NodeFeature, len(l.Items))}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*NodeFeature)
	}
	return out
}

// AddToScheme registers NodeFeature in its cached form, and the other kinds of the group as they are in the API.
func AddToScheme(s *runtime.Scheme) error {
	gv := nfdv1alpha1.GroupVersion
	s.AddKnownTypeWithName(gv.WithKind("NodeFeature"), &NodeFeature{})
	s.AddKnownTypeWithName(gv.WithKind("NodeFeatureList"), &NodeFeatureList{})
	s.AddKnownTypes(gv,
		&nfdv1alpha1.NodeFeatureRule{}, &nfdv1alpha1.NodeFeatureRuleList{},
		&nfdv1alpha1.NodeFeatureGroup{}, &nfdv1alpha1.NodeFeatureGroupList{},
	)
	metav1.AddToGroupVersion(s, gv)
	return nil
}

// Slim drops what nobody reads from an object on its way into a cache, and shares what other objects have too.
func Slim(obj any) (any, error) {
	if f, ok := obj.(*NodeFeature); ok {
		f.ManagedFields = nil
		f.Spec.Labels = labelSets.share(f.Spec.Labels)
	}
	return obj, nil
}

func copyMap(m map[string]string) map[string]string {
	if m == nil {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

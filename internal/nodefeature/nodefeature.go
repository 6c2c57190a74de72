// Package nodefeature caches NodeFeatures with their features decoded to shared facts.
//
// A NodeFeature of a large server is about 130 kB of JSON or 400 kB of Go maps, and most of it is the same on all servers of a kind. The
// NodeFeature type of this package decodes the same JSON to one pointer to facts that equal nodes share. Informers decode to it if
// it is registered with a scheme in place of the API type.
package nodefeature

import (
	"encoding/json"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/gather"
	"github.com/assay-project/assay/rules/poison"
)

// interner is shared by all decoding in the process, since a decoder cannot take it as a parameter.
var interner = facts.NewInterner()

// Interner returns the interner that deduplicates decoded features.
func Interner() *facts.Interner { return interner }

// NodeFeature is a NodeFeature with its features as facts.
type NodeFeature struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              Spec `json:"spec"`

	// Named is set if Slim dropped the label with the name of the Node, because the object has the same name.
	Named bool `json:"-"`
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
	// Err is why the features could not be read, or do not count. It is stored here because an informer must not fail on one
	// invalid object.
	Err error
	// Bytes is the length of the JSON from which they were decoded.
	Bytes int
}

// UnmarshalJSON decodes a spec. Its features and encoded instances become shared facts; if they are invalid, it sets Features.Err and
// returns no error. It scans the text once more, and not twice as encoding/json does: decoding is most of the time that a controller with
// thousands of nodes takes to start.
func (s *Spec) UnmarshalJSON(raw []byte) error { return poison.Text(string(raw), s.decode) }

// decode is UnmarshalJSON for an immutable text. The result keeps no part of it.
func (s *Spec) decode(text string) error {
	*s = Spec{}
	features, encoded := "", ""
	err := facts.Members(text, func(name, value string) (err error) {
		switch name {
		case "features":
			features = value
		case "labels":
			err = json.Unmarshal([]byte(value), &s.Labels)
		case "featureSets":
			err = json.Unmarshal([]byte(value), &s.FeatureSets)
		case "encodedInstances":
			encoded, err = facts.String(value)
		}
		return err
	})
	if features == "" && encoded != "" {
		features = "{}"
	}
	if err == nil && features != "" {
		s.Features.Facts, s.Features.Err = facts.DecodeWith(features, encoded, interner)
		s.Features.Bytes = len(features) + len(encoded)
	}
	return err
}

// MarshalJSON writes the features in the form of the API.
func (f Features) MarshalJSON() ([]byte, error) {
	if f.Facts == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(f.Facts.Features())
}

// NodeName returns the name of the Node that the features describe, or an empty string if the object has no such label.
func (f *NodeFeature) NodeName() string {
	if f.Named {
		return f.Name
	}
	return f.Labels[nfdv1alpha1.NodeNameLabel]
}

// Published implements gather.Object.
func (f *NodeFeature) Published() gather.Published {
	p := gather.Describe(f)
	p.Node, p.Labels, p.FeatureSets = f.NodeName(), f.Spec.Labels, f.Spec.FeatureSets
	p.Facts, p.Err, p.Bytes = f.Spec.Features.Facts, f.Spec.Features.Err, f.Spec.Features.Bytes
	return p
}

// ownOf reports whether f is the object of a worker in Assay's own namespace.
func (f *NodeFeature) ownOf(namespace string) bool {
	return gather.Policy{Namespace: namespace}.Own(f.Published())
}

// Publisher returns namespace/name, which spec.featureSources of a rule is matched against.
func (f *NodeFeature) Publisher() string { return f.Namespace + "/" + f.Name }

// DeepCopyObject implements runtime.Object. The copy shares the facts, which are immutable.
func (f *NodeFeature) DeepCopyObject() runtime.Object {
	out := &NodeFeature{TypeMeta: f.TypeMeta, Spec: f.Spec, Named: f.Named}
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

// AddToScheme registers NodeFeature in its cached form, and the other kinds of the group as API types.
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

// Slim removes unused fields of an object before it is cached, and shares content that equals that of other objects. Use NodeName to
// read the label with the name of the Node, which it drops from workers' objects.
func Slim(obj any) (any, error) {
	if f, ok := obj.(*NodeFeature); ok {
		f.slim()
		f.Spec.Labels = labelSets.share(f.Spec.Labels)
	}
	return obj, nil
}

// slim removes metadata that is not read.
func (f *NodeFeature) slim() {
	f.ManagedFields = nil
	rejected := Rejected(f)
	annotations := only(f.Annotations,
		nfdv1alpha1.WorkerVersionAnnotation, assayv1alpha1.FeatureSetsAnnotation, assayv1alpha1.MissingFeatureSetsAnnotation)
	if f.Named = f.NodeName() == f.Name; f.Named {
		f.Labels = nil // 0.3 kB of each node
		if rejected != "" {
			annotations = set(annotations, assayv1alpha1.InvalidConfigurationAnnotation, rejected)
		}
	} else {
		f.Labels = only(f.Labels, nfdv1alpha1.NodeNameLabel)
	}
	f.Annotations = labelSets.share(annotations)
}

// maxRejectedBytes is the maximum size of the errors of a configuration that are read: a little more than a worker publishes.
const maxRejectedBytes = 1000

// Rejected returns the errors of the configuration that the worker which has written a NodeFeature rejects, in one line; empty: there are none.
// Only the object of the node's own worker counts. The text is not trusted: it is shortened, and has no control characters.
func Rejected(f metav1.Object) string {
	text := clip.Text(f.GetAnnotations()[assayv1alpha1.InvalidConfigurationAnnotation], maxRejectedBytes)
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ReplaceAll(strings.TrimSpace(text), "\n", "; "))
}

// set returns the map with an entry; the map may be nil.
func set(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// only returns the entries of a map that have one of the keys; nil: none has.
func only(m map[string]string, keys ...string) map[string]string {
	var out map[string]string
	for _, key := range keys {
		if value, ok := m[key]; ok {
			out = set(out, key, value)
		}
	}
	return out
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

package featuresets

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/facts"
)

// Set is a NodeFeatureSet with its feature as facts. Registered with a scheme in place of the API type, it is what informers decode
// into.
type Set struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              Spec                               `json:"spec"`
	Status            assayv1alpha1.NodeFeatureSetStatus `json:"status,omitempty"`
}

// Spec is the spec of a Set.
type Spec struct {
	Features Features `json:"features"`
}

// Features are the one feature of a Set. The facts are immutable and shared.
type Features struct {
	*facts.Facts
	// Name is the name that a set with this content must have.
	Name string
	// Err is why the content cannot be one of a set. An informer must not fail on one bad object, so it is kept here.
	Err error
	// Bytes is the length of the JSON that they were decoded from, and Elements the number of elements.
	Bytes, Elements int
}

// UnmarshalJSON decodes a feature into shared facts. It never fails; see Err.
func (f *Features) UnmarshalJSON(raw []byte) error {
	*f = Features{Bytes: len(raw)}
	var decoded nfdv1alpha1.Features
	if f.Err = json.Unmarshal(raw, &decoded); f.Err != nil {
		return nil
	}
	if f.Name, f.Err = featureset.Name(&decoded); f.Err != nil {
		return nil
	}
	for _, set := range decoded.Flags {
		f.Elements += len(set.Elements)
	}
	for _, set := range decoded.Attributes {
		f.Elements += len(set.Elements)
	}
	for _, set := range decoded.Instances {
		f.Elements += len(set.Elements)
	}
	f.Facts, f.Err = facts.Decode(raw, nodefeature.Interner())
	return nil
}

// MarshalJSON writes the feature as the API has it.
func (f Features) MarshalJSON() ([]byte, error) {
	if f.Facts == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(f.Facts.Features())
}

// Verify returns an error if the content of the set is not what its name says. The error wraps featureset.ErrVersion if a newer
// program may have written it.
func (s *Set) Verify() error {
	if err := featureset.Known(s.Name); err != nil {
		return err
	}
	if s.Spec.Features.Err != nil {
		return fmt.Errorf("feature set %q: %w", s.Name, s.Spec.Features.Err)
	}
	if s.Name != s.Spec.Features.Name {
		return fmt.Errorf("feature set %q: its features belong to the name %q", s.Name, s.Spec.Features.Name)
	}
	return nil
}

// DeepCopyObject implements runtime.Object. The facts are immutable and stay shared.
func (s *Set) DeepCopyObject() runtime.Object {
	out := &Set{TypeMeta: s.TypeMeta, Spec: s.Spec}
	s.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	s.Status.DeepCopyInto(&out.Status)
	return out
}

// SetList is a list of Sets.
type SetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Set `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *SetList) DeepCopyObject() runtime.Object {
	out := &SetList{TypeMeta: l.TypeMeta, Items: make([]Set, len(l.Items))}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Set)
	}
	return out
}

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// NodeFeatureSetResource is the resource of NodeFeatureSets.
var NodeFeatureSetResource = GroupVersion.WithResource("nodefeaturesets")

// NodeFeatureSet is one large feature that many nodes have in common, such as the configuration of a kernel. NodeFeatures refer to
// it in spec.featureSets instead of repeating it.
//
// Its name contains a digest of its features. Workers create NodeFeatureSets; they are never updated.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodefeaturesets,scope=Namespaced,shortName=nfset
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Feature",type=string,JSONPath=`.status.feature`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Elements",type=integer,JSONPath=`.status.elements`
// +kubebuilder:printcolumn:name="Bytes",type=integer,JSONPath=`.status.bytes`
// +kubebuilder:printcolumn:name="Created-By",type=string,priority=1,JSONPath=`.metadata.labels['assay\.dev/created-by-node']`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeFeatureSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the feature. It is immutable.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a NodeFeatureSet is immutable, because its name is a digest of its features; create another one"
	Spec NodeFeatureSetSpec `json:"spec"`
	// status is what the controller observed of the set.
	// +optional
	Status NodeFeatureSetStatus `json:"status,omitempty"`
}

// NodeFeatureSetList is a list of NodeFeatureSets.
//
// +kubebuilder:object:root=true
type NodeFeatureSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeFeatureSet `json:"items"`
}

// NodeFeatureSetSpec holds one feature.
type NodeFeatureSetSpec struct {
	// features holds exactly one feature.
	//
	// +kubebuilder:validation:XValidation:rule="(has(self.flags) ? self.flags.size() : 0) + (has(self.attributes) ? self.attributes.size() : 0) + (has(self.instances) ? self.instances.size() : 0) == 1",message="a NodeFeatureSet holds exactly one feature"
	// +structType=atomic
	Features nfdv1alpha1.Features `json:"features"`
}

// NodeFeatureSetStatus is the observed state of a NodeFeatureSet.
type NodeFeatureSetStatus struct {
	// feature is the name of the feature.
	// +optional
	Feature string `json:"feature,omitempty"`
	// nodes is the number of nodes whose NodeFeatures refer to the set.
	// +optional
	Nodes *int32 `json:"nodes,omitempty"`
	// elements is the number of elements of the feature.
	// +optional
	Elements *int32 `json:"elements,omitempty"`
	// bytes is the size of the feature as JSON.
	// +optional
	Bytes *int64 `json:"bytes,omitempty"`
}

// NodeFeatureSetGVK is the kind of NodeFeatureSet.
var NodeFeatureSetGVK = schema.GroupVersionKind{Group: GroupName, Version: GroupVersion.Version, Kind: "NodeFeatureSet"}

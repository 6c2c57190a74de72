package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeFeatureGroup lists the nodes that match at least one of its rules.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodefeaturegroups,scope=Namespaced,shortName=nfg
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.count`
// +kubebuilder:printcolumn:name="Ready",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeFeatureGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec holds the rules of the group.
	Spec NodeFeatureGroupSpec `json:"spec"`
	// status lists the nodes of the group.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status NodeFeatureGroupStatus `json:"status,omitempty"`
}

// NodeFeatureGroupList is a list of NodeFeatureGroups.
//
// +kubebuilder:object:root=true
type NodeFeatureGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeFeatureGroup `json:"items"`
}

// NodeFeatureGroupSpec holds the rules of a group.
type NodeFeatureGroupSpec struct {
	// featureGroupRules are the rules of the group. A node belongs to the group if at least one rule matches.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Rules []GroupRule `json:"featureGroupRules"`
}

// GroupRule is one rule of a group.
type GroupRule struct {
	// name is the name of the rule.
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name"`
	// vars are variables. Later rules read them as elements of the feature rule.matched.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	Vars map[string]string `json:"vars"`
	// varsTemplate is a Go template that expands to variables, one name=value per line.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	VarsTemplate string `json:"varsTemplate"`
	// matchFeatures lists terms that must all match.
	// +optional
	MatchFeatures FeatureMatcher `json:"matchFeatures"`
	// matchAny lists alternatives of which at least one must match.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	MatchAny []MatchAnyElem `json:"matchAny"`
}

// NodeFeatureGroupStatus lists the nodes of a group.
type NodeFeatureGroupStatus struct {
	// nodes lists the names of at most 5,000 nodes of the group; count is the number of all of them.
	// +optional
	// +listType=map
	// +listMapKey=name
	Nodes []FeatureGroupNode `json:"nodes,omitempty"`
	// count is the number of nodes in the group. Assay adds this field to the NFD API.
	// +optional
	Count *int32 `json:"count,omitempty"`
	// observedGeneration is the generation of the spec that the controller processed last; -1 before the first time. Assay adds
	// this field to the NFD API.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions are Ready, Accepted (the rules are valid), and Stalled while a user must act. Assay adds this field to the NFD API.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// FeatureGroupNode is a node of a group.
type FeatureGroupNode struct {
	// name is the name of the Node.
	Name string `json:"name"`
}

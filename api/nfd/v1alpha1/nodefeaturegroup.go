package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeFeatureGroup lists the nodes that satisfy one of its rules.
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

	// What the nodes of the group have in common.
	Spec NodeFeatureGroupSpec `json:"spec"`
	// Which nodes these are.
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
	// Rules decide on membership: a node belongs to the group if any of them matches.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Rules []GroupRule `json:"featureGroupRules"`
}

// GroupRule is one rule of a group.
type GroupRule struct {
	// Name of the rule.
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name"`
	// Vars are visible to the rules after this one as elements of the feature rule.matched.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	Vars map[string]string `json:"vars"`
	// VarsTemplate is a Go template that expands to lines of the form name=value, each a variable.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	VarsTemplate string `json:"varsTemplate"`
	// MatchFeatures are terms that must all hold.
	// +optional
	MatchFeatures FeatureMatcher `json:"matchFeatures"`
	// MatchAny are alternatives, of which one must hold.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	MatchAny []MatchAnyElem `json:"matchAny"`
}

// NodeFeatureGroupStatus lists the nodes of a group.
type NodeFeatureGroupStatus struct {
	// Nodes are the members, by name. The list is cut at 5,000 names; count tells how many there are.
	// +optional
	// +listType=map
	// +listMapKey=name
	Nodes []FeatureGroupNode `json:"nodes,omitempty"`
	// Count is how many nodes belong to the group (an addition of Assay).
	// +optional
	Count *int32 `json:"count,omitempty"`
	// ObservedGeneration is the generation of the spec that the status describes; -1 before the first one (an addition of Assay).
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready, Accepted (the rules are understood), and Stalled while a user must act (an addition of Assay).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// FeatureGroupNode is one member of a group.
type FeatureGroupNode struct {
	// Name of the Node.
	Name string `json:"name"`
}

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// NodeBaselineResource is the resource of NodeBaselines.
var NodeBaselineResource = GroupVersion.WithResource("nodebaselines")

// NodeBaselineGVK is the kind of NodeBaseline.
var NodeBaselineGVK = schema.GroupVersionKind{Group: GroupName, Version: GroupVersion.Version, Kind: "NodeBaseline"}

// ConditionConforming is the type of the condition of a NodeBaseline that is True if all of its nodes conform.
const ConditionConforming = "Conforming"

// Reasons of ConditionConforming.
const (
	// ReasonAllConform means that all selected nodes conform: the condition is True.
	ReasonAllConform = "AllConform"
	// ReasonNodesDeviate means that nodes deviate: the condition is False.
	ReasonNodesDeviate = "NodesDeviate"
	// ReasonNoMajority means that no node deviates, but nodes have different values and none of them is that of more than half: the
	// condition is False.
	ReasonNoMajority = "NoMajority"
	// ReasonFeaturesUnknown means that nothing is wrong as far as is known, and the features of some nodes are unknown: the condition is
	// Unknown.
	ReasonFeaturesUnknown = "FeaturesUnknown"
	// ReasonNoNodes means that the baseline selects no node: the condition is Unknown.
	ReasonNoNodes = "NoNodes"
	// ReasonInvalid means that the baseline is not accepted: the condition is Unknown.
	ReasonInvalid = "Invalid"
)

// NodeBaseline declares how a set of nodes must be: what each node must have, and what all of them must have in common. The
// controller reports in the status which nodes deviate, and why.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodebaselines,scope=Cluster,shortName=nbase
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Conforming",type=integer,JSONPath=`.status.conforming`
// +kubebuilder:printcolumn:name="Deviating",type=integer,JSONPath=`.status.deviating`
// +kubebuilder:printcolumn:name="Unknown",type=integer,JSONPath=`.status.unknown`
// +kubebuilder:printcolumn:name="Ready",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Conforming")].message`
type NodeBaseline struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec selects nodes and declares how they must be. The names of all checks must be unique.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.require) || !has(self.uniform) || !self.require.exists(r, self.uniform.exists(u, u.name == r.name))",message="an entry in require and one in uniform have the same name; give them different names"
	Spec NodeBaselineSpec `json:"spec"`
	// status reports which nodes deviate.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status NodeBaselineStatus `json:"status,omitempty"`
}

// NodeBaselineList is a list of NodeBaselines.
//
// +kubebuilder:object:root=true
type NodeBaselineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeBaseline `json:"items"`
}

// NodeBaselineSpec selects nodes and declares how they must be.
type NodeBaselineSpec struct {
	// nodeSelector selects nodes that have all of these labels. Labels that rules write do not count: use matchFeatures for what they
	// are derived from. If nodeSelector and matchFeatures are absent, all nodes are selected.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// matchFeatures selects nodes by their features, in addition to nodeSelector. All terms must match.
	// +optional
	MatchFeatures nfdv1alpha1.FeatureMatcher `json:"matchFeatures,omitempty"`
	// require are requirements that each selected node must meet.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Require []BaselineRequirement `json:"require,omitempty"`
	// uniform are values that must be equal on all selected nodes. The expected value is that of more than half of the nodes whose
	// features are known. If there is none, no node deviates, and the condition Conforming has the reason NoMajority. A missing value
	// is a value too.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Uniform []BaselineValue `json:"uniform,omitempty"`
	// within are names of labels. Values in uniform are compared only between nodes for which these labels are equal, for example nodes
	// of the same instance type. Labels that rules write do not count.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=317
	Within []string `json:"within,omitempty"`
	// levels are labels of nodes that must form a tree, from the widest level to the narrowest, such as block, rack and host. A node deviates
	// from the check levels if it lacks a label, if its domain on a level is part of another domain than for more than half of the nodes of
	// that domain, or if it is one of too many nodes in a domain. All labels of the Node count, also those that rules write. A node whose
	// features are unknown is not compared.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=2
	// +kubebuilder:validation:MaxItems=16
	Levels []BaselineLevel `json:"levels,omitempty"`
	// nodeCondition is the type of a condition that is set on each selected node, with a namespace of your own, such as
	// example.com/Baseline. It is True if the node meets all requirements in require, and False with the first that it does not meet as
	// the reason. Values in uniform and levels do not affect it, so that no node is affected by what other nodes are.
	// +optional
	// +kubebuilder:validation:MaxLength=316
	NodeCondition string `json:"nodeCondition,omitempty"`
}

// BaselineRequirement is a named requirement that each node of a baseline must meet.
type BaselineRequirement struct {
	// name is the name of the check in the status and in metrics, such as nic-firmware: lower-case letters, digits and dashes.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// message tells users what to do about a node that deviates.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message     string `json:"message,omitempty"`
	Requirement `json:",inline"`
}

// BaselineValue is a named value that all nodes of a baseline must have in common.
type BaselineValue struct {
	// name is the name of the check in the status and in metrics, such as bios: lower-case letters, digits and dashes.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// value is a string with an {expression} that reads features, such as {@"system.dmiid.bios_version"}.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value"`
}

// BaselineLevel is a level of a tree of nodes. The nodes that have one value of its label are a domain.
type BaselineLevel struct {
	// name is what a domain of the level is, such as rack: lower-case letters, digits and dashes.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// label is the name of the label. kubernetes.io/hostname can only be used at the lowest level, as in a Topology of Kueue.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Label string `json:"label"`
	// unique is false if the same value in two branches is two domains, such as rack 1 of each block. By default, a value is one domain, as
	// for schedulers that know a domain by the value of one label.
	// +optional
	// +kubebuilder:default=true
	Unique *bool `json:"unique,omitempty"`
	// nodes limits the number of nodes in a domain. The youngest nodes beyond it deviate.
	// +optional
	Nodes *BaselineLevelNodes `json:"nodes,omitempty"`
}

// BaselineLevelNodes limits the number of nodes in a domain.
type BaselineLevelNodes struct {
	// max is the maximum number of nodes in each domain of the level.
	// +kubebuilder:validation:Minimum=1
	Max int32 `json:"max"`
}

// NodeBaselineStatus reports which nodes deviate from a baseline.
type NodeBaselineStatus struct {
	// observedGeneration is the generation of the spec that the controller processed last; -1 before the first time.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// nodes is the number of selected nodes.
	// +optional
	Nodes *int32 `json:"nodes,omitempty"`
	// conforming is the number of nodes whose features are known and that do not deviate.
	// +optional
	Conforming *int32 `json:"conforming,omitempty"`
	// deviating is the number of nodes that fail at least one check.
	// +optional
	Deviating *int32 `json:"deviating,omitempty"`
	// unknown is the number of nodes whose features are unknown, for example because their worker is not running. They never deviate.
	// +optional
	Unknown *int32 `json:"unknown,omitempty"`
	// checks are the results of each entry in require and uniform, and of levels.
	// +optional
	// +listType=map
	// +listMapKey=name
	Checks []BaselineCheck `json:"checks,omitempty"`
	// levels are the domains of each level, without nodes that deviate from the check levels.
	// +optional
	// +listType=map
	// +listMapKey=name
	Levels []BaselineLevelStatus `json:"levels,omitempty"`
	// deviations are the nodes that fail a check, by the order of the checks and then by the name of the node, at most 50.
	// +optional
	// +listType=atomic
	Deviations []BaselineDeviation `json:"deviations,omitempty"`
	// omitted is the number of deviations that are left out.
	// +optional
	Omitted int32 `json:"omitted,omitempty"`
	// conditions are Ready and Accepted (the baseline is valid), Conforming (all nodes conform), and Stalled while a user must act.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BaselineCheck is the result of one check.
type BaselineCheck struct {
	// name is that of the entry in require or uniform, or levels.
	Name string `json:"name"`
	// deviating is the number of nodes that fail the check.
	Deviating int32 `json:"deviating"`
	// unknown is the number of nodes whose worker has not read what the check reads since they booted: they neither pass nor fail it.
	// +optional
	Unknown int32 `json:"unknown,omitempty"`
	// noMajority is the number of nodes that cannot be compared: in their group, no value is that of more than half of the nodes.
	// +optional
	NoMajority int32 `json:"noMajority,omitempty"`
	// values are the most frequent values of an entry in uniform, at most 5.
	// +optional
	// +listType=atomic
	Values []BaselineValueCount `json:"values,omitempty"`
}

// BaselineLevelStatus counts the domains of a level.
type BaselineLevelStatus struct {
	// name is that of the entry in levels.
	Name string `json:"name"`
	// domains is the number of domains.
	Domains int32 `json:"domains"`
	// smallest and largest are the numbers of nodes in the smallest and in the largest domain.
	Smallest int32 `json:"smallest"`
	Largest  int32 `json:"largest"`
}

// BaselineValueCount is the number of nodes that have a value.
type BaselineValueCount struct {
	// value is the value; absent for nodes that do not have it.
	Value string `json:"value"`
	// nodes is the number of nodes that have the value.
	Nodes int32 `json:"nodes"`
}

// BaselineDeviation is a node that fails a check.
type BaselineDeviation struct {
	// node is the name of the node.
	Node string `json:"node"`
	// check is the name of the check.
	Check string `json:"check"`
	// message is what the node lacks, or its value and that of the others.
	Message string `json:"message"`
	// since is when the controller saw first that the node fails the check.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

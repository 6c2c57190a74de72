package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// NodeShapeResource is the resource of NodeShapes.
var NodeShapeResource = GroupVersion.WithResource("nodeshapes")

// NodeShapeGVK is the kind of NodeShape.
var NodeShapeGVK = schema.GroupVersionKind{Group: GroupName, Version: GroupVersion.Version, Kind: "NodeShape"}

// ConditionContradicted is the type of the condition of a NodeShape that is True if one of the recent nodes lacks an output that all
// earlier nodes have.
const ConditionContradicted = "Contradicted"

const (
	// NodePoolLabel is the label with the NodePool of Karpenter that a Node is in.
	NodePoolLabel = "karpenter.sh/nodepool"
	// MachineDeploymentLabel is a label with the MachineDeployment of Cluster API that a Node is in. The template of the
	// MachineDeployment has to contain it; Cluster API copies labels in this namespace from Machines to Nodes.
	MachineDeploymentLabel = "node.cluster.x-k8s.io/deployment-name"
)

// NodeShape is what rules give to the nodes of one node group and instance type. It outlives the nodes, so that autoscalers can
// know the labels, taints and extended resources of a node before it exists: see assay export.
//
// The controller writes NodeShapes; they have no spec. A NodeShape that is deleted is created again from the nodes that exist.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodeshapes,scope=Cluster,shortName=nshape
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Instance-Type",type=string,priority=1,JSONPath=`.status.key['node\.kubernetes\.io/instance-type']`
// +kubebuilder:printcolumn:name="Contradicted",type=string,JSONPath=`.status.conditions[?(@.type=="Contradicted")].status`
// +kubebuilder:printcolumn:name="Last-Seen",type=date,JSONPath=`.status.lastSeen`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Contradicted")].message`
type NodeShape struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status is what the nodes of the shape have in common.
	// +optional
	Status NodeShapeStatus `json:"status,omitempty"`
}

// NodeShapeList is a list of NodeShapes.
//
// +kubebuilder:object:root=true
type NodeShapeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeShape `json:"items"`
}

// NodeShapeStatus is what the nodes of a shape have in common.
type NodeShapeStatus struct {
	// key holds the labels, with their values, that all nodes of the shape have and that autoscalers know before a node exists, such
	// as the node group and the instance type.
	// +optional
	// +mapType=atomic
	Key map[string]string `json:"key,omitempty"`
	// labels are the labels that rules gave to all recent nodes of the shape.
	// +optional
	// +mapType=atomic
	Labels map[string]string `json:"labels,omitempty"`
	// taints are the taints that rules gave to all recent nodes of the shape.
	// +optional
	// +listType=atomic
	Taints []corev1.Taint `json:"taints,omitempty"`
	// extendedResources are the extended resources that rules gave to all recent nodes of the shape, with the same amount.
	// +optional
	ExtendedResources corev1.ResourceList `json:"extendedResources,omitempty"`
	// differences are outputs that recent nodes do not have in common. They are not in the lists above.
	// +optional
	// +listType=atomic
	Differences []ShapeDifference `json:"differences,omitempty"`
	// omitted is the number of labels that are left out because the shape would be too large.
	// +optional
	Omitted int32 `json:"omitted,omitempty"`

	// onlyNode is the UID of the node of the shape if there has been only one. Empty for a shape that several nodes have had.
	// +optional
	OnlyNode types.UID `json:"onlyNode,omitempty"`
	// nodes is the number of nodes of the shape that exist.
	// +optional
	Nodes *int32 `json:"nodes,omitempty"`
	// recent are the UIDs of the most recent nodes, up to 20, whose outputs are compared.
	// +optional
	// +listType=atomic
	Recent []types.UID `json:"recent,omitempty"`
	// firstSeen is when the controller saw the first node of the shape.
	// +optional
	FirstSeen *metav1.Time `json:"firstSeen,omitempty"`
	// lastSeen is a time at which the shape had nodes: for a shape without nodes, when the last one was deleted. After 90 days
	// without nodes the shape is deleted, and after one day if onlyNode is set.
	// +optional
	LastSeen *metav1.Time `json:"lastSeen,omitempty"`
	// conditions are Contradicted: True while a recent node lacked an output that all nodes before it had.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ShapeDifference is an output of rules that recent nodes of a shape do not have in common.
type ShapeDifference struct {
	// output is the kind of the output.
	// +kubebuilder:validation:Enum=label;taint;extended resource
	Output string `json:"output"`
	// name is the key of the label, KEY:EFFECT of the taint, or the name of the extended resource.
	Name string `json:"name"`
	// agreeing is the number of nodes that have joined and agreed since the last node that differed was deleted; absent while
	// existing nodes differ. At 20 the difference is forgotten.
	// +optional
	Agreeing *int32 `json:"agreeing,omitempty"`
	// contradictedBy is the node that lacked the output, or had another value, although all nodes before it agreed.
	// +optional
	ContradictedBy string `json:"contradictedBy,omitempty"`
}

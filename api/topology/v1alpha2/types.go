package v1alpha2

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of the kind in this package.
const GroupName = "topology.node.k8s.io"

// GroupVersion is the group and version of the kind in this package.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha2"}

// NodeResourceTopologyResource is the resource of NodeResourceTopologies.
var NodeResourceTopologyResource = GroupVersion.WithResource("noderesourcetopologies")

// NodeResourceTopologyGVK is the kind of NodeResourceTopology.
var NodeResourceTopologyGVK = GroupVersion.WithKind("NodeResourceTopology")

// ZoneTypeNode is the type of a zone that is a NUMA node.
const ZoneTypeNode = "Node"

// NodeResourceTopology is what a node has, and has left, in each of its NUMA nodes. Its name is that of the Node.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=noderesourcetopologies,scope=Cluster,shortName=node-res-topo
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=https://github.com/kubernetes/enhancements/pull/1870"
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.attributes[?(@.name=="topologyManagerPolicy")].value`
// +kubebuilder:printcolumn:name="Scope",type=string,JSONPath=`.attributes[?(@.name=="topologyManagerScope")].value`
// +kubebuilder:printcolumn:name="Zones",type=string,JSONPath=`.zones[*].name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeResourceTopology struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// topologyPolicies is the policy of the kubelet's topology manager in one word. Deprecated: attributes have the kubelet's own
	// words.
	// +optional
	// +listType=atomic
	TopologyPolicies []string `json:"topologyPolicies,omitempty"`
	// zones are the NUMA nodes of the node.
	// +listType=atomic
	Zones []Zone `json:"zones"`
	// attributes are properties of the node as a whole.
	// +optional
	// +listType=atomic
	Attributes []Attribute `json:"attributes,omitempty"`
}

// NodeResourceTopologyList is a list of NodeResourceTopologies.
//
// +kubebuilder:object:root=true
type NodeResourceTopologyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeResourceTopology `json:"items"`
}

// Zone is a part of a node with resources that are near to each other.
type Zone struct {
	// name is the name of the zone: node-<id> for a NUMA node.
	Name string `json:"name"`
	// type is the type of the zone: Node for a NUMA node.
	Type string `json:"type"`
	// parent is the zone that contains this one.
	// +optional
	Parent string `json:"parent,omitempty"`
	// costs are the distances to all zones, as the firmware reports them: 10 is the zone itself.
	// +optional
	// +listType=atomic
	Costs []Cost `json:"costs,omitempty"`
	// attributes are properties of the zone.
	// +optional
	// +listType=atomic
	Attributes []Attribute `json:"attributes,omitempty"`
	// resources are the resources of the zone.
	// +optional
	// +listType=atomic
	Resources []Resource `json:"resources,omitempty"`
}

// Cost is the distance to a zone.
type Cost struct {
	// name is the name of the other zone.
	Name string `json:"name"`
	// value is the distance.
	Value int64 `json:"value"`
}

// Attribute is a name with a value.
type Attribute struct {
	// name is the name of the attribute.
	Name string `json:"name"`
	// value is its value.
	Value string `json:"value"`
}

// Resource is a resource in a zone.
type Resource struct {
	// name is the name of the resource.
	Name string `json:"name"`
	// capacity is what the zone has.
	Capacity resource.Quantity `json:"capacity"`
	// allocatable is what pods can hold of it.
	Allocatable resource.Quantity `json:"allocatable"`
	// available is what no pod holds of it.
	Available resource.Quantity `json:"available"`
}

// ManagedByLabel is the label of the program that keeps an object, and ManagedByAssay its value for Assay. Uninstallation deletes the
// objects that have it.
const (
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedByAssay = "assay"
)

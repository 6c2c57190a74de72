package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeFeature holds features of one node, which NodeFeatureRules are evaluated against, and labels that its publisher requests
// directly.
//
// The label nfd.node.kubernetes.io/node-name names the Node it describes. Any number of objects may describe one Node: the
// worker publishes one, drivers and operators may publish more, and they are merged.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodefeatures,scope=Namespaced
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.metadata.labels['nfd\.node\.kubernetes\.io/node-name']`
// +kubebuilder:printcolumn:name="Worker",type=string,priority=1,JSONPath=`.metadata.annotations['nfd\.node\.kubernetes\.io/worker\.version']`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeFeature struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec holds the features and labels.
	Spec NodeFeatureSpec `json:"spec"`
}

// NodeFeatureList is a list of NodeFeatures.
//
// +kubebuilder:object:root=true
type NodeFeatureList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeFeature `json:"items"`
}

// NodeFeatureSpec holds the features of a node and the labels that their publisher requests.
type NodeFeatureSpec struct {
	// features are the input of rules. The struct is atomic: a writer replaces it as a whole, so that the API server does not
	// record an owner for each of thousands of elements.
	// +optional
	// +structType=atomic
	Features Features `json:"features"`
	// labels are node labels to create without a rule. A name without a prefix gets the prefix feature.node.kubernetes.io/.
	// +optional
	// +mapType=atomic
	Labels map[string]string `json:"labels"`
	// featureSets lists the names of NodeFeatureSets in the same namespace whose features are features of the node too. If features
	// contains a feature with the same name, the feature of the set is ignored. The list is only used in Assay's own namespace.
	// Assay adds this field to the NFD API.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	FeatureSets []string `json:"featureSets,omitempty"`
	// encodedInstances is JSON with more instances as one string: for each feature a list of the attributes of each instance, such as
	// {"network.virtual": [{"name": "veth0"}]}. The API server handles it at a fraction of the cost of the same objects. If features
	// contains instances with the same name, those here are ignored. Assay adds this field to the NFD API.
	// +optional
	// +kubebuilder:validation:MaxLength=1572864
	EncodedInstances string `json:"encodedInstances,omitempty"`
}

// Features holds features by type and name. A name has the form domain.feature, such as cpu.cpuid. The same name may be in more
// than one of the three maps.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.flags) && 'rule.matched' in self.flags) && !(has(self.attributes) && 'rule.matched' in self.attributes) && !(has(self.instances) && 'rule.matched' in self.instances)",message="rule.matched holds the outputs of rules and cannot be published; choose another name"
type Features struct {
	// flags are sets of names without values, such as the capabilities of the CPU.
	// +optional
	// +mapType=atomic
	Flags map[string]FlagFeatureSet `json:"flags"`
	// attributes are sets of names with one value each, such as the options of the kernel configuration.
	// +optional
	// +mapType=atomic
	Attributes map[string]AttributeFeatureSet `json:"attributes"`
	// instances are lists of objects of one kind, each with its own attributes, such as PCI devices.
	// +optional
	// +mapType=atomic
	Instances map[string]InstanceFeatureSet `json:"instances"`
}

// FlagFeatureSet is a set of names.
type FlagFeatureSet struct {
	// elements holds one entry for each name that is present.
	// +mapType=atomic
	Elements map[string]Nil `json:"elements"`
}

// AttributeFeatureSet is a set of names with one value each.
type AttributeFeatureSet struct {
	// elements maps each name to its value.
	// +mapType=atomic
	Elements map[string]string `json:"elements"`
}

// InstanceFeatureSet is a list of objects of one kind.
type InstanceFeatureSet struct {
	// elements lists the instances in the order in which they were discovered.
	// +listType=atomic
	Elements []InstanceFeature `json:"elements"`
}

// InstanceFeature is one object of a kind, such as one PCI device.
type InstanceFeature struct {
	// attributes maps the name of each attribute to its value.
	// +mapType=atomic
	Attributes map[string]string `json:"attributes"`
}

// Nil is the value of a flag: an empty object.
type Nil struct{}

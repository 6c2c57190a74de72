package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// NodeFeatureRuleTemplate holds rules that do nothing by themselves: NodeFeatureRules name it in spec.basedOn.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodefeatureruletemplates,scope=Cluster,shortName=nfrt
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Based-On",type=string,JSONPath=`.spec.basedOn[*].name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeFeatureRuleTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The same as the spec of a NodeFeatureRule. Names of rules are unique: objects based on the template combine rules by name.
	//
	// +kubebuilder:validation:XValidation:rule="(has(self.basedOn) && self.basedOn.size() > 0) || !(has(self.rules) && self.rules.size() <= 64 && [self.rules.map(r, r.name)].exists(names, names.exists(n, !names.exists_one(m, m == n)))) || (oldSelf.hasValue() && has(oldSelf.value().rules) && oldSelf.value().rules.size() <= 64 && [oldSelf.value().rules.map(r, r.name)].exists(names, names.exists(n, !names.exists_one(m, m == n))))",message="two rules have the same name; rules of a template combine by their name, so give them different names",optionalOldSelf=true
	Spec nfdv1alpha1.NodeFeatureRuleSpec `json:"spec"`
	// Whether rules can be based on it.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status TemplateStatus `json:"status,omitempty"`
}

// TemplateStatus is the observed state of a template.
type TemplateStatus struct {
	// ObservedGeneration is the generation of the spec that the status describes; -1 before the first one.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready (Accepted and Resolved), Accepted (its rules are understood), Resolved (the templates that it is based
	// on exist), and Stalled while a user must act.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeFeatureRuleTemplateList is a list of NodeFeatureRuleTemplates.
//
// +kubebuilder:object:root=true
type NodeFeatureRuleTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeFeatureRuleTemplate `json:"items"`
}

// Requirement says what a node must be like: all of its parts must hold.
type Requirement struct {
	// MatchFeatures are terms that must all hold.
	// +optional
	MatchFeatures nfdv1alpha1.FeatureMatcher `json:"matchFeatures,omitempty"`
	// MatchAny are alternatives, of which one must hold.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	MatchAny []nfdv1alpha1.MatchAnyElem `json:"matchAny,omitempty"`
	// Conditions must all hold.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Conditions []nfdv1alpha1.Condition `json:"conditions,omitempty"`
}

// Preference is a Requirement that a node had better meet.
type Preference struct {
	// Weight is how much it counts against other preferences, 1 to 100.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight      int32 `json:"weight"`
	Requirement `json:",inline"`
}

// NodeFeatureRequest is what pods ask of their node, under a name. A pod of the same namespace chooses it with the label
// assay.dev/feature-request.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodefeaturerequests,scope=Namespaced,shortName=nfreq
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.matchingNodes`
// +kubebuilder:printcolumn:name="Satisfiable",type=string,JSONPath=`.status.conditions[?(@.type=="Satisfiable")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Satisfiable")].message`
type NodeFeatureRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is asked for.
	Spec NodeFeatureRequestSpec `json:"spec"`
	// Which nodes have it.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status RequestStatus `json:"status,omitempty"`
}

// NodeFeatureRequestList is a list of NodeFeatureRequests.
//
// +kubebuilder:object:root=true
type NodeFeatureRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeFeatureRequest `json:"items"`
}

// NodeFeatureRequestSpec is what is asked of a node.
type NodeFeatureRequestSpec struct {
	// Required must hold on the node.
	// +optional
	Required *Requirement `json:"required,omitempty"`
	// Preferred had better hold: among the nodes that can take the pod, those that meet more weight are chosen.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Preferred []Preference `json:"preferred,omitempty"`
}

// RequestStatus says which nodes have what is asked for.
type RequestStatus struct {
	// ObservedGeneration is the generation of the spec that the status describes; -1 before the first one.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// MatchingNodes is how many nodes meet what is required.
	// +optional
	MatchingNodes *int32 `json:"matchingNodes,omitempty"`
	// SampleNodes are some of them, by name, ten at the most.
	// +optional
	// +listType=atomic
	SampleNodes []string `json:"sampleNodes,omitempty"`
	// Conditions: Ready, Accepted (the requirements are understood), Satisfiable (some node meets them), and Stalled while a
	// user must act.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ConditionSatisfiable says whether some node has what is asked for.
const ConditionSatisfiable = "Satisfiable"

// StalePolicy says what to think of a node whose features are older than staleAfter.
//
// +kubebuilder:validation:Enum=Trust;Reject
type StalePolicy string

// The policies for stale features. An empty one is Trust.
const (
	StaleTrust  StalePolicy = "Trust"
	StaleReject StalePolicy = "Reject"
)

// NodeFeatureSchedulingPolicy asks for features on behalf of pods, so that workloads need not be edited.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodefeatureschedulingpolicies,scope=Cluster,shortName=nfsp
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.matchingNodes`
// +kubebuilder:printcolumn:name="Satisfiable",type=string,JSONPath=`.status.conditions[?(@.type=="Satisfiable")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Satisfiable")].message`
type NodeFeatureSchedulingPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Which pods, and what is asked for.
	Spec NodeFeatureSchedulingPolicySpec `json:"spec"`
	// Which nodes have it.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status RequestStatus `json:"status,omitempty"`
}

// NodeFeatureSchedulingPolicyList is a list of NodeFeatureSchedulingPolicies.
//
// +kubebuilder:object:root=true
type NodeFeatureSchedulingPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeFeatureSchedulingPolicy `json:"items"`
}

// NodeFeatureSchedulingPolicySpec says which pods ask for what.
type NodeFeatureSchedulingPolicySpec struct {
	// NamespaceSelector chooses the namespaces of the pods; an absent one chooses none, an empty one all that are labelled
	// for scheduling.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// PodSelector chooses pods by their labels; an absent one chooses all.
	// +optional
	PodSelector            *metav1.LabelSelector `json:"podSelector,omitempty"`
	NodeFeatureRequestSpec `json:",inline"`
	// SchedulerName is given to pods that left it at the default.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	SchedulerName string `json:"schedulerName,omitempty"`
	// StaleAfter is the age from which features no longer count as known; never, if absent.
	// +optional
	StaleAfter *metav1.Duration `json:"staleAfter,omitempty"`
	// OnStale says what to think of a node with stale features.
	// +optional
	OnStale StalePolicy `json:"onStale,omitempty"`
}

package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// NodeFeatureRuleTemplate holds rules that NodeFeatureRules reuse by naming the template in spec.basedOn. A template has no
// effect by itself.
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

	// spec has the same fields as the spec of a NodeFeatureRule. Rule names must be unique, because objects based on the template
	// combine rules by name.
	//
	// +kubebuilder:validation:XValidation:rule="(has(self.basedOn) && self.basedOn.size() > 0) || !(has(self.rules) && self.rules.size() <= 64 && [self.rules.map(r, r.name)].exists(names, names.exists(n, !names.exists_one(m, m == n)))) || (oldSelf.hasValue() && has(oldSelf.value().rules) && oldSelf.value().rules.size() <= 64 && [oldSelf.value().rules.map(r, r.name)].exists(names, names.exists(n, !names.exists_one(m, m == n))))",message="two rules have the same name; rules of a template combine by their name, so give them different names",optionalOldSelf=true
	Spec nfdv1alpha1.NodeFeatureRuleSpec `json:"spec"`
	// status is the observed state of the template.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status TemplateStatus `json:"status,omitempty"`
}

// TemplateStatus is the observed state of a template.
type TemplateStatus struct {
	// observedGeneration is the generation of the spec that the controller processed last; -1 before the first time.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions are Ready (Accepted and Resolved), Accepted (the rules are valid), Resolved (the templates that it is based on
	// exist), and Stalled while a user must act.
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

// Requirement is a set of conditions on the features of a node. All parts must match.
type Requirement struct {
	// matchFeatures lists terms that must all match.
	// +optional
	MatchFeatures nfdv1alpha1.FeatureMatcher `json:"matchFeatures,omitempty"`
	// matchAny lists alternatives of which at least one must match.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	MatchAny []nfdv1alpha1.MatchAnyElem `json:"matchAny,omitempty"`
	// conditions must all be true.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Conditions []nfdv1alpha1.Condition `json:"conditions,omitempty"`
}

// Preference is a preferred requirement and its weight.
type Preference struct {
	// weight is the weight of this preference relative to the others, from 1 to 100.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight      int32 `json:"weight"`
	Requirement `json:",inline"`
}

// NodeFeatureRequest is a named set of requirements on the features of a node. A pod in the same namespace refers to it with the
// label assay.dev/feature-request.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodefeaturerequests,scope=Namespaced,shortName=nfreq
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.matchingNodes`
// +kubebuilder:printcolumn:name="Satisfiable",type=string,JSONPath=`.status.conditions[?(@.type=="Satisfiable")].status`
// +kubebuilder:printcolumn:name="Label",type=string,JSONPath=`.status.label`
// +kubebuilder:printcolumn:name="Ready",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Satisfiable")].message`
type NodeFeatureRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the requirements and preferences.
	Spec NodeFeatureRequestSpec `json:"spec"`
	// status reports the nodes that meet the requirements.
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

// NodeFeatureRequestSpec is what pods that refer to the request require and prefer.
type NodeFeatureRequestSpec struct {
	PodRequirements `json:",inline"`
	// materialize says whether the controller keeps the label features.assay.dev/<namespace>.<name>=true on every node that meets
	// required, for node selectors, DaemonSets, autoscalers and all schedulers: Auto (the default) and Always within the number of
	// requests that the administrator allows, Never not at all. Required must not read rule.matched: Auto then leaves the requirements
	// to the extender, and Always is a warning.
	// +optional
	Materialize  Materialize `json:"materialize,omitempty"`
	LossResponse `json:",inline"`
}

// Materialize says whether nodes that meet a request are labeled.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:Enum=Auto;Always;Never
type Materialize string

// The modes of materialize. The empty string means Auto.
const (
	MaterializeAuto   Materialize = "Auto"
	MaterializeAlways Materialize = "Always"
	MaterializeNever  Materialize = "Never"
)

// UnmarshalJSON keeps a value of another type as its text, so that the review of the object can say what to write.
func (m *Materialize) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		s = string(data)
	}
	*m = Materialize(s)
	return nil
}

// LossAction is what happens to a node that no longer meets the requirements of pods that run on it.
//
// +kubebuilder:validation:Enum=Event;Taint
type LossAction string

// The actions on a loss. The empty string means Event.
const (
	LossEvent LossAction = "Event"
	LossTaint LossAction = "Taint"
)

// LossResponse is what happens when the node of a running pod no longer meets the requirements.
type LossResponse struct {
	// onLoss is what happens when the node of a running pod no longer meets required: Event (the default) emits an Event on the pod.
	// Taint also adds a taint to the node, after grace and at the pace of noExecuteBudget. It has an effect only if the administrator
	// has set lossTaint, and for pods in namespaces with the label assay.dev/on-loss=enabled.
	// +optional
	OnLoss LossAction `json:"onLoss,omitempty"`
	// grace is how long the node must lack the features without interruption before it is tainted, 5 minutes if absent.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be 1s or more"
	Grace *metav1.Duration `json:"grace,omitempty"`
}

// PodRequirements holds requirements and preferences of pods on the features of their node.
type PodRequirements struct {
	// required must match the node.
	// +optional
	Required *Requirement `json:"required,omitempty"`
	// preferred ranks the nodes that can run the pod: the scheduler prefers nodes with a higher sum of the weights that match.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Preferred []Preference `json:"preferred,omitempty"`
}

// RequestStatus reports the nodes that meet the requirements.
type RequestStatus struct {
	// observedGeneration is the generation of the spec that the controller processed last; -1 before the first time.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// matchingNodes is the number of nodes that meet the requirements.
	// +optional
	MatchingNodes *int32 `json:"matchingNodes,omitempty"`
	// sampleNodes lists the names of at most ten of these nodes.
	// +optional
	// +listType=atomic
	SampleNodes []string `json:"sampleNodes,omitempty"`
	// label is the label that the nodes have, if the request is materialized.
	// +optional
	Label string `json:"label,omitempty"`
	// conditions are Ready, Accepted (the requirements are valid), Satisfiable (at least one node meets them), Materialized (the nodes
	// are labeled), Withheld while onLoss has no effect, and Stalled while a user must act.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ConditionMaterialized reports whether the nodes that meet a request's requirements are labeled. It is absent if
// spec.materialize is Never.
const ConditionMaterialized = "Materialized"

// ConditionSatisfiable reports whether at least one node meets the requirements.
const ConditionSatisfiable = "Satisfiable"

// StalePolicy is how to treat a node whose features are older than staleAfter.
//
// +kubebuilder:validation:Enum=Trust;Reject
type StalePolicy string

// The policies for stale features. The empty string means Trust.
const (
	StaleTrust  StalePolicy = "Trust"
	StaleReject StalePolicy = "Reject"
)

// NodeFeatureSchedulingPolicy adds feature requirements to pods that it selects, so that workloads need no change.
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

	// spec selects pods and holds their requirements.
	Spec NodeFeatureSchedulingPolicySpec `json:"spec"`
	// status reports the nodes that meet the requirements.
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

// NodeFeatureSchedulingPolicySpec selects pods and holds their requirements.
type NodeFeatureSchedulingPolicySpec struct {
	// namespaceSelector selects the namespaces of the pods. If absent, it selects no namespace; if empty, it selects all
	// namespaces that are labeled for scheduling.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// podSelector selects pods by their labels. If absent, it selects all pods.
	// +optional
	PodSelector     *metav1.LabelSelector `json:"podSelector,omitempty"`
	PodRequirements `json:",inline"`
	// schedulerName is set on selected pods that use the default scheduler.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	SchedulerName string `json:"schedulerName,omitempty"`
	// staleAfter is the age from which features are stale. If absent, features are never stale.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$`
	StaleAfter *metav1.Duration `json:"staleAfter,omitempty"`
	// onStale is how to treat a node with stale features: Trust (the default) uses them, Reject rejects the node.
	// +optional
	OnStale      StalePolicy `json:"onStale,omitempty"`
	LossResponse `json:",inline"`
}

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeFeatureRule turns the features of nodes into labels, annotations, taints and extended resources.
//
// All rules of the cluster are evaluated for each node: by phase, then by priority (higher first), then by the name of the
// object, then by their order in the list. The fields that Assay adds to the NFD API are optional; a rule without them behaves as in
// NFD.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodefeaturerules,scope=Cluster,shortName=nfr
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.phase`
// +kubebuilder:selectablefield:JSONPath=`.spec.scope`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.spec.phase`
// +kubebuilder:printcolumn:name="Sensitive",type=boolean,priority=1,JSONPath=`.spec.sensitive`
// +kubebuilder:printcolumn:name="Based-On",type=string,priority=1,JSONPath=`.spec.basedOn[*].name`
// +kubebuilder:printcolumn:name="Matched",type=integer,JSONPath=`.status.matchedNodes`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Healthy",type=string,JSONPath=`.status.conditions[?(@.type=="Healthy")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Conflicted",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Conflicted")].status`
// +kubebuilder:printcolumn:name="Withheld",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Withheld")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeFeatureRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec holds the rules and how they are evaluated.
	Spec NodeFeatureRuleSpec `json:"spec"`
	// status is the observed state of the rules.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status NodeFeatureRuleStatus `json:"status,omitempty"`
}

// NodeFeatureRuleList is a list of NodeFeatureRules.
//
// +kubebuilder:object:root=true
type NodeFeatureRuleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeFeatureRule `json:"items"`
}

// NodeFeatureRuleSpec holds rules and how they are evaluated. Assay adds every field except rules to the NFD API. They have no
// defaults in the schema, because an absent field may be inherited through basedOn.
//
// Rule names must be unique in an object with basedOn, because rules with the same name are combined. The CEL rule compares the
// names of up to 64 rules, because more names of 1 KiB would exceed the cost limit of the API server. It uses the CEL functions of
// Kubernetes 1.30 (lists have distinct() since 1.34).
//
// +kubebuilder:validation:XValidation:rule="has(self.rules) || has(self.basedOn) || has(self.rulesFrom)",message="there are no rules: write rules, basedOn or rulesFrom"
// +kubebuilder:validation:XValidation:rule="!(has(self.basedOn) && self.basedOn.size() > 0 && has(self.rules) && self.rules.size() <= 64 && [self.rules.map(r, r.name)].exists(names, names.exists(n, !names.exists_one(m, m == n)))) || (oldSelf.hasValue() && has(oldSelf.value().basedOn) && oldSelf.value().basedOn.size() > 0 && has(oldSelf.value().rules) && oldSelf.value().rules.size() <= 64 && [oldSelf.value().rules.map(r, r.name)].exists(names, names.exists(n, !names.exists_one(m, m == n))))",message="two rules have the same name; rules of an object with basedOn combine by their name, so give them different names",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="!oldSelf.hasValue() || !has(oldSelf.value().sensitive) || !oldSelf.value().sensitive || (has(self.sensitive) && self.sensitive)",message="sensitive cannot be unset: delete the object and create it again",optionalOldSelf=true
type NodeFeatureRuleSpec struct {
	// description is the purpose of the rules, for users.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Description *string `json:"description,omitempty"`
	// phase is when the rules are evaluated: early, preprocess or main (the default). Rules in early read features only; rules in
	// preprocess also read the metadata of the Node; both can derive features and variables. Rules in early write nothing on the
	// Node, and rules in preprocess only through the actions set-attribute, extend-attribute and del-attribute. Rules in main write
	// all outputs and derive no features.
	// +optional
	Phase *Phase `json:"phase,omitempty"`
	// priority orders the objects of one phase, from 0 (the default) to 9999, higher first. If two rules write the same key, the
	// output of the higher priority wins; on equal priority, the later output wins.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9999
	Priority *int32 `json:"priority,omitempty"`
	// nodeSelector selects the nodes for which the rules are evaluated by the labels of the Node. If absent, it selects all nodes.
	// Labels that rules write are ignored, so that a rule cannot disable itself.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// scope is a short form of a nodeSelector on the label assay.dev/scope. If both are set, both must match.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Scope *string `json:"scope,omitempty"`
	// sensitive hides the conditions and actions of these rules and the details of their errors wherever Assay shows rules. It cannot
	// be unset.
	// +optional
	Sensitive *bool `json:"sensitive,omitempty"`
	// featureSources is a regular expression that selects the NodeFeatures that these rules read, by namespace/name. If absent, the
	// rules read all NodeFeatures.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	FeatureSources *string `json:"featureSources,omitempty"`
	// minimumVersion is the oldest version of Assay that supports these rules. An older version ignores them and reports that in a
	// condition.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	MinimumVersion *string `json:"minimumVersion,omitempty"`
	// basedOn lists NodeFeatureRuleTemplates whose rules and settings this object inherits.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	BasedOn []Base `json:"basedOn,omitempty"`
	// rulesFrom reads additional rules from Secrets in the namespace of the manager, for rules that must stay confidential.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	RulesFrom []RulesSource `json:"rulesFrom,omitempty"`
	// rules are evaluated in order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Rules []Rule `json:"rules"`
}

// Phase is a stage of the evaluation.
//
// +kubebuilder:validation:Enum=early;preprocess;main
type Phase string

// The phases, in their order.
const (
	PhaseEarly      Phase = "early"
	PhasePreprocess Phase = "preprocess"
	PhaseMain       Phase = "main"
)

// Base is a reference to a template.
type Base struct {
	// name is the name of a NodeFeatureRuleTemplate.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// digest pins the content of the template: sha256:HEX of its own spec, or tree:sha256:HEX of its spec merged with its own bases.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Digest string `json:"digest,omitempty"`
	// exclude lists names of rules that are not inherited. A * matches any sequence of characters.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	Exclude []string `json:"exclude,omitempty"`
}

// RulesSource is a source of additional rules.
//
// +kubebuilder:validation:XValidation:rule="has(self.secretKeyRef)",message="the source of the rules is missing: set secretKeyRef"
type RulesSource struct {
	// secretKeyRef selects a key of a Secret in the namespace of the manager. Its value is a YAML list of rules.
	// +optional
	SecretKeyRef *KeyRef `json:"secretKeyRef,omitempty"`
}

// TemplateSource is a source of a Go template.
//
// +kubebuilder:validation:XValidation:rule="has(self.configMapKeyRef)",message="the source of the template is missing: set configMapKeyRef"
type TemplateSource struct {
	// configMapKeyRef selects a key of a ConfigMap in the namespace of the manager.
	// +optional
	ConfigMapKeyRef *KeyRef `json:"configMapKeyRef,omitempty"`
}

// KeyRef selects a key of an object in the namespace of the manager.
type KeyRef struct {
	// name is the name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// key is the key in the data of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// Rule writes its outputs to the nodes that match. A rule without matchers and conditions matches every node.
//
// +kubebuilder:validation:XValidation:rule="!has(self.labelsTemplateFrom) || !has(self.labelsTemplate) || self.labelsTemplate.size() == 0",message="labelsTemplate and labelsTemplateFrom are mutually exclusive"
// +kubebuilder:validation:XValidation:rule="!has(self.varsTemplateFrom) || !has(self.varsTemplate) || self.varsTemplate.size() == 0",message="varsTemplate and varsTemplateFrom are mutually exclusive"
type Rule struct {
	// name identifies the rule in messages. A rule with the name * holds defaults for the rules before it and for rules that are
	// based on it.
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name"`
	// labels are written if the rule matches. A name without a prefix gets the prefix feature.node.kubernetes.io/. A value of the
	// form @domain.feature.element is replaced by the value of that attribute.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=256
	Labels map[string]string `json:"labels"`
	// labelsTemplate is a Go template that expands to labels, one name=value per line. Its input is the elements that matched. If
	// labels sets the same name, labels wins.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	LabelsTemplate string `json:"labelsTemplate"`
	// annotations are written if the rule matches.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=256
	Annotations map[string]string `json:"annotations"`
	// vars are variables. Later rules read them, and the labels, as elements of the feature rule.matched. They are not written on
	// the Node.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=256
	Vars map[string]string `json:"vars"`
	// varsTemplate is a Go template that expands to variables, one name=value per line.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	VarsTemplate string `json:"varsTemplate"`
	// taints are written if the rule matches and taints are enabled in the controller.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Taints []corev1.Taint `json:"taints,omitempty"`
	// extendedResources are advertised if the rule matches. A value is an integer or @domain.feature.element.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=256
	ExtendedResources map[string]string `json:"extendedResources"`
	// matchFeatures lists terms that must all match.
	// +optional
	MatchFeatures FeatureMatcher `json:"matchFeatures"`
	// matchAny lists alternatives of which at least one must match.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	MatchAny []MatchAnyElem `json:"matchAny"`

	// nodeConditions are set in the status of the Node if the rule matches. A condition that no rule sets any longer is removed. Assay
	// adds this field to the NFD API.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	NodeConditions []NodeCondition `json:"nodeConditions,omitempty"`
	// conditions must all be true, in addition to matchFeatures and matchAny. Assay adds this field to the NFD API.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Conditions []Condition `json:"conditions,omitempty"`
	// actions run in order after the outputs above if the rule matches. Assay adds this field to the NFD API.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Actions []Action `json:"actions,omitempty"`
	// loop produces the outputs once for each item of a list. It is a list, or a string with one {expression} that returns a list.
	// Assay adds this field to the NFD API.
	// +optional
	Loop *JSON `json:"loop,omitempty"`
	// expressions is how strings in this rule are read: Auto expands {expressions} and keeps other braces, Strict rejects other
	// braces, Disabled expands nothing. Assay adds this field to the NFD API.
	// +optional
	Expressions ExpressionMode `json:"expressions,omitempty"`
	// labelsTemplateFrom reads labelsTemplate from another object. Assay adds this field to the NFD API.
	// +optional
	LabelsTemplateFrom *TemplateSource `json:"labelsTemplateFrom,omitempty"`
	// varsTemplateFrom reads varsTemplate from another object. Assay adds this field to the NFD API.
	// +optional
	VarsTemplateFrom *TemplateSource `json:"varsTemplateFrom,omitempty"`
}

// NodeCondition is a condition in the status of a Node.
type NodeCondition struct {
	// type is the type of the condition, with a namespace of your own: example.com/DriverReady. Types of Kubernetes and of its SIGs
	// cannot be set.
	// +kubebuilder:validation:MaxLength=1024
	Type string `json:"type"`
	// status is True, False or Unknown, or an {expression} with one of these values in any case.
	// +kubebuilder:validation:MaxLength=1024
	Status string `json:"status"`
	// reason is a word in CamelCase that programs can read.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// message explains the status to users.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// ExpressionMode is how braces in the strings of a rule are read.
//
// +kubebuilder:validation:Enum=Auto;Strict;Disabled
type ExpressionMode string

// The expression modes. The empty string means Auto.
const (
	ExpressionsAuto     ExpressionMode = "Auto"
	ExpressionsStrict   ExpressionMode = "Strict"
	ExpressionsDisabled ExpressionMode = "Disabled"
)

// Condition is an operator with named arguments that must be true.
type Condition struct {
	// op is one of eq, lt, gt, is-empty, is-none, is-true, is-false, in-net, contains, matches, one-of, or its CamelCase form. A
	// leading ! inverts the condition; prefer invert, because an unquoted ! is a tag in YAML.
	// +kubebuilder:validation:MaxLength=64
	Op string `json:"op"`
	// args are the named arguments of the operator. Strings in them can contain {expressions}.
	// +optional
	Args JSON `json:"args,omitempty,omitzero"`
	// invert negates the condition.
	// +optional
	Invert bool `json:"invert,omitempty"`
	// loop evaluates the condition once for each item of a list. It is a list, or a string with one {expression} that returns a list.
	// +optional
	Loop *JSON `json:"loop,omitempty"`
	// multiple is how the results of a loop are combined: any (the default), all, first or last.
	// +optional
	// +kubebuilder:validation:Enum=any;all;first;last
	Multiple string `json:"multiple,omitempty"`
}

// Action is an operation on nodes that match, for outputs that the maps of a rule cannot express.
type Action struct {
	// op is one of set-attribute, extend-attribute, del-attribute, set-var, extend-var, unset-var, set-feature,
	// extend-feature, unset-feature, set-instance-attribute, extend-instance-attribute, del-instance-attribute, fail, log,
	// event.
	// +kubebuilder:validation:MaxLength=64
	Op string `json:"op"`
	// args are the named arguments of the action. Strings in them can contain {expressions}.
	// +optional
	Args JSON `json:"args,omitempty,omitzero"`
	// loop runs the action once for each item of a list. It is a list, or a string with one {expression} that returns a list.
	// +optional
	Loop *JSON `json:"loop,omitempty"`
}

// NodeFeatureRuleStatus is the observed state of the rules.
type NodeFeatureRuleStatus struct {
	// observedGeneration is the generation of the spec that the controller processed last; -1 before the first time.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// matchedNodes is the number of nodes that at least one of the rules matches.
	// +optional
	MatchedNodes *int32 `json:"matchedNodes,omitempty"`
	// effectiveHash identifies the rules after merging their bases.
	// +optional
	EffectiveHash string `json:"effectiveHash,omitempty"`
	// origins lists the template of each rule that was inherited.
	// +optional
	// +listType=atomic
	Origins []RuleOrigin `json:"origins,omitempty"`
	// conditions are Ready (Accepted and Resolved), Accepted (the rules are valid), Resolved (every object they refer to exists),
	// Healthy (they are evaluated on every node without error), Conflicted (another rule wins a key that these rules write). Stalled
	// (a user must act) and Withheld (a setting of the controller keeps outputs off the nodes) are absent unless True. Rejecting (a fail
	// action prevents changes to nodes) and Flapping (keys of some nodes change too often and are left as they are for a while) are absent
	// until they are True for the first time.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RuleOrigin is the template that a rule was inherited from.
type RuleOrigin struct {
	// rule is the name of the rule.
	Rule string `json:"rule"`
	// from is the name of the NodeFeatureRuleTemplate.
	From string `json:"from"`
}

// The types of conditions. All kinds with a status have Ready, Accepted and, while it is True, Stalled. Only a NodeFeatureRule has
// the others.
const (
	// ConditionReady combines Accepted and Resolved, with the reason of the first of them that is False. It does not depend on
	// anything else: a rule that fails on one node must not block `helm --wait` or Flux.
	ConditionReady = "Ready"
	// ConditionStalled is absent unless it is True: a user must act. kstatus reports it as failed.
	ConditionStalled = "Stalled"
	// ConditionWithheld is absent unless it is True: a setting of the controller prevents outputs of the rules from being written.
	ConditionWithheld   = "Withheld"
	ConditionAccepted   = "Accepted"
	ConditionResolved   = "Resolved"
	ConditionHealthy    = "Healthy"
	ConditionConflicted = "Conflicted"
	// ConditionRejecting exists only after a fail action has prevented changes to a node.
	ConditionRejecting = "Rejecting"
	// ConditionFlapping exists only after keys of the rules changed too often on a node. While it is True, the controller leaves some of them
	// as they are.
	ConditionFlapping = "Flapping"
)

// ReasonForbidden is the reason of Healthy=False if the API server does not let the controller write what the rules give.
const ReasonForbidden = "Forbidden"

// ReasonTooManyNodes is the reason of Withheld=True while the rules would hit too many nodes at once because of their health.
const ReasonTooManyNodes = "TooManyNodes"

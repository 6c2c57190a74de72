package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeFeatureRule turns the features of nodes into labels, annotations, taints and extended resources.
//
// All rules of the cluster are evaluated for each node: by phase, then by priority (higher first), then by the name of the
// object, then by their order in the list. The fields that NFD does not know are optional; a rule without them means what
// it means in NFD.
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

	// The rules, and how they are evaluated.
	Spec NodeFeatureRuleSpec `json:"spec"`
	// What became of them.
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

// NodeFeatureRuleSpec holds rules and how they are evaluated. Every field but rules is an addition of Assay. None has a
// default here: an absent field may be inherited through basedOn, and a default would make "absent" invisible.
//
// Names of rules are unique in an object with basedOn, where rules of one name combine. The names of up to 64 rules are compared:
// with names of 1 KiB, more would exceed the cost that an API server allows. The rule is written with what CEL has in Kubernetes
// 1.30 (lists have distinct() from 1.34 on).
//
// +kubebuilder:validation:XValidation:rule="has(self.rules) || has(self.basedOn) || has(self.rulesFrom)",message="there are no rules: write rules, basedOn or rulesFrom"
// +kubebuilder:validation:XValidation:rule="!(has(self.basedOn) && self.basedOn.size() > 0 && has(self.rules) && self.rules.size() <= 64 && [self.rules.map(r, r.name)].exists(names, names.exists(n, !names.exists_one(m, m == n)))) || (oldSelf.hasValue() && has(oldSelf.value().basedOn) && oldSelf.value().basedOn.size() > 0 && has(oldSelf.value().rules) && oldSelf.value().rules.size() <= 64 && [oldSelf.value().rules.map(r, r.name)].exists(names, names.exists(n, !names.exists_one(m, m == n))))",message="two rules have the same name; rules of an object with basedOn combine by their name, so give them different names",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="!oldSelf.hasValue() || !has(oldSelf.value().sensitive) || !oldSelf.value().sensitive || (has(self.sensitive) && self.sensitive)",message="sensitive cannot be taken back: delete the object and create it again",optionalOldSelf=true
type NodeFeatureRuleSpec struct {
	// Description says what the rules are for.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Description *string `json:"description,omitempty"`
	// Phase says when the rules are evaluated: early sees features only; preprocess sees the Node's metadata as well; both
	// may derive features and variables. On the Node early writes nothing, and preprocess only what the actions
	// set-attribute, extend-attribute and del-attribute do. main, the default, writes there and derives no features.
	// +optional
	Phase *Phase `json:"phase,omitempty"`
	// Priority orders the objects of one phase: 0 to 9999, higher first, 0 if absent. Where two rules write the same key,
	// the one with the higher priority keeps it; at equal priority the later one does.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9999
	Priority *int32 `json:"priority,omitempty"`
	// NodeSelector chooses the nodes that the rules are evaluated for, by the labels of the Node; all nodes if absent.
	// Labels that rules write are not seen, so that a rule cannot switch itself off.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// Scope is short for a nodeSelector on the label assay.dev/scope. Both hold if both are set.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Scope *string `json:"scope,omitempty"`
	// Sensitive hides the conditions and actions of these rules wherever Assay shows rules, and makes errors terse. It
	// cannot be taken back.
	// +optional
	Sensitive *bool `json:"sensitive,omitempty"`
	// FeatureSources is a regular expression on namespace/name of the NodeFeatures whose features these rules see; all if
	// absent.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	FeatureSources *string `json:"featureSources,omitempty"`
	// MinimumVersion is the oldest version of Assay that understands these rules. An older one leaves them alone and says so.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	MinimumVersion *string `json:"minimumVersion,omitempty"`
	// BasedOn names NodeFeatureRuleTemplates whose rules and settings these rules start from.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	BasedOn []Base `json:"basedOn,omitempty"`
	// RulesFrom reads further rules from Secrets in the manager's namespace, for rules that not everyone may read.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	RulesFrom []RulesSource `json:"rulesFrom,omitempty"`
	// Rules are evaluated in order.
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

// Base is something that rules are based on.
type Base struct {
	// Name of a NodeFeatureRuleTemplate.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Digest pins what the template's spec must be: sha256:HEX of its own spec, or tree:sha256:HEX of what it becomes
	// together with its own bases.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Digest string `json:"digest,omitempty"`
	// Exclude leaves out inherited rules by name; * stands for any run of characters.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	Exclude []string `json:"exclude,omitempty"`
}

// RulesSource is where further rules are read from.
//
// +kubebuilder:validation:XValidation:rule="has(self.secretKeyRef)",message="say where the rules are: secretKeyRef"
type RulesSource struct {
	// SecretKeyRef is a key of a Secret in the manager's namespace that holds a YAML list of rules.
	// +optional
	SecretKeyRef *KeyRef `json:"secretKeyRef,omitempty"`
}

// TemplateSource is where the text of a template is read from.
//
// +kubebuilder:validation:XValidation:rule="has(self.configMapKeyRef)",message="say where the template is: configMapKeyRef"
type TemplateSource struct {
	// ConfigMapKeyRef is a key of a ConfigMap in the manager's namespace.
	// +optional
	ConfigMapKeyRef *KeyRef `json:"configMapKeyRef,omitempty"`
}

// KeyRef names one key of an object in the manager's namespace.
type KeyRef struct {
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Key in its data.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// Rule creates its outputs on the nodes that match it. A rule without any matcher or condition matches every node.
//
// +kubebuilder:validation:XValidation:rule="!has(self.labelsTemplateFrom) || !has(self.labelsTemplate) || self.labelsTemplate.size() == 0",message="labelsTemplate and labelsTemplateFrom exclude each other"
// +kubebuilder:validation:XValidation:rule="!has(self.varsTemplateFrom) || !has(self.varsTemplate) || self.varsTemplate.size() == 0",message="varsTemplate and varsTemplateFrom exclude each other"
type Rule struct {
	// Name of the rule, for messages. A rule named * gives defaults to the rules before it and to those that are based on
	// it.
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name"`
	// Labels to create if the rule matches. A name without a namespace gets feature.node.kubernetes.io/. A value of the
	// form @domain.feature.element is replaced by the value of that attribute.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=256
	Labels map[string]string `json:"labels"`
	// LabelsTemplate is a Go template that expands to lines of the form name=value, each a label. It is given the elements
	// that matched. Labels win over it.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	LabelsTemplate string `json:"labelsTemplate"`
	// Annotations to create if the rule matches.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=256
	Annotations map[string]string `json:"annotations"`
	// Vars are not written anywhere; rules after this one see them, and the labels, as elements of the feature
	// rule.matched.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=256
	Vars map[string]string `json:"vars"`
	// VarsTemplate is to vars what labelsTemplate is to labels.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	VarsTemplate string `json:"varsTemplate"`
	// Taints to create if the rule matches, and taints are enabled.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Taints []corev1.Taint `json:"taints,omitempty"`
	// ExtendedResources to advertise if the rule matches: whole numbers, or @domain.feature.element.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=256
	ExtendedResources map[string]string `json:"extendedResources"`
	// MatchFeatures are terms that must all hold.
	// +optional
	MatchFeatures FeatureMatcher `json:"matchFeatures"`
	// MatchAny are alternatives, of which one must hold.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	MatchAny []MatchAnyElem `json:"matchAny"`

	// Conditions must all hold, together with matchFeatures and matchAny (an addition of Assay).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Conditions []Condition `json:"conditions,omitempty"`
	// Actions are carried out in order, after the maps above, if the rule matches (an addition of Assay).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Actions []Action `json:"actions,omitempty"`
	// Loop produces the outputs once for each item: a list of anything, or one {expression} that gives a list (an addition
	// of Assay).
	// +optional
	Loop *JSON `json:"loop,omitempty"`
	// Expressions says what braces mean in this rule: Auto expands {expressions} and leaves other braces alone, Strict
	// refuses other braces, Disabled takes all text as it is (an addition of Assay).
	// +optional
	Expressions ExpressionMode `json:"expressions,omitempty"`
	// LabelsTemplateFrom reads labelsTemplate from elsewhere (an addition of Assay).
	// +optional
	LabelsTemplateFrom *TemplateSource `json:"labelsTemplateFrom,omitempty"`
	// VarsTemplateFrom reads varsTemplate from elsewhere (an addition of Assay).
	// +optional
	VarsTemplateFrom *TemplateSource `json:"varsTemplateFrom,omitempty"`
}

// ExpressionMode says what braces in the text of a rule mean.
//
// +kubebuilder:validation:Enum=Auto;Strict;Disabled
type ExpressionMode string

// The modes. An empty one is Auto.
const (
	ExpressionsAuto     ExpressionMode = "Auto"
	ExpressionsStrict   ExpressionMode = "Strict"
	ExpressionsDisabled ExpressionMode = "Disabled"
)

// Condition is something that must hold, said with an operator and named arguments.
type Condition struct {
	// Op is one of eq, lt, gt, is-empty, is-none, is-true, is-false, in-net, contains, matches, one-of, or its CamelCase
	// spelling. A ! before it inverts it; invert is the safer spelling, since an unquoted ! is a tag in YAML.
	// +kubebuilder:validation:MaxLength=64
	Op string `json:"op"`
	// Args are the operator's arguments, by name. Text in them may hold {expressions}.
	// +optional
	Args JSON `json:"args,omitempty,omitzero"`
	// Invert makes the condition hold where it otherwise would not.
	// +optional
	Invert bool `json:"invert,omitempty"`
	// Loop evaluates the condition once for each item: a list of anything, or one {expression} that gives a list.
	// +optional
	Loop *JSON `json:"loop,omitempty"`
	// Multiple says how the turns of a loop combine: any of them (the default), all, only the first, only the last.
	// +optional
	// +kubebuilder:validation:Enum=any;all;first;last
	Multiple string `json:"multiple,omitempty"`
}

// Action is something to do on nodes that match, for what the maps of a rule cannot say.
type Action struct {
	// Op is one of set-attribute, extend-attribute, del-attribute, set-var, extend-var, unset-var, set-feature,
	// extend-feature, unset-feature, set-instance-attribute, extend-instance-attribute, del-instance-attribute, fail, log,
	// event.
	// +kubebuilder:validation:MaxLength=64
	Op string `json:"op"`
	// Args are the action's arguments, by name. Text in them may hold {expressions}.
	// +optional
	Args JSON `json:"args,omitempty,omitzero"`
	// Loop carries the action out once for each item: a list of anything, or one {expression} that gives a list.
	// +optional
	Loop *JSON `json:"loop,omitempty"`
}

// NodeFeatureRuleStatus says what became of the rules.
type NodeFeatureRuleStatus struct {
	// ObservedGeneration is the generation of the spec that the status describes; -1 before the first one.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// MatchedNodes is how many nodes at least one of the rules matches.
	// +optional
	MatchedNodes *int32 `json:"matchedNodes,omitempty"`
	// EffectiveHash identifies what the rules came to be, together with what they are based on.
	// +optional
	EffectiveHash string `json:"effectiveHash,omitempty"`
	// Origins says of each rule that came from a template which one it came from.
	// +optional
	// +listType=atomic
	Origins []RuleOrigin `json:"origins,omitempty"`
	// Conditions: Ready (Accepted and Resolved), Accepted (the rules are understood), Resolved (everything they refer to exists),
	// Healthy (they could be evaluated on every node), Conflicted (another rule keeps a key that these rules write). Stalled
	// (a user must act) and Withheld (a setting of the controller keeps outputs from the nodes) are absent unless True.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RuleOrigin says where a rule came from.
type RuleOrigin struct {
	// Rule is the rule's name.
	Rule string `json:"rule"`
	// From is the name of the NodeFeatureRuleTemplate.
	From string `json:"from"`
}

// The types of conditions. All kinds with a status have Ready, Accepted and, while it is True, Stalled; the others are on a
// NodeFeatureRule.
const (
	// ConditionReady is Accepted and Resolved, with the reason of the first of them that is False. Nothing else changes it:
	// one node on which a rule fails must not keep `helm --wait` or Flux waiting.
	ConditionReady = "Ready"
	// ConditionStalled is absent unless True, which means that a user must act. kstatus reads it as failed.
	ConditionStalled = "Stalled"
	// ConditionWithheld is absent unless True: a setting of the controller keeps outputs of the rules from the nodes.
	ConditionWithheld   = "Withheld"
	ConditionAccepted   = "Accepted"
	ConditionResolved   = "Resolved"
	ConditionHealthy    = "Healthy"
	ConditionConflicted = "Conflicted"
	// ConditionRejecting is there only once an action fail has kept a node as it was.
	ConditionRejecting = "Rejecting"
)

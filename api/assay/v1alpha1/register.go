package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of the kinds in this package, and the prefix of labels and annotations that only Assay has.
const GroupName = "assay.dev"

// GroupVersion is the group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// AddToScheme adds the kinds in this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&NodeFeatureRuleTemplate{}, &NodeFeatureRuleTemplateList{},
		&NodeFeatureRequest{}, &NodeFeatureRequestList{},
		&NodeFeatureSchedulingPolicy{}, &NodeFeatureSchedulingPolicyList{},
		&NodeFeatureSet{}, &NodeFeatureSetList{},
		&NodeShape{}, &NodeShapeList{},
		&NodeBaseline{}, &NodeBaselineList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// DefinitionVersion is the version of the schemas of all CustomResourceDefinitions of Assay together. It increases when a field is added or
// removed, so that a definition with a lower version is older and one with a higher version newer than this program.
const DefinitionVersion = 1

// Names that Assay writes or reads on Nodes, Pods, Namespaces and its own objects.
const (
	// ScopeLabel on a Node is its scope. Rules with a scope apply only to nodes with the same scope.
	ScopeLabel = GroupName + "/scope"
	// RequiredFeaturesAnnotation on a Pod contains, as YAML, the requirements that its node must meet.
	RequiredFeaturesAnnotation = GroupName + "/required-features"
	// PreferredFeaturesAnnotation on a Pod contains, as YAML, the requirements that its node should meet.
	PreferredFeaturesAnnotation = GroupName + "/preferred-features"
	// FeatureRequestLabel on a Pod is the name of a NodeFeatureRequest in its namespace.
	FeatureRequestLabel = GroupName + "/feature-request"
	// RequestLabelNamespace is the namespace of the labels of nodes that meet materialized NodeFeatureRequests. No rule may
	// write in it.
	RequestLabelNamespace = "features." + GroupName
	// StartupTaintNamespace is the namespace of the keys of taints that Cluster Autoscaler expects to be removed from new nodes.
	StartupTaintNamespace = "startup-taint.cluster-autoscaler.kubernetes.io"
	// RequirementHashAnnotation on a Pod is a hash of its requirements at its creation.
	RequirementHashAnnotation = GroupName + "/requirement-hash"
	// FeaturesGenerationAnnotation on a Node changes with its effective features, so that the scheduler retries unschedulable pods.
	FeaturesGenerationAnnotation = GroupName + "/features-generation"
	// SchedulingLabel on a Namespace enables NodeFeatureSchedulingPolicies for its pods if it has the value below.
	SchedulingLabel        = GroupName + "/scheduling"
	SchedulingLabelEnabled = "enabled"
	// OnLossLabel on a Namespace lets nodes be tainted because they lost features that pods in it require, if it has the value below.
	OnLossLabel        = GroupName + "/on-loss"
	OnLossLabelEnabled = "enabled"
	// SchedulerLabel on a Namespace is the scheduler for pods that require features and have the default scheduler.
	SchedulerLabel = GroupName + "/scheduler"
	// CreatedByNodeLabel on a NodeFeatureSet is the name of the Node whose worker created it.
	CreatedByNodeLabel = GroupName + "/created-by-node"
	// DefinitionVersionAnnotation on a CustomResourceDefinition of Assay's kinds is the DefinitionVersion of the program that it comes from.
	// Definitions of other programs, such as Node Feature Discovery's, lack it.
	DefinitionVersionAnnotation = GroupName + "/definition-version"
	// MissingFeatureSetsAnnotation on a NodeFeature lists the NodeFeatureSets that it refers to and that do not exist: sorted
	// names, separated by commas. The worker of the node creates them again.
	MissingFeatureSetsAnnotation = GroupName + "/missing-feature-sets"
	// PrunedFeatureSets in that annotation means that the API server dropped spec.featureSets: the worker reads its NodeFeature again.
	PrunedFeatureSets = "*"
	// InlineFeatureSet before the name of a NodeFeatureSet in that annotation means that its name was taken by wrong content again and
	// again: the worker publishes the feature in its NodeFeature.
	InlineFeatureSet = "!"
	// FeatureSetsAnnotation on a NodeFeature is the number of NodeFeatureSets that its worker named in spec.featureSets. A
	// CustomResourceDefinition without that field drops the names, but not the annotation.
	FeatureSetsAnnotation = GroupName + "/feature-sets"
	// InvalidConfigurationAnnotation on the NodeFeature of a worker has the errors of a changed configuration, while the worker keeps the
	// previous one.
	InvalidConfigurationAnnotation = GroupName + "/invalid-configuration"
	// UnusedSinceAnnotation on a NodeFeatureSet is the time, in RFC 3339, since which no NodeFeature refers to it.
	UnusedSinceAnnotation = GroupName + "/unused-since"
	// FeatureSetMarker is the name of the ConfigMap in Assay's namespace with which a controller announces that it reads
	// NodeFeatureSets. FeatureSetFormatAnnotation on it is the format version that the controller reads.
	FeatureSetMarker           = "assay-feature-sets"
	FeatureSetFormatAnnotation = GroupName + "/feature-set-format"
	// AnnouncedByAnnotation on that ConfigMap is "LEASE/HOLDER": the Lease of the controller that announced, in the same namespace, and
	// its holder at that time. If another controller holds the Lease, for example an older one after a rollback, workers ignore the
	// announcement. A controller without leader election has no Lease and does not write the annotation.
	AnnouncedByAnnotation = GroupName + "/announced-by"
	// EncodedInstancesAnnotation on that ConfigMap has the value EncodedInstancesEnabled if the controller reads
	// spec.encodedInstances of NodeFeatures.
	EncodedInstancesAnnotation = GroupName + "/encoded-instances"
	EncodedInstancesEnabled    = "enabled"
	// KnownFeatureSetsAnnotation on that ConfigMap lists NodeFeatureSets that exist, separated by commas, so that a worker need not
	// read each of them before it names it.
	KnownFeatureSetsAnnotation = GroupName + "/known-feature-sets"
	// NodeConditionsAnnotation on a Node lists the types of the conditions that the controller owns there: sorted, separated by commas.
	NodeConditionsAnnotation = GroupName + "/node-conditions"
	// FeaturesReadyCondition is the type of the condition of a Node that is True once all rules are applied to the features
	// that its worker has published since the node booted.
	FeaturesReadyCondition = GroupName + "/FeaturesReady"
	// ReasonLabelsUnmet is the reason of FeaturesReady while a node that has just joined has labels of NodeFeatureRequests that it does
	// not meet.
	ReasonLabelsUnmet = "LabelsUnmet"
	// ReasonSourcesUnread is the reason of FeaturesReady while the worker has not read all of its sources since the node booted.
	ReasonSourcesUnread = "SourcesUnread"
	// ReasonWaitingForDrivers is the reason of FeaturesReady while DRA drivers that have published devices on the node have not published all of
	// them since it booted.
	ReasonWaitingForDrivers = "WaitingForDrivers"
	// FailedAnnotation on a Node is the rule whose fail action prevents changes to its labels.
	FailedAnnotation = GroupName + "/failed"
)

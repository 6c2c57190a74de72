package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of the kinds of this package, and the namespace of the labels and annotations that are
// Assay's alone.
const GroupName = "assay.dev"

// GroupVersion is the group and version that the kinds of this package are served under.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// AddToScheme registers the kinds of this package with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&NodeFeatureRuleTemplate{}, &NodeFeatureRuleTemplateList{},
		&NodeFeatureRequest{}, &NodeFeatureRequestList{},
		&NodeFeatureSchedulingPolicy{}, &NodeFeatureSchedulingPolicyList{},
		&NodeFeatureSet{}, &NodeFeatureSetList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Names that Assay writes or reads on Nodes and Pods.
const (
	// ScopeLabel on a Node says which rules with a scope apply to it.
	ScopeLabel = GroupName + "/scope"
	// RequiredFeaturesAnnotation on a Pod holds, as YAML, what its node must be able to do.
	RequiredFeaturesAnnotation = GroupName + "/required-features"
	// PreferredFeaturesAnnotation on a Pod holds, as YAML, what its node had better be able to do.
	PreferredFeaturesAnnotation = GroupName + "/preferred-features"
	// FeatureRequestLabel on a Pod names a NodeFeatureRequest of its namespace.
	FeatureRequestLabel = GroupName + "/feature-request"
	// RequirementHashAnnotation on a Pod is the hash of what it asked for when it was created.
	RequirementHashAnnotation = GroupName + "/requirement-hash"
	// FeaturesGenerationAnnotation on a Node changes whenever its effective features do, so that the scheduler looks again
	// at pods that it could not place.
	FeaturesGenerationAnnotation = GroupName + "/features-generation"
	// MarkerResource and PreferenceMarkerResource are the extended resources that mark pods for an extender attached to the
	// default scheduler: those for which it has to leave out nodes, and those for which it has to score them.
	MarkerResource           = GroupName + "/features"
	PreferenceMarkerResource = GroupName + "/preferences"
	// SchedulingLabel on a Namespace says that NodeFeatureSchedulingPolicies apply to its pods, with the value below.
	SchedulingLabel        = GroupName + "/scheduling"
	SchedulingLabelEnabled = "enabled"
	// SchedulerLabel on a Namespace names the scheduler of pods that ask for features and left theirs at the default.
	SchedulerLabel = GroupName + "/scheduler"
	// CreatedByNodeLabel on a NodeFeatureSet is the name of the Node whose worker created it.
	CreatedByNodeLabel = GroupName + "/created-by-node"
	// MissingFeatureSetsAnnotation on a NodeFeature lists the NodeFeatureSets that it names and the controller cannot find: sorted
	// names, separated by commas. The worker of the node creates them again.
	MissingFeatureSetsAnnotation = GroupName + "/missing-feature-sets"
	// FeatureSetMarker is the name of the ConfigMap in Assay's namespace by which a controller announces that it reads
	// NodeFeatureSets, and FeatureSetFormatAnnotation on it is the format version that it reads.
	FeatureSetMarker           = "assay-feature-sets"
	FeatureSetFormatAnnotation = GroupName + "/feature-set-format"
	// FailedAnnotation on a Node says which rule's fail action keeps its labels as they are.
	FailedAnnotation = GroupName + "/failed"
)

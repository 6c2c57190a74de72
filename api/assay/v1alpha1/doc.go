// Package v1alpha1 contains the kinds of the API group assay.dev, which do not exist in NFD: NodeFeatureRuleTemplate,
// NodeFeatureRequest, NodeFeatureSchedulingPolicy, NodeFeatureSet, NodeShape and NodeBaseline.
//
// +kubebuilder:object:generate=true
// +groupName=assay.dev
package v1alpha1

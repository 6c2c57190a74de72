// Package v1alpha1 holds the kinds of the group assay.dev, which NFD does not have: NodeFeatureRuleTemplate,
// NodeFeatureRequest, NodeFeatureSchedulingPolicy and NodeFeatureSet.
//
// +kubebuilder:object:generate=true
// +groupName=assay.dev
package v1alpha1

// Package v1alpha1 holds the kinds of the group nfd.k8s-sigs.io: NodeFeature, NodeFeatureRule and NodeFeatureGroup.
//
// They are Node Feature Discovery's kinds, field for field and wire form for wire form, so that objects, clients and
// consumers of NFD go on working. Fields that Assay adds are optional and say so; an object without them means what it
// means in NFD.
//
// +kubebuilder:object:generate=true
// +groupName=nfd.k8s-sigs.io
package v1alpha1

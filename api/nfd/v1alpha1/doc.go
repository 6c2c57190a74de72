// Package v1alpha1 contains the kinds of the API group nfd.k8s-sigs.io: NodeFeature, NodeFeatureRule and NodeFeatureGroup.
//
// They have the same fields and encoding as Node Feature Discovery's kinds, so that objects, clients and consumers of NFD continue
// to work. Fields that Assay adds are optional and documented as such; an object without them has the same meaning as in NFD.
//
// +kubebuilder:object:generate=true
// +groupName=nfd.k8s-sigs.io
package v1alpha1

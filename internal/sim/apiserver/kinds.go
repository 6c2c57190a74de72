package apiserver

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// Resources returns the built-in and custom resources that Assay uses.
func Resources() []*Resource {
	const nfd, assay = "nfd.k8s-sigs.io", "assay.dev"
	return []*Resource{
		{Version: "v1", Name: "nodes", Kind: "Node", Status: true, Typed: func() any { return &corev1.Node{} }},
		{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true, Status: true, Fields: podFields, Typed: func() any { return &corev1.Pod{} }},
		{Version: "v1", Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Typed: func() any { return &corev1.ConfigMap{} }},
		{Version: "v1", Name: "secrets", Kind: "Secret", Namespaced: true, Typed: func() any { return &corev1.Secret{} }},
		{Version: "v1", Name: "events", Kind: "Event", Namespaced: true, Typed: func() any { return &corev1.Event{} }},
		{Version: "v1", Name: "namespaces", Kind: "Namespace", Typed: func() any { return &corev1.Namespace{} }},
		{Group: "apps", Version: "v1", Name: "deployments", Kind: "Deployment", Namespaced: true, Status: true, Generation: true},
		{Group: "coordination.k8s.io", Version: "v1", Name: "leases", Kind: "Lease", Namespaced: true, Conditional: true, Typed: func() any { return &coordinationv1.Lease{} }},
		{Group: "resource.k8s.io", Version: "v1", Name: "resourceslices", Kind: "ResourceSlice", Generation: true, Fields: sliceFields, Typed: func() any { return &resourcev1.ResourceSlice{} }},
		{Group: "resource.k8s.io", Version: "v1", Name: "devicetaintrules", Kind: "DeviceTaintRule", Status: true, Generation: true, Typed: func() any { return &resourcev1.DeviceTaintRule{} }},
		{Group: "apiextensions.k8s.io", Version: "v1", Name: "customresourcedefinitions", Kind: "CustomResourceDefinition", Status: true, Generation: true},
		{Group: nfd, Version: "v1alpha1", Name: "nodefeatures", Kind: "NodeFeature", Namespaced: true, Generation: true},
		{Group: nfd, Version: "v1alpha1", Name: "nodefeaturerules", Kind: "NodeFeatureRule", Status: true, Generation: true, Observed: true},
		{Group: nfd, Version: "v1alpha1", Name: "nodefeaturegroups", Kind: "NodeFeatureGroup", Namespaced: true, Status: true, Generation: true, Observed: true},
		{Group: assay, Version: "v1alpha1", Name: "nodefeatureruletemplates", Kind: "NodeFeatureRuleTemplate", Status: true, Generation: true, Observed: true},
		{Group: assay, Version: "v1alpha1", Name: "nodefeaturesets", Kind: "NodeFeatureSet", Namespaced: true, Status: true, Generation: true, Immutable: true},
		{Group: assay, Version: "v1alpha1", Name: "nodeshapes", Kind: "NodeShape", Status: true, Generation: true},
		{Group: assay, Version: "v1alpha1", Name: "nodebaselines", Kind: "NodeBaseline", Status: true, Generation: true, Observed: true},
		{Group: assay, Version: "v1alpha1", Name: "nodefeaturerequests", Kind: "NodeFeatureRequest", Namespaced: true, Status: true, Generation: true, Observed: true},
		{Group: assay, Version: "v1alpha1", Name: "nodefeatureschedulingpolicies", Kind: "NodeFeatureSchedulingPolicy", Namespaced: false, Status: true, Generation: true, Observed: true},
	}
}

// podFields returns the fields of a Pod that can be selected, as far as controllers select them.
func podFields(o Object) fields.Set {
	spec, _ := o["spec"].(Object)
	status, _ := o["status"].(Object)
	return fields.Set{"spec.nodeName": text(spec, "nodeName"), "status.phase": text(status, "phase")}
}

// sliceFields returns the fields of a ResourceSlice that can be selected.
func sliceFields(o Object) fields.Set {
	spec, _ := o["spec"].(Object)
	return fields.Set{"spec.nodeName": text(spec, "nodeName"), "spec.driver": text(spec, "driver")}
}

// Package v1alpha2 contains the kind NodeResourceTopology of the API group topology.node.k8s.io, with the fields and the encoding of
// the original (github.com/k8stopologyawareschedwg/noderesourcetopology-api, KEP-2051 and its successors), so that schedulers that read
// it continue to work.
//
// +kubebuilder:object:generate=true
// +groupName=topology.node.k8s.io
package v1alpha2

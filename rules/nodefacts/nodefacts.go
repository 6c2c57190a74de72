// Package nodefacts turns what Kubernetes itself knows of a Node into features.
package nodefacts

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
)

// The features of the domain. A worker cannot know them, so the controller adds them to what workers publish.
const (
	// NodeFeature is what many nodes have alike.
	NodeFeature = "kubernetes.node"
	// ProviderFeature tells who provides the machine. It is apart from NodeFeature because its id differs on every node:
	// what is equal on many nodes is kept, and evaluated, once for all of them.
	ProviderFeature = "kubernetes.provider"
	// DeclaredFeature are the features that the kubelet declares, see KEP-5328.
	DeclaredFeature = "kubernetes.declaredfeature"
)

// Has reports whether a feature, in lower case, is one of the domain.
func Has(feature string) bool {
	return feature == NodeFeature || feature == ProviderFeature || feature == DeclaredFeature
}

// Of returns the facts of a Node; in may be nil. It reads what Part returns, so that a cache may drop the rest. Machine, system and boot IDs are identities and stay private. The Node is not modified.
func Of(node *corev1.Node, in *facts.Interner) *facts.Facts {
	return facts.New(Features(node), in)
}

// Part returns those parts of a Node that Of reads. They share with the Node.
func Part(node *corev1.Node) (corev1.NodeSpec, corev1.NodeStatus) {
	return corev1.NodeSpec{ProviderID: node.Spec.ProviderID},
		corev1.NodeStatus{NodeInfo: public(&node.Status.NodeInfo), DeclaredFeatures: node.Status.DeclaredFeatures}
}

// Same reports whether the facts of two Nodes are the same, without making them.
func Same(a, b *corev1.Node) bool {
	return a.Spec.ProviderID == b.Spec.ProviderID && public(&a.Status.NodeInfo) == public(&b.Status.NodeInfo) &&
		slices.Equal(a.Status.DeclaredFeatures, b.Status.DeclaredFeatures)
}

// public leaves out identities and what changes from one moment to the next.
func public(info *corev1.NodeSystemInfo) corev1.NodeSystemInfo {
	return corev1.NodeSystemInfo{
		KernelVersion: info.KernelVersion, OSImage: info.OSImage, ContainerRuntimeVersion: info.ContainerRuntimeVersion,
		KubeletVersion: info.KubeletVersion, OperatingSystem: info.OperatingSystem, Architecture: info.Architecture,
	}
}

// Features returns the features of a Node. Values are the Node's, but for the version of the container runtime, which
// stands there together with its name.
func Features(node *corev1.Node) *nfdv1alpha1.Features {
	info := &node.Status.NodeInfo
	runtime, version, _ := strings.Cut(info.ContainerRuntimeVersion, "://")
	f := &nfdv1alpha1.Features{
		Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{
			NodeFeature: {Elements: present(map[string]string{
				"architecture":              info.Architecture,
				"container_runtime":         runtime,
				"container_runtime_version": version,
				"kernel_version":            info.KernelVersion,
				"kubelet_version":           info.KubeletVersion,
				"operating_system":          info.OperatingSystem,
				"os_image":                  info.OSImage,
			})},
		},
		Flags: map[string]nfdv1alpha1.FlagFeatureSet{},
	}
	if id := node.Spec.ProviderID; id != "" {
		name, _, _ := strings.Cut(id, "://")
		f.Attributes[ProviderFeature] = nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{"name": name, "id": id}}
	}
	declared := make(map[string]nfdv1alpha1.Nil, len(node.Status.DeclaredFeatures))
	for _, name := range node.Status.DeclaredFeatures {
		declared[name] = nfdv1alpha1.Nil{}
	}
	f.Flags[DeclaredFeature] = nfdv1alpha1.FlagFeatureSet{Elements: declared}
	return f
}

// present drops what a Node does not say, as one does whose kubelet has not started yet.
func present(elements map[string]string) map[string]string {
	for name, value := range elements {
		if value == "" {
			delete(elements, name)
		}
	}
	return elements
}

package facts

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// Features that come from the Node object. The controller adds them to those that workers publish.
const (
	// NodeFeature holds attributes that are equal on many nodes.
	NodeFeature = "kubernetes.node"
	// ProviderFeature holds the ID that the cloud provider assigned to the machine. It is separate from NodeFeature because it
	// differs on every node, and equal features are stored and evaluated once.
	ProviderFeature = "kubernetes.provider"
	// DeclaredFeature holds the features that the kubelet declares (KEP-5328).
	DeclaredFeature = "kubernetes.declaredfeature"
)

// IsKubernetes reports whether the feature with this lower-case name comes from the Node object.
func IsKubernetes(feature string) bool {
	return feature == NodeFeature || feature == ProviderFeature || feature == DeclaredFeature
}

// FromNode returns the facts of a Node object; in may be nil. It reads only the parts that NodeParts returns, so that a cache may
// drop the rest. It omits the machine, system and boot IDs because they identify the machine. It does not modify the Node.
func FromNode(node *corev1.Node, in *Interner) *Facts {
	return New(NodeFeatures(node), in)
}

// NodeParts returns the parts of a Node that FromNode reads. They share memory with the Node.
func NodeParts(node *corev1.Node) (corev1.NodeSpec, corev1.NodeStatus) {
	return corev1.NodeSpec{ProviderID: node.Spec.ProviderID},
		corev1.NodeStatus{NodeInfo: public(&node.Status.NodeInfo), DeclaredFeatures: node.Status.DeclaredFeatures}
}

// SameNode reports whether FromNode returns equal facts for two Nodes.
func SameNode(a, b *corev1.Node) bool {
	return a.Spec.ProviderID == b.Spec.ProviderID && public(&a.Status.NodeInfo) == public(&b.Status.NodeInfo) &&
		slices.Equal(a.Status.DeclaredFeatures, b.Status.DeclaredFeatures)
}

// public returns info without IDs and values that change often.
func public(info *corev1.NodeSystemInfo) corev1.NodeSystemInfo {
	return corev1.NodeSystemInfo{
		KernelVersion: info.KernelVersion, OSImage: info.OSImage, ContainerRuntimeVersion: info.ContainerRuntimeVersion,
		KubeletVersion: info.KubeletVersion, OperatingSystem: info.OperatingSystem, Architecture: info.Architecture,
	}
}

// NodeFeatures returns the features of a Node object. It splits the container runtime version into two attributes, its name and its
// version.
func NodeFeatures(node *corev1.Node) *nfdv1alpha1.Features {
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

// present removes empty values. A Node has empty values before its kubelet has started.
func present(elements map[string]string) map[string]string {
	for name, value := range elements {
		if value == "" {
			delete(elements, name)
		}
	}
	return elements
}

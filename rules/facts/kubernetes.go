package facts

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
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
	// RuntimeHandlerFeature lists the handlers of the container runtime.
	RuntimeHandlerFeature = "kubernetes.runtimehandler"
	// AllocatableFeature holds the amounts of resources that are equal on many nodes, such as devices of device plugins.
	AllocatableFeature = "kubernetes.allocatable"
	// ConditionFeature lists the conditions that no instance of Assay writes: what other agents and the kubelet say about the node.
	ConditionFeature = "kubernetes.condition"
)

// IsKubernetes reports whether the feature with this lower-case name comes from the Node object.
func IsKubernetes(feature string) bool {
	return feature == NodeFeature || feature == ProviderFeature || feature == DeclaredFeature || feature == RuntimeHandlerFeature ||
		feature == AllocatableFeature || feature == ConditionFeature
}

// FromNode returns the facts of a Node object; in may be nil. It omits the resources in own, which rules have written, and the machine,
// system and boot IDs because they identify the machine. It reads only the parts that NodeParts returns, so that a cache may drop the
// rest. It does not modify the Node.
func FromNode(node *corev1.Node, own []string, in *Interner) *Facts {
	return New(NodeFeatures(node, own), in)
}

// NodeParts returns the parts of a Node that FromNode reads. They share memory with the Node.
func NodeParts(node *corev1.Node) (corev1.NodeSpec, corev1.NodeStatus) {
	return corev1.NodeSpec{ProviderID: node.Spec.ProviderID},
		corev1.NodeStatus{
			NodeInfo: public(&node.Status.NodeInfo), DeclaredFeatures: node.Status.DeclaredFeatures,
			RuntimeHandlers: node.Status.RuntimeHandlers, Allocatable: common(node.Status.Allocatable),
			Conditions: statements(node.Status.Conditions),
		}
}

// SameNode reports whether FromNode returns equal facts for two Nodes.
func SameNode(a, b *corev1.Node) bool {
	return a.Spec.ProviderID == b.Spec.ProviderID && public(&a.Status.NodeInfo) == public(&b.Status.NodeInfo) &&
		slices.Equal(a.Status.DeclaredFeatures, b.Status.DeclaredFeatures) &&
		slices.EqualFunc(a.Status.RuntimeHandlers, b.Status.RuntimeHandlers, sameHandler) &&
		maps.Equal(allocatable(a, nil), allocatable(b, nil)) && slices.Equal(conditions(a), conditions(b))
}

// public returns info without IDs and values that change often.
func public(info *corev1.NodeSystemInfo) corev1.NodeSystemInfo {
	return corev1.NodeSystemInfo{
		KernelVersion: info.KernelVersion, OSImage: info.OSImage, ContainerRuntimeVersion: info.ContainerRuntimeVersion,
		KubeletVersion: info.KubeletVersion, OperatingSystem: info.OperatingSystem, Architecture: info.Architecture,
	}
}

// NodeFeatures returns the features of a Node object without the resources in own. It splits the container runtime version into two
// attributes, its name and its version.
func NodeFeatures(node *corev1.Node, own []string) *nfdv1alpha1.Features {
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
		Flags:     map[string]nfdv1alpha1.FlagFeatureSet{},
		Instances: map[string]nfdv1alpha1.InstanceFeatureSet{},
	}
	// Without these, the kubelet has not reported any: it has not started yet, or its version or the runtime does not know handlers.
	if len(node.Status.Allocatable) > 0 {
		f.Attributes[AllocatableFeature] = nfdv1alpha1.AttributeFeatureSet{Elements: allocatable(node, own)}
	}
	if len(node.Status.RuntimeHandlers) > 0 {
		f.Instances[RuntimeHandlerFeature] = nfdv1alpha1.InstanceFeatureSet{Elements: handlers(node)}
	}
	if list := conditions(node); len(list) > 0 {
		set := nfdv1alpha1.InstanceFeatureSet{}
		for _, c := range list {
			set.Elements = append(set.Elements, nfdv1alpha1.InstanceFeature{
				Attributes: present(map[string]string{"type": string(c.Type), "status": string(c.Status), "reason": c.Reason}),
			})
		}
		f.Instances[ConditionFeature] = set
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

// Statement returns what a condition says, without the text for people and the times, which change with each heartbeat.
func Statement(c corev1.NodeCondition) corev1.NodeCondition {
	return corev1.NodeCondition{Type: c.Type, Status: c.Status, Reason: c.Reason}
}

func statements(list []corev1.NodeCondition) []corev1.NodeCondition {
	var out []corev1.NodeCondition
	for _, c := range list {
		out = append(out, Statement(c))
	}
	return out
}

// conditions returns what the conditions of a Node say that no instance of Assay writes, sorted by type. A rule that reads one which rules
// write would be circular.
func conditions(node *corev1.Node) []corev1.NodeCondition {
	own := map[string]bool{}
	for name, list := range node.Annotations {
		if name != assayv1alpha1.NodeConditionsAnnotation && !strings.HasSuffix(name, "."+assayv1alpha1.NodeConditionsAnnotation) {
			continue
		}
		for kind := range strings.SplitSeq(list, ",") {
			if kind = strings.TrimSpace(kind); !strings.Contains(kind, "/") { // records omit the default prefix
				kind = nfdv1alpha1.FeatureLabelNamespace + "/" + kind
			}
			own[kind] = true
		}
	}
	out := slices.DeleteFunc(statements(node.Status.Conditions), func(c corev1.NodeCondition) bool {
		return own[string(c.Type)] || strings.HasPrefix(string(c.Type), assayv1alpha1.GroupName+"/")
	})
	slices.SortFunc(out, func(a, b corev1.NodeCondition) int { return strings.Compare(string(a.Type), string(b.Type)) })
	return out
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

// handlers returns the runtime handlers, sorted by name: the kubelet lists them in any order.
func handlers(node *corev1.Node) []nfdv1alpha1.InstanceFeature {
	list := []nfdv1alpha1.InstanceFeature{}
	for _, h := range node.Status.RuntimeHandlers {
		attributes := map[string]string{"name": h.Name}
		if f := h.Features; f != nil {
			for name, supported := range map[string]*bool{
				"recursive_read_only_mounts": f.RecursiveReadOnlyMounts, "user_namespaces": f.UserNamespaces,
			} {
				if supported != nil {
					attributes[name] = strconv.FormatBool(*supported)
				}
			}
		}
		list = append(list, nfdv1alpha1.InstanceFeature{Attributes: attributes})
	}
	slices.SortFunc(list, func(a, b nfdv1alpha1.InstanceFeature) int {
		return strings.Compare(a.Attributes["name"], b.Attributes["name"])
	})
	return list
}

func sameHandler(a, b corev1.NodeRuntimeHandler) bool {
	same := func(a, b *bool) bool { return a == b || a != nil && b != nil && *a == *b }
	f, g := a.Features, b.Features
	return a.Name == b.Name && (f == g || f != nil && g != nil &&
		same(f.RecursiveReadOnlyMounts, g.RecursiveReadOnlyMounts) && same(f.UserNamespaces, g.UserNamespaces))
}

// allocatable returns the amounts of common resources without those in own.
func allocatable(node *corev1.Node, own []string) map[string]string {
	out := make(map[string]string, len(node.Status.Allocatable))
	for name, amount := range common(node.Status.Allocatable) {
		if !slices.Contains(own, string(name)) {
			out[string(name)] = strconv.FormatInt(amount.Value(), 10)
		}
	}
	return out
}

// common returns the resources of which many nodes have the same amount. What is left of CPUs, memory and ephemeral storage differs from
// node to node.
func common(list corev1.ResourceList) corev1.ResourceList {
	out := make(corev1.ResourceList, len(list))
	for name, amount := range list {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		default:
			out[name] = amount
		}
	}
	return out
}

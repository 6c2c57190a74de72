package facts_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
)

func TestFeatures(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{}
		change(n)
		return n
	}
	for name, tt := range map[string]struct {
		node *corev1.Node
		own  []string
		want *nfdv1alpha1.Features
	}{
		"node of a cloud": {
			node: node(func(n *corev1.Node) {
				n.Spec.ProviderID = "aws:///eu-central-1a/i-0123456789"
				n.Status.DeclaredFeatures = []string{"GuaranteedQoSPodCPUResize", "PodLevelResources"}
				n.Status.NodeInfo = corev1.NodeSystemInfo{
					MachineID: "secret", SystemUUID: "secret", BootID: "secret",
					KernelVersion: "6.1.79-99.164.amzn2023.x86_64", OSImage: "Amazon Linux 2023", ContainerRuntimeVersion: "containerd://2.1.4",
					KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64",
				}
				n.Status.RuntimeHandlers = []corev1.NodeRuntimeHandler{
					{Name: "nvidia", Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: new(true), UserNamespaces: new(false)}},
					{Name: ""},
				}
				n.Annotations = map[string]string{
					"assay.dev/node-conditions": "ours.example/A,x", "b.assay.dev/node-conditions": "theirs.example/B", "example.com/node-conditions": "kept.example/C",
				}
				for kind, status := range map[string]corev1.ConditionStatus{
					"Ready": "True", "AcceleratedHardwareReady": "False", "ours.example/A": "True", "theirs.example/B": "True", "kept.example/C": "Unknown",
					"assay.dev/FeaturesReady": "True", "feature.node.kubernetes.io/x": "True",
				} {
					n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
						Type: corev1.NodeConditionType(kind), Status: status, Reason: map[string]string{"Ready": "KubeletReady"}[kind],
						Message: "message", LastHeartbeatTime: metav1.Now(),
					})
				}
				n.Status.Allocatable = corev1.ResourceList{
					"cpu": resource.MustParse("15890m"), "memory": resource.MustParse("60Gi"), "ephemeral-storage": resource.MustParse("90Gi"),
					"pods": resource.MustParse("110"), "hugepages-2Mi": resource.MustParse("1Gi"), "nvidia.com/gpu": resource.MustParse("8"),
					"example.com/by-a-rule": resource.MustParse("4"),
				}
			}),
			own: []string{"example.com/by-a-rule"},
			want: &nfdv1alpha1.Features{
				Flags: map[string]nfdv1alpha1.FlagFeatureSet{
					"kubernetes.declaredfeature": {Elements: map[string]nfdv1alpha1.Nil{"GuaranteedQoSPodCPUResize": {}, "PodLevelResources": {}}},
				},
				Instances: map[string]nfdv1alpha1.InstanceFeatureSet{
					"kubernetes.condition": {Elements: []nfdv1alpha1.InstanceFeature{
						{Attributes: map[string]string{"type": "AcceleratedHardwareReady", "status": "False"}},
						{Attributes: map[string]string{"type": "Ready", "status": "True", "reason": "KubeletReady"}},
						{Attributes: map[string]string{"type": "kept.example/C", "status": "Unknown"}},
					}},
					"kubernetes.runtimehandler": {Elements: []nfdv1alpha1.InstanceFeature{
						{Attributes: map[string]string{"name": ""}},
						{Attributes: map[string]string{"name": "nvidia", "recursive_read_only_mounts": "true", "user_namespaces": "false"}},
					}},
				},
				Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{
					"kubernetes.allocatable": {Elements: map[string]string{"pods": "110", "hugepages-2Mi": "1073741824", "nvidia.com/gpu": "8"}},
					"kubernetes.node": {Elements: map[string]string{
						"architecture": "amd64", "container_runtime": "containerd", "container_runtime_version": "2.1.4",
						"kernel_version": "6.1.79-99.164.amzn2023.x86_64", "kubelet_version": "v1.36.3", "operating_system": "linux",
						"os_image": "Amazon Linux 2023",
					}},
					"kubernetes.provider": {Elements: map[string]string{"name": "aws", "id": "aws:///eu-central-1a/i-0123456789"}},
				},
			},
		},
		"node that has said nothing yet": {
			node: &corev1.Node{},
			want: &nfdv1alpha1.Features{
				Flags:      map[string]nfdv1alpha1.FlagFeatureSet{"kubernetes.declaredfeature": {Elements: map[string]nfdv1alpha1.Nil{}}},
				Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{"kubernetes.node": {Elements: map[string]string{}}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, facts.NodeFeatures(tt.node, tt.own), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("features (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNodesOfOneKindShareTheirFacts checks that nodes which differ only in their provider ID share the other features.
func TestNodesOfOneKindShareTheirFacts(t *testing.T) {
	in := facts.NewInterner()
	var sets []*facts.Attributes
	for _, id := range []string{"aws:///a/i-1", "aws:///a/i-2"} {
		n := &corev1.Node{Spec: corev1.NodeSpec{ProviderID: id}}
		n.Status.NodeInfo.KubeletVersion = "v1.36.3"
		sets = append(sets, facts.FromNode(n, nil, in).Feature(facts.NodeFeature).Attributes)
	}
	if sets[0] != sets[1] {
		t.Error("equal sets of two nodes are two")
	}
}

// TestACacheMayKeepThePartAlone checks that the facts of a Node depend only on the parts that caches keep.
func TestACacheMayKeepThePartAlone(t *testing.T) {
	full := func() *corev1.Node {
		n := &corev1.Node{Spec: corev1.NodeSpec{ProviderID: "kind://k/n1", Unschedulable: true}}
		n.Status.DeclaredFeatures = []string{"PodLevelResources"}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "ready"}}
		n.Status.RuntimeHandlers = []corev1.NodeRuntimeHandler{{Name: "runc", Features: &corev1.NodeRuntimeHandlerFeatures{UserNamespaces: new(true)}}}
		n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("4"), "nvidia.com/gpu": resource.MustParse("8")}
		n.Status.NodeInfo = corev1.NodeSystemInfo{
			MachineID: "m", SystemUUID: "u", BootID: "b", KernelVersion: "6.1.0", OSImage: "Debian", ContainerRuntimeVersion: "containerd://2.1.4",
			KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64",
		}
		return n
	}
	kept := &corev1.Node{}
	kept.Spec, kept.Status = facts.NodeParts(full())
	if diff := cmp.Diff(facts.NodeFeatures(full(), nil), facts.NodeFeatures(kept, nil)); diff != "" {
		t.Errorf("the part says something else (-node +part):\n%s", diff)
	}
	for name, tt := range map[string]struct {
		change func(*corev1.Node)
		same   bool
	}{
		"nothing":         {func(*corev1.Node) {}, true},
		"reboot":          {func(n *corev1.Node) { n.Status.NodeInfo.BootID = "b2" }, true},
		"heartbeat":       {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }, true},
		"another message": {func(n *corev1.Node) { n.Status.Conditions[0].Message = "still ready" }, true},
		"own condition": {func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "assay.dev/FeaturesReady", Status: corev1.ConditionFalse})
		}, true},
		"not ready":        {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, false},
		"another reason":   {func(n *corev1.Node) { n.Status.Conditions[0].Reason = "KubeletNotReady" }, false},
		"kubelet upgraded": {func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.37.0" }, false},
		"feature declared": {func(n *corev1.Node) { n.Status.DeclaredFeatures = append(n.Status.DeclaredFeatures, "X") }, false},
		"less CPU":         {func(n *corev1.Node) { n.Status.Allocatable["cpu"] = resource.MustParse("3") }, true},
		"same count":       {func(n *corev1.Node) { n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("8000m") }, true},
		"lost a device":    {func(n *corev1.Node) { n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("7") }, false},
		"new device":       {func(n *corev1.Node) { n.Status.Allocatable["example.com/x"] = resource.MustParse("1") }, false},
		"equal handlers":   {func(n *corev1.Node) { n.Status.RuntimeHandlers = slices.Clone(n.Status.RuntimeHandlers) }, true},
		"handler added": {func(n *corev1.Node) {
			n.Status.RuntimeHandlers = append(n.Status.RuntimeHandlers, corev1.NodeRuntimeHandler{Name: "x"})
		}, false},
		"handler changed":   {func(n *corev1.Node) { n.Status.RuntimeHandlers[0].Features.UserNamespaces = new(false) }, false},
		"provider assigned": {func(n *corev1.Node) { n.Spec.ProviderID = "kind://k/n2" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := full()
			tt.change(n)
			if got := facts.SameNode(full(), n); got != tt.same {
				t.Errorf("same is %t, want %t", got, tt.same)
			}
			if equal := cmp.Equal(facts.NodeFeatures(full(), nil), facts.NodeFeatures(n, nil)); equal != tt.same {
				t.Errorf("features are the same: %t, want %t", equal, tt.same)
			}
		})
	}
}

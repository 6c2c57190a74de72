package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSlimKeepsWhatIsRead: what rules read or can write, and no more.
func TestSlimKeepsWhatIsRead(t *testing.T) {
	amounts := corev1.ResourceList{"vendor.io/fpga": resource.MustParse("2")}
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "1"}, Annotations: map[string]string{"b": "2"}},
		Spec:       corev1.NodeSpec{ProviderID: "p://n", Taints: []corev1.Taint{{Key: "t", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Capacity: amounts, Allocatable: corev1.ResourceList{"vendor.io/fpga": amounts["vendor.io/fpga"], "hugepages-1Gi": resource.MustParse("0")},
			Conditions: []corev1.NodeCondition{
				{Type: "vendor.io/Ready", Status: corev1.ConditionTrue, Message: "m"}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"},
			},
			NodeInfo:         corev1.NodeSystemInfo{KernelVersion: "6.1", BootID: "boot"},
			DeclaredFeatures: []string{"F"},
			RuntimeHandlers:  []corev1.NodeRuntimeHandler{{Name: "kata"}},
		},
	}
	n := want.DeepCopy()
	n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	n.Spec.PodCIDR = "10.0.0.0/24"
	for _, list := range []corev1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
		list["cpu"], list["hugepages-1Gi"] = resource.MustParse("8"), resource.MustParse("0")
	}
	n.Status.Conditions[1].Message, n.Status.Conditions[1].LastHeartbeatTime = "kubelet is posting ready status", metav1.Now()
	n.Status.Images = []corev1.ContainerImage{{Names: []string{"image"}}}
	n.Status.NodeInfo.MachineID = "machine"
	got, err := Slim(n)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

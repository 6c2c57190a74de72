package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/nodefeature"
)

// TestUpdatesOfANodeThatCauseAPass changes one thing of a Node at a time.
func TestUpdatesOfANodeThatCauseAPass(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"Nothing":          {func(*corev1.Node) {}, false},
		"Version":          {func(n *corev1.Node) { n.ResourceVersion = "2" }, false},
		"Heartbeat":        {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }, false},
		"Image":            {func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{SizeBytes: 1}} }, false},
		"UID":              {func(n *corev1.Node) { n.UID = "2" }, true},
		"Kernel":           {func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = "7" }, true},
		"Boot":             {func(n *corev1.Node) { n.Status.NodeInfo.BootID = "2" }, true},
		"Label":            {func(n *corev1.Node) { n.Labels = M{"a": "2"} }, true},
		"Annotation":       {func(n *corev1.Node) { n.Annotations = M{"a": "2"} }, true},
		"Taint":            {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a"}} }, true},
		"Capacity":         {func(n *corev1.Node) { n.Status.Capacity = corev1.ResourceList{"a": resource.MustParse("2")} }, true},
		"Allocatable":      {func(n *corev1.Node) { n.Status.Allocatable = corev1.ResourceList{"a": resource.MustParse("2")} }, true},
		"SameAmount":       {func(n *corev1.Node) { n.Status.Capacity = corev1.ResourceList{"a": resource.MustParse("1000m")} }, false},
		"ConditionType":    {func(n *corev1.Node) { n.Status.Conditions[0].Type = "b/c" }, true},
		"ConditionStatus":  {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, true},
		"ConditionReason":  {func(n *corev1.Node) { n.Status.Conditions[0].Reason = "other" }, true},
		"ConditionMessage": {func(n *corev1.Node) { n.Status.Conditions[0].Message = "other" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "1", Labels: M{"a": "1"}, Annotations: M{"a": "1"}}}
			before.Status.Capacity = corev1.ResourceList{"a": resource.MustParse("1")}
			before.Status.Allocatable = before.Status.Capacity.DeepCopy()
			before.Status.Conditions = []corev1.NodeCondition{{Type: "a/b", Status: corev1.ConditionTrue, Reason: "reason", Message: "message"}}
			after := before.DeepCopy()
			tc.change(after)
			if got := relevant.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
				t.Errorf("causes a pass: %t, want %t", got, tc.want)
			}
		})
	}
}

// TestUpdatesOfANodeFeatureThatCauseAPass changes one thing of a NodeFeature at a time.
func TestUpdatesOfANodeFeatureThatCauseAPass(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*nodefeature.NodeFeature)
		want   bool
	}{
		"Nothing":    {func(*nodefeature.NodeFeature) {}, false},
		"Annotation": {func(f *nodefeature.NodeFeature) { f.Annotations = M{"a": "1"} }, false},
		"UID":        {func(f *nodefeature.NodeFeature) { f.UID = "2" }, true},
		"Spec":       {func(f *nodefeature.NodeFeature) { f.Generation = 2 }, true},
		"Target":     {func(f *nodefeature.NodeFeature) { f.Labels = M{nfdv1alpha1.NodeNameLabel: "other"} }, true},
		"Deletion":   {func(f *nodefeature.NodeFeature) { f.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, true},
		"OwnerUID":   {func(f *nodefeature.NodeFeature) { f.OwnerReferences[0].UID = "2" }, true},
		"OwnerKind":  {func(f *nodefeature.NodeFeature) { f.OwnerReferences[0].Kind = "Pod" }, true},
		"OwnerName":  {func(f *nodefeature.NodeFeature) { f.OwnerReferences[0].Name = "other" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := published("n", nil), published("n", nil)
			for _, f := range []*nodefeature.NodeFeature{before, after} {
				f.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "n", UID: "1"}}
			}
			tc.change(after)
			if got := changedFeatures.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
				t.Errorf("causes a pass: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestANodeFeatureIsAboutTheNodeOfItsLabel(t *testing.T) {
	f := published("other", nil)
	if got := nodeOf(t.Context(), f); len(got) != 1 || got[0].Name != "n" {
		t.Errorf("nodes %v, want n", got)
	}
	f.Labels = nil
	if got := nodeOf(t.Context(), f); len(got) != 0 {
		t.Errorf("nodes %v of an object without the label", got)
	}
}

// TestACachedNodeKeepsWhatPlansRead removes the rest of a Node before it is cached.
func TestACachedNodeKeepsWhatPlansRead(t *testing.T) {
	amount := corev1.ResourceList{"v.io/a": resource.MustParse("1"), corev1.ResourceCPU: resource.MustParse("8")}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: M{"a": "1"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "a"}}, PodCIDR: "10.0.0.0/24"},
		Status: corev1.NodeStatus{
			Capacity: amount, Allocatable: amount, Images: []corev1.ContainerImage{{SizeBytes: 1}},
			NodeInfo:   corev1.NodeSystemInfo{BootID: "1", KernelVersion: "7"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady}, {Type: "example.com/Ours"}},
		},
	}
	before := node.DeepCopy()
	if _, err := Slim(node); err != nil {
		t.Fatal(err)
	}
	if node.ManagedFields != nil || node.Spec.PodCIDR != "" || node.Status.Images != nil {
		t.Errorf("the cache keeps %+v", node)
	}
	extended := corev1.ResourceList{"v.io/a": amount["v.io/a"]}
	before.Status.Capacity, before.Status.Allocatable = extended, extended
	if relevant.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: node}) {
		t.Error("a cached Node differs from the original for the controller")
	}
	if got, err := Slim("no node"); got != "no node" || err != nil {
		t.Errorf("another object becomes %v, %v", got, err)
	}
}

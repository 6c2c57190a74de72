package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/settings"
)

// devicesOf creates the ResourceSlice of a driver that has published a number of GPUs on a node.
func (w *world) devicesOf(node string, count int) *resourcev1.ResourceSlice {
	w.Helper()
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{GenerateName: node + "-"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
	}}
	for i := range count {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
			Name: fmt.Sprint("gpu-", i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"productName": {StringValue: new("Example H100")}, "type": {StringValue: new("gpu")}, "driverVersion": {VersionValue: new("580.126.20")},
			},
		})
	}
	testkit.Create(w, w, s)
	return s
}

// TestDeviceTaintRulesTaintDevices: a rule counted devices that the cluster keeps pods away from.
func TestDeviceTaintRulesTaintDevices(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.devicesOf("n1", 8)
	w.rule("usable", `{rules: [{name: r, labels: {example.com/usable: "{matched.dra.device.len()}"},
	  matchFeatures: [{feature: dra.device, matchExpressions: {driver.name: {op: In, value: [gpu.example.com]}, unschedulable: {op: DoesNotExist}}}]}]}`)
	w.start()
	w.labels("n1", map[string]string{"example.com/usable": "8"})
	rule := &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{GenerateName: "gpu-"}, Spec: resourcev1.DeviceTaintRuleSpec{
		DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new("gpu.example.com"), Pool: new("n1"), Device: new("gpu-3")},
		Taint:          resourcev1.DeviceTaint{Key: "example.com/unhealthy", Value: "yes", Effect: resourcev1.DeviceTaintEffectNoSchedule},
	}}
	testkit.Create(w, w, rule)
	w.labels("n1", map[string]string{"example.com/usable": "7"})
	w.delete(rule)
	w.labels("n1", map[string]string{"example.com/usable": "8"})
}

// deviceRules give the labels that GPU Feature Discovery would, and one with what is known of the driver.
const deviceRules = `{rules: [
  {name: gpus, matchFeatures: [{feature: dra.device, matchExpressions: {driver.name: {op: In, value: [gpu.example.com]}, type: {op: In, value: [gpu]}}}],
   labelsTemplate: "{{ range .dra.device }}example.com/gpu.product={{ .productName | replace \" \" \"-\" }}\n{{ end }}example.com/gpu.count={{ len .dra.device }}"},
  {name: driver, matchFeatures: [{feature: dra.driver, matchExpressions: {name: {op: In, value: [gpu.example.com]}}}],
   labelsTemplate: "{{ range .dra.driver }}example.com/complete={{ .complete }}\n{{ end }}"}]}`

func TestRulesReadDevicesOfDRADrivers(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.node("n2")
	invented := w.publish(w.namespace, "n2", "n2", M{"a": "b"}, nil)
	change(w, invented, func(f *nfdv1alpha1.NodeFeature) {
		f.Spec.Features.Instances = map[string]nfdv1alpha1.InstanceFeatureSet{"dra.device": {Elements: []nfdv1alpha1.InstanceFeature{
			{Attributes: map[string]string{"driver.name": "gpu.example.com", "type": "gpu", "productName": "Invented"}},
		}}}
	})
	gpus := w.devicesOf("n1", 8)
	w.rule("attr", `{rules: [{name: r, labels: {attr: "1"}, matchFeatures: [{feature: test.attr, matchExpressions: {a: {op: Exists}}}]}]}`)
	m := w.start()
	w.labels("n2", map[string]string{feature + "attr": "1"})
	if list := m.requests("resourceslices"); len(list) > 0 {
		t.Errorf("%v, although no rule reads devices", list)
	}

	w.rule("devices", deviceRules)
	all := map[string]string{"example.com/gpu.product": "Example-H100", "example.com/gpu.count": "8", "example.com/complete": "true"}
	w.labels("n1", all)
	if n := w.labels("n2", map[string]string{feature + "attr": "1"}); n.Labels["example.com/gpu.product"] != "" {
		t.Errorf("a NodeFeature has invented devices: %v", n.Labels)
	}

	shared := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{GenerateName: "shared-"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "net.example.com", AllNodes: new(true), Pool: resourcev1.ResourcePool{Name: "shared", Generation: 1, ResourceSliceCount: 1},
	}}
	testkit.Create(w, w, shared)
	testkit.Eventually(w, "the metric of slices that no rule reads", func(context.Context) error {
		if got := gauge(w.T, "assay_resourceslices_ignored", "SeveralNodes"); got != 1 {
			return fmt.Errorf("it is %v, want 1", got)
		}
		return nil
	})

	// The driver restarts: the kubelet deletes its slices.
	w.delete(gpus)
	all["example.com/complete"] = "false"
	w.labels("n1", all)
	// It comes back, without one of the devices.
	gpus = w.devicesOf("n1", 7)
	all["example.com/complete"], all["example.com/gpu.count"] = "true", "7"
	w.labels("n1", all)

	// Both the driver and the controller restart.
	m.stop()
	w.delete(gpus)
	before := passes()
	m = w.start()
	w.waitForPasses(before, 4)
	testkit.Eventually(w, "reading the slices", func(context.Context) error {
		if len(m.requests("resourceslices")) == 0 {
			return errors.New("no request")
		}
		return nil
	})
	w.rule("later", `{rules: [{name: r, labels: {later: "1"}}]}`)
	all[feature+"later"] = "1" // a pass over the node that has read the slices
	w.labels("n1", all)
}

func TestDevicesGoAfterTheGracePeriod(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	gpus := w.devicesOf("n1", 8)
	w.rule("devices", deviceRules)
	w.start(func(c *controller.Config) { c.RemovalGracePeriod = time.Second })
	w.labels("n1", map[string]string{"example.com/gpu.count": "8"})
	w.delete(gpus)
	n1 := w.labels("n1", map[string]string{"example.com/gpu.count": "", "example.com/gpu.product": "", "example.com/complete": ""})
	testkit.Eventually(w, "an Event that says where the devices were", func(ctx context.Context) error {
		var list corev1.EventList
		if err := w.List(ctx, &list, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		for i := range list.Items {
			e := &list.Items[i]
			if e.InvolvedObject.Name == n1.Name && e.Reason == "FeaturesLost" && strings.Contains(e.Message, "rule devices/gpus: dra.device of the node's ResourceSlices") {
				return nil
			}
		}
		return fmt.Errorf("none of %d", len(list.Items))
	})
}

func TestNodeThatRebootsWaitsForItsDrivers(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.boots("n1", "first")
	worker := w.examines("n1", "first", M{"a": "b"})
	gpus := w.devicesOf("n1", 8)
	w.rule("devices", deviceRules)
	w.start(withReady)
	w.labels("n1", map[string]string{"example.com/complete": "true", "example.com/gpu.count": "8"})
	w.ready("n1", corev1.ConditionTrue, "FeaturesApplied", "first")

	// A driver that restarts closes no gate behind which pods run already.
	w.delete(gpus)
	if n := w.labels("n1", map[string]string{"example.com/complete": "false"}); conditionOf(n, assayv1alpha1.FeaturesReadyCondition).Status != corev1.ConditionTrue {
		t.Error("not ready while a driver restarts")
	}
	w.boots("n1", "second")
	change(w, worker, func(f *nfdv1alpha1.NodeFeature) { f.Spec.Features = examined("second", M{"a": "b"}) })
	w.ready("n1", corev1.ConditionFalse, assayv1alpha1.ReasonWaitingForDrivers, "gpu.example.com")
	w.labels("n1", map[string]string{"example.com/complete": "false", "example.com/gpu.count": "8"})
	w.devicesOf("n1", 8)
	w.labels("n1", map[string]string{"example.com/complete": "true", "example.com/gpu.count": "8"})
	w.ready("n1", corev1.ConditionTrue, "FeaturesApplied", "second")
}

// A cluster that does not let the controller read ResourceSlices: objects that read devices say so, and the others are not affected.
func TestObjectsSayWhyDevicesAreUnknown(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.publish(w.namespace, "n1", "n1", M{"a": "b"}, nil)
	groups := func(c *controller.Config) { c.FeatureGates[settings.GateGroups] = true }
	for code, part := range map[int]string{http.StatusForbidden: "cannot be read", http.StatusNotFound: "does not serve ResourceSlices"} {
		reads := w.rule(fmt.Sprint("devices-", code), deviceRules)
		other := w.rule(fmt.Sprint("other-", code), `{rules: [{name: r, labels: {attr: "1"}, matchFeatures: [{feature: test.attr, matchExpressions: {a: {op: Exists}}}]}]}`)
		group := w.group(w.namespace, fmt.Sprint("devices-", code), `[{name: r, matchFeatures: [{feature: dra.device, matchExpressions: {type: {op: Exists}}}]}]`)
		request := &assayv1alpha1.NodeFeatureRequest{}
		w.apply(request, fmt.Sprintf(`{metadata: {namespace: %s, name: devices-%d}, spec: {required: {matchFeatures: [{feature: dra.device, matchExpressions: {type: {op: Exists}}}]}}}`,
			w.namespace, code))
		var denies atomic.Bool
		denies.Store(true)
		m := w.startWith(&traffic{fails: func(r *http.Request) int {
			if denies.Load() && strings.HasSuffix(r.URL.Path, "/resourceslices") {
				return code
			}
			return 0
		}}, groups)
		w.condition(reads, nfdv1alpha1.ConditionResolved, metav1.ConditionFalse, "DevicesUnavailable", part)
		w.condition(reads, nfdv1alpha1.ConditionReady, metav1.ConditionFalse, "DevicesUnavailable", part)
		w.condition(reads, nfdv1alpha1.ConditionAccepted, metav1.ConditionTrue)
		w.condition(other, nfdv1alpha1.ConditionResolved, metav1.ConditionTrue)
		unavailable := func(list []metav1.Condition) bool {
			c := meta.FindStatusCondition(list, nfdv1alpha1.ConditionResolved)
			return c != nil && c.Reason == "DevicesUnavailable" && strings.Contains(c.Message, part)
		}
		becomes(w, group, "DevicesUnavailable", func(g *nfdv1alpha1.NodeFeatureGroup) bool { return unavailable(g.Status.Conditions) })
		becomes(w, request, "DevicesUnavailable", func(r *assayv1alpha1.NodeFeatureRequest) bool { return unavailable(r.Status.Conditions) })
		w.labels("n1", map[string]string{feature + "attr": "1"})
		m.stop()

		denies.Store(false)
		m = w.start(groups)
		w.condition(reads, nfdv1alpha1.ConditionReady, metav1.ConditionTrue)
		becomes(w, group, "Resolved", func(g *nfdv1alpha1.NodeFeatureGroup) bool { return !unavailable(g.Status.Conditions) })
		becomes(w, request, "Resolved", func(r *assayv1alpha1.NodeFeatureRequest) bool { return !unavailable(r.Status.Conditions) })
		m.stop()
		w.delete(reads)
		w.delete(other)
		w.delete(group)
		w.delete(request)
	}
}

// The devices of one driver were known, and a controller that started while another driver restarted removed the labels of the latter.
func TestControllerThatRestartsWithOneOfTwoDriversKeepsTheLabels(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	gpus := w.devicesOf("n1", 8)
	nic := gpus.DeepCopy()
	nic.ObjectMeta = metav1.ObjectMeta{GenerateName: "n1-nic-"}
	nic.Spec.Driver, nic.Spec.Pool.Name = "nic.example.com", "n1-nic"
	testkit.Create(w, w, nic)
	w.rule("gpus", deviceRules)
	m := w.start()
	all := map[string]string{"example.com/gpu.count": "8", "example.com/complete": "true"}
	w.labels("n1", all)
	m.stop()
	w.delete(gpus)
	w.rule("nics", `{rules: [{name: r, labels: {nics: "1"}, matchFeatures: [{feature: dra.device, matchExpressions: {driver.name: {op: In, value: [nic.example.com]}}}]}]}`)
	w.start()
	all[feature+"nics"] = "1" // a pass over the node that has read the slices
	w.labels("n1", all)
}

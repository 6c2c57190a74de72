package controller_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/controller/node"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/rules/plan"
	"github.com/assay-project/assay/settings"
)

// nodeCondition waits until a node has a condition in the form "STATUS REASON: MESSAGE", "" for none, and returns the Node.
func (w *world) nodeCondition(node string, kind corev1.NodeConditionType, want string) *corev1.Node {
	w.Helper()
	return becomes(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, string(kind)+"="+want, func(n *corev1.Node) bool {
		c := conditionOf(n, kind)
		if c == nil {
			return want == ""
		}
		return plan.FormatCondition(*c) == want && !c.LastTransitionTime.IsZero() && !c.LastHeartbeatTime.IsZero()
	})
}

const driverRules = `{rules: [{name: driver, nodeConditions: [
  {type: vendor.io/DriverReady, status: "{@test.attr.ready}", reason: Probed, message: "Driver on {node}: {@test.attr.version}"},
  {type: vendor.io/Steady, status: Unknown}]}]}`

func TestRulesSetConditionsOfNodes(t *testing.T) {
	w := newWorld(t)
	n := w.node("n1")
	w.boots("n1", "boot-1")
	theirs := client.RawPatch(types.StrategicMergePatchType, []byte(`{"status":{"conditions":[{"type":"vendor.io/Theirs","status":"True"}]}}`))
	if err := w.Status().Patch(t.Context(), n, theirs); err != nil {
		t.Fatal(err)
	}
	f := w.publish(w.namespace, "n1", "n1", M{"ready": "false", "version": "550.1"}, nil)
	rule := w.rule("driver", driverRules)
	w.start()
	n = w.nodeCondition("n1", "vendor.io/DriverReady", "False Probed: Driver on n1: 550.1")
	if got := n.Annotations[assayv1alpha1.NodeConditionsAnnotation]; got != "vendor.io/DriverReady,vendor.io/Steady" {
		t.Errorf("record is %q", got)
	}
	change(w, f, func(f *nfdv1alpha1.NodeFeature) {
		f.Spec.Features.Attributes["test.attr"].Elements["ready"] = "TRUE"
	})
	w.nodeCondition("n1", "vendor.io/DriverReady", "True Probed: Driver on n1: 550.1")

	// On equal priority the later rule wins, and the loser reports the conflict: only a rule of lower priority is a default.
	over := w.rule("over", `{rules: [{name: off, nodeConditions: [{type: vendor.io/DriverReady, status: "False", reason: Maintenance}]}]}`)
	w.nodeCondition("n1", "vendor.io/DriverReady", "False Maintenance")
	w.condition(rule, nfdv1alpha1.ConditionConflicted, metav1.ConditionTrue, "vendor.io/DriverReady")
	w.delete(over)
	w.nodeCondition("n1", "vendor.io/DriverReady", "True Probed: Driver on n1: 550.1")

	// Another client's change is corrected.
	forged := client.RawPatch(types.StrategicMergePatchType, []byte(`{"status":{"conditions":[{"type":"vendor.io/Steady","status":"True","reason":"Forged"}]}}`))
	if err := w.Status().Patch(t.Context(), n, forged); err != nil {
		t.Fatal(err)
	}
	w.nodeCondition("n1", "vendor.io/Steady", "Unknown")

	w.delete(rule)
	w.nodeCondition("n1", "vendor.io/Steady", "")
	n = w.nodeCondition("n1", "vendor.io/DriverReady", "")
	if record, there := n.Annotations[assayv1alpha1.NodeConditionsAnnotation]; there {
		t.Errorf("record is still %q", record)
	}
	if c := conditionOf(n, corev1.NodeReady); c == nil || c.Reason != "KubeletReady" {
		t.Errorf("the kubelet's condition is %v", c)
	}
	if conditionOf(n, "vendor.io/Theirs") == nil {
		t.Error("the condition of another client is gone")
	}
}

// TestConditionsOfRulesOutliveTheirWorker: the conditions of a node stay while its worker is away, and go when the grace is over.
func TestConditionsOfRulesOutliveTheirWorker(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	f := w.publish(w.namespace, "n1", "n1", M{"ready": "true", "version": "1"}, nil)
	w.rule("driver", driverRules)
	m := w.start()
	const want = "True Probed: Driver on n1: 1"
	w.nodeCondition("n1", "vendor.io/DriverReady", want)
	w.delete(f)
	w.rule("marker", `{rules: [{name: m, labels: {marker: "1"}}]}`)
	w.labels("n1", M{"marker": "1"})
	w.nodeCondition("n1", "vendor.io/DriverReady", want)
	m.stop()
	w.start(func(c *controller.Config) { c.RemovalGracePeriod = time.Second })
	w.nodeCondition("n1", "vendor.io/DriverReady", "")
}

func TestMassLossOfConditionsIsHeld(t *testing.T) {
	w := newWorld(t)
	w.rule("driver", driverRules)
	nodes := []string{"n0", "n1", "n2"}
	var published []*nfdv1alpha1.NodeFeature
	for _, name := range nodes {
		w.node(name)
		published = append(published, w.publish(w.namespace, "vendor-"+name, name, M{"ready": "true", "version": "1"}, nil))
	}
	w.start(func(c *controller.Config) {
		c.RemovalBudget.Nodes, c.RemovalBudget.Share, c.RemovalBudget.Hold = 0, 0, time.Hour
	})
	for _, name := range nodes {
		w.nodeCondition(name, "vendor.io/DriverReady", "True Probed: Driver on "+name+": 1")
	}
	for _, f := range published {
		w.delete(f)
	}
	for _, name := range nodes {
		w.event(name, "RemovalHeld", "vendor.io/DriverReady")
		w.nodeCondition(name, "vendor.io/DriverReady", "True Probed: Driver on "+name+": 1")
	}
}

// TestRulesReadConditionsOfOthers: a rule taints a node while another agent says that its accelerators are broken. Heartbeats of the kubelet
// and of the agent do not evaluate the node, and a rule does not read what a rule writes.
func TestRulesReadConditionsOfOthers(t *testing.T) {
	w := newWorld(t)
	n := w.node("n1")
	w.boots("n1", "boot-1")
	w.publish(w.namespace, "n1", "n1", M{"x": "1"}, nil)
	says := func(status, message string) {
		t.Helper()
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"AcceleratedHardwareReady","status":%q,"reason":"XID","message":%q,"lastHeartbeatTime":%q}]}}`,
			status, message, time.Now().UTC().Format(time.RFC3339))
		if err := w.Status().Patch(t.Context(), n, client.RawPatch(types.StrategicMergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	says("True", "all GPUs work")
	w.rule("broken", `{rules: [
  {name: broken, matchFeatures: [{feature: kubernetes.condition, matchExpressions: {type: {op: In, value: [AcceleratedHardwareReady]}, status: {op: In, value: ["False"]}}}],
   taints: [{key: vendor.io/degraded, effect: NoSchedule}], nodeConditions: [{type: vendor.io/Degraded, status: "True"}]},
  {name: circular, matchFeatures: [{feature: kubernetes.condition, matchExpressions: {type: {op: In, value: [vendor.io/Degraded]}}}], labels: {vendor.io/circular: ""}}]}`)
	w.start(func(c *controller.Config) { c.EnableTaints = true })
	tainted := func(want bool) *corev1.Node {
		t.Helper()
		return becomes(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, fmt.Sprintf("tainted=%t", want), func(n *corev1.Node) bool {
			return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "vendor.io/degraded" }) == want
		})
	}
	says("False", "GPU 3 fell off the bus")
	w.nodeCondition("n1", "vendor.io/Degraded", "True")
	if got := tainted(true); got.Labels["vendor.io/circular"] != "" {
		t.Error("a rule reads the condition that another rule writes")
	}
	says("True", "all GPUs work")
	tainted(false)
	w.nodeCondition("n1", "vendor.io/Degraded", "")
}

// TestTooManyBrokenNodesWaitForAConfirmation lets another agent say of four nodes that they are broken: one is tainted, the rule and the other
// nodes say why they wait, and an administrator confirms them.
func TestTooManyBrokenNodesWaitForAConfirmation(t *testing.T) {
	w := newWorld(t)
	rule := w.rule("broken", `{rules: [{name: broken, taints: [{key: vendor.io/degraded, effect: NoSchedule}], matchFeatures: [
  {feature: kubernetes.condition, matchExpressions: {type: {op: In, value: [AcceleratedHardwareReady]}, status: {op: In, value: ["False"]}}}]}]}`)
	const nodes = 4
	for i := range nodes {
		n := w.node(fmt.Sprintf("n%d", i))
		patch := client.RawPatch(types.StrategicMergePatchType, []byte(`{"status":{"conditions":[{"type":"AcceleratedHardwareReady","status":"False"}]}}`))
		if err := w.Status().Patch(t.Context(), n, patch); err != nil {
			t.Fatal(err)
		}
	}
	manager := &appsv1.Deployment{}
	w.apply(manager, fmt.Sprintf(`{metadata: {namespace: %s, name: manager},
	  spec: {replicas: 0, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`, w.namespace))
	w.start(func(c *controller.Config) {
		c.EnableTaints = true
		c.HealthBudget = settings.HealthBudget{Nodes: 1, Share: 0.05, Window: time.Hour}
		c.ConfirmEvery = 100 * time.Millisecond
	})
	tainted := func() (names, others []string) {
		for i := range nodes {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i)}}
			if err := w.Get(t.Context(), client.ObjectKeyFromObject(n), n); err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "vendor.io/degraded" }) {
				names = append(names, n.Name)
			} else {
				others = append(others, n.Name)
			}
		}
		return names, others
	}
	w.condition(rule, nfdv1alpha1.ConditionWithheld, metav1.ConditionTrue, "TooManyNodes", "3 nodes", "healthBudget")
	hit, waiting := tainted()
	if len(hit) != 1 {
		t.Fatalf("the nodes %v are tainted, want one", hit)
	}
	for _, name := range waiting {
		w.event(name, "AdditionHeld", "healthBudget", "taint vendor.io/degraded:NoSchedule")
	}
	change(w, manager, func(d *appsv1.Deployment) {
		d.Annotations = M{node.ConfirmAdditionsAnnotation: time.Now().UTC().Format(time.RFC3339)}
	})
	testkit.Eventually(t, "all nodes to be tainted", func(context.Context) error {
		if hit, _ := tainted(); len(hit) != nodes {
			return fmt.Errorf("the nodes %v are tainted", hit)
		}
		return nil
	})
	becomes(w, rule, "nothing withheld", func(r *nfdv1alpha1.NodeFeatureRule) bool {
		return meta.FindStatusCondition(r.Status.Conditions, nfdv1alpha1.ConditionWithheld) == nil
	})
}

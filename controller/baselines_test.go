package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/settings"
)

func withReadyNodes(c *controller.Config) { c.FeaturesReady = true }

// reports waits until a baseline has these numbers of conforming, deviating and unknown nodes, and this reason and message of the condition
// Conforming.
func (w *world) reports(b *assayv1alpha1.NodeBaseline, numbers, conforming string) {
	w.Helper()
	becomes(w, b, numbers+" "+conforming, func(b *assayv1alpha1.NodeBaseline) bool {
		s, c := &b.Status, meta.FindStatusCondition(b.Status.Conditions, assayv1alpha1.ConditionConforming)
		return s.Nodes != nil && c != nil && s.ObservedGeneration == b.Generation &&
			fmt.Sprint(*s.Conforming, *s.Deviating, *s.Unknown) == numbers && strings.HasPrefix(c.Reason+": "+c.Message, conforming)
	})
}

// TestABaselineReportsItsNodes follows a baseline over a change of facts, a reboot, a restart of the controller and an edit.
func TestABaselineReportsItsNodes(t *testing.T) {
	w := newWorld(t)
	for i := range 4 {
		name := fmt.Sprintf("base-%d", i)
		testkit.Create(w, w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: M{"example.com/base": "yes"}}})
		w.boots(name, "boot-1")
		w.examines(name, "boot-1", M{"driver": "2.0", "bios": "7"})
	}
	b := &assayv1alpha1.NodeBaseline{}
	w.apply(b, `{metadata: {name: base}, spec: {nodeSelector: {example.com/base: "yes"},
	  require: [{name: driver, matchFeatures: [{feature: test.attr, matchExpressions: {driver: {op: Ge, value: ["2.0"], type: version}}}]}],
	  uniform: [{name: bios, value: '{@"test.attr.bios"}'}]}}`)
	publishes := func(name, boot string, attributes M) {
		f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
		change(w, f, func(f *nfdv1alpha1.NodeFeature) { f.Spec.Features = examined(boot, attributes) })
	}
	m := w.start(withReadyNodes)
	w.reports(b, "4 0 0", "AllConform: 4 nodes")
	if ready := meta.FindStatusCondition(b.Status.Conditions, "Ready"); ready == nil || ready.Status != metav1.ConditionTrue {
		t.Errorf("the conditions are %v", b.Status.Conditions)
	}
	publishes("base-1", "boot-1", M{"driver": "1.9", "bios": "7"})
	publishes("base-2", "boot-1", M{"driver": "2.0", "bios": "6"})
	w.reports(b, "2 2 0", `NodesDeviate: 2 of 4 nodes: base-1 (driver: test.attr/driver is "1.9", not Ge "2.0"); base-2 (bios: 6; 3 of 4 nodes have 7)`)

	// A node that reboots is unknown until its worker has published what it has now.
	w.boots("base-1", "boot-2")
	w.reports(b, "2 1 1", "NodesDeviate: 1 of 4 nodes: base-2")
	publishes("base-1", "boot-2", M{"driver": "2.0", "bios": "7"})
	w.reports(b, "3 1 0", "NodesDeviate")
	m.stop()

	version := b.ResourceVersion
	m = w.start(withReadyNodes)
	publishes("base-2", "boot-1", M{"driver": "2.0", "bios": "7"})
	w.reports(b, "4 0 0", "AllConform")
	if writes := m.requests("PATCH", "nodebaselines"); len(writes) != 1 || b.ResourceVersion == version {
		t.Errorf("after a restart and one change there are the writes %q", writes)
	}
	change(w, b, func(b *assayv1alpha1.NodeBaseline) { b.Spec.Uniform[0].Value = "{" })
	becomes(w, b, "not accepted", func(b *assayv1alpha1.NodeBaseline) bool {
		c := meta.FindStatusCondition(b.Status.Conditions, assayv1alpha1.ConditionConforming)
		return c.Reason == assayv1alpha1.ReasonInvalid && meta.IsStatusConditionFalse(b.Status.Conditions, "Accepted") && b.Status.Nodes == nil
	})
}

// TestTheConditionOfABaselineIsPaced: the drivers of all nodes change. The conditions follow within the removal budget, an edit of the
// baseline at once.
func TestTheConditionOfABaselineIsPaced(t *testing.T) {
	w := newWorld(t)
	const kind, nodes = "example.com/Baseline", 4
	for i := range nodes {
		name := fmt.Sprintf("paced-%d", i)
		testkit.Create(w, w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: M{"example.com/paced": "yes"}}})
		w.publish(w.namespace, name, name, M{"driver": "2"}, nil)
	}
	publishes := func(name string, attributes, named M) {
		f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
		change(w, f, func(f *nfdv1alpha1.NodeFeature) {
			f.Spec.Features.Attributes = map[string]nfdv1alpha1.AttributeFeatureSet{"test.attr": {Elements: attributes}, "system.name": {Elements: named}}
		})
	}
	b := &assayv1alpha1.NodeBaseline{}
	w.apply(b, `{metadata: {name: paced}, spec: {nodeSelector: {example.com/paced: "yes"}, nodeCondition: example.com/Baseline,
	  require: [{name: driver, matchFeatures: [{feature: test.attr, matchExpressions: {driver: {op: In, value: ["2"]}}}]}]}}`)
	w.start(withReadyNodes, func(c *controller.Config) {
		c.RemovalBudget = settings.RemovalBudget{Nodes: 1, Window: time.Hour, Hold: time.Hour}
	})
	// count returns the number of nodes whose condition has a status and a reason.
	count := func(status, reason string) (n int) {
		var list corev1.NodeList
		if err := w.List(t.Context(), &list, client.MatchingLabels{"example.com/paced": "yes"}); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if c := conditionOf(&list.Items[i], kind); c != nil && string(c.Status) == status && c.Reason == reason {
				n++
			}
		}
		return n
	}
	waits := func(status, reason string, want int) {
		testkit.Eventually(w, status+" "+reason, func(context.Context) error {
			if n := count(status, reason); n != want {
				return fmt.Errorf("%d nodes, want %d", n, want)
			}
			return nil
		})
	}
	waits("Unknown", "FeaturesUnknown", nodes) // no worker has published the name of its node
	for i := range nodes {
		name := fmt.Sprintf("paced-%d", i)
		publishes(name, M{"driver": "2"}, M{"nodename": name})
	}
	waits("True", "Conforms", nodes)
	for i := range nodes {
		name := fmt.Sprintf("paced-%d", i)
		publishes(name, M{"driver": "1"}, M{"nodename": name})
	}
	w.reports(b, "0 4 0", "NodesDeviate")
	waits("False", "Driver", 1)
	if n := count("True", "Conforms"); n != nodes-1 {
		t.Errorf("%d nodes still have True, want all but the one that the budget allows", n)
	}
	change(w, b, func(b *assayv1alpha1.NodeBaseline) { b.Spec.Require[0].Name = "gpu-driver" })
	waits("False", "GpuDriver", nodes)
}

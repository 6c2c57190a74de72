package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/settings"
)

// TestATaintThatEvictsGoesAtItsPace has a rule that would evict the pods from all nodes of two zones.
func TestATaintThatEvictsGoesAtItsPace(t *testing.T) {
	w := newWorld(t)
	const nodes = 6
	for i := range nodes {
		n := w.node(fmt.Sprintf("n%d", i))
		change(w, n, func(n *corev1.Node) { n.Labels = M{corev1.LabelTopologyZone: fmt.Sprint("zone-", i%2)} })
		w.publish(w.namespace, n.Name, n.Name, nil, nil)
	}
	r := w.rule("storm", `{rules: [{name: storm, labels: {stormy: "1"}, taints: [
	  {key: vendor.io/leave, effect: NoExecute}, {key: vendor.io/stay, effect: NoSchedule}]}]}`)
	// tainted returns the zones of the nodes that have a taint.
	tainted := func(effect corev1.TaintEffect) (zones []string) {
		var list corev1.NodeList
		if err := w.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		for _, n := range list.Items {
			if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == effect && strings.HasPrefix(t.Key, "vendor.io/") }) {
				zones = append(zones, n.Labels[corev1.LabelTopologyZone])
			}
		}
		return zones
	}
	wait := func(what string, ok func() bool) {
		t.Helper()
		becomes(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}}, what, func(*corev1.Node) bool { return ok() })
	}
	w.start(func(c *controller.Config) {
		c.EnableTaints = true
		c.NoExecuteBudget = settings.NoExecuteBudget{Every: 200 * time.Millisecond, Share: 1.0 / 3, OneZone: true}
	})
	for i := range nodes { // taints that evict no pods do not wait
		w.labels(fmt.Sprintf("n%d", i), M{"stormy": "1"})
	}
	wait("the other taint on all nodes", func() bool { return len(tainted(corev1.TaintEffectNoSchedule)) == nodes })
	wait("a third of the nodes evicted", func() bool { return len(tainted(corev1.TaintEffectNoExecute)) == 2 })
	w.condition(r, nfdv1alpha1.ConditionHealthy, metav1.ConditionFalse, "vendor.io/leave", "has to wait")

	// Further reconciliations do not release more taints.
	w.rule("marker", `{rules: [{name: m, labels: {marker: "1"}}]}`)
	for i := range nodes {
		w.labels(fmt.Sprintf("n%d", i), M{"marker": "1"})
	}
	if zones := tainted(corev1.TaintEffectNoExecute); len(zones) != 2 || zones[0] != zones[1] {
		t.Errorf("nodes of zones %v are evicted", zones)
	}

	// Removing the taint needs no budget.
	w.delete(r)
	wait("no taint", func() bool {
		return len(tainted(corev1.TaintEffectNoExecute))+len(tainted(corev1.TaintEffectNoSchedule)) == 0
	})
}

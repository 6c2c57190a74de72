package controller_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// plainDefinition returns the CRD of NodeFeatureRule as in NFD: with NFD's fields only, and without the status subresource.
func plainDefinition(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(charts.CRDs()["nfd.k8s-sigs.io_nodefeaturerules.yaml"], &crd.Object); err != nil {
		t.Fatal(err)
	}
	version := crd.Object["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	for _, field := range []string{"subresources", "selectableFields", "additionalPrinterColumns"} {
		delete(version, field)
	}
	top := version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)["properties"].(map[string]any)
	delete(top, "status")
	spec := top["spec"].(map[string]any)
	delete(spec, "x-kubernetes-validations")
	fields := spec["properties"].(map[string]any)
	maps.DeleteFunc(fields, func(name string, _ any) bool { return name != "rules" })
	rule := fields["rules"].(map[string]any)["items"].(map[string]any)
	delete(rule, "x-kubernetes-validations")
	ours := []string{"conditions", "actions", "loop", "expressions", "labelsTemplateFrom", "varsTemplateFrom"}
	maps.DeleteFunc(rule["properties"].(map[string]any), func(name string, _ any) bool { return slices.Contains(ours, name) })
	return crd
}

// install replaces the CRD of NodeFeatureRule, and waits until the API server drops, or keeps, the conditions field.
func (w *world) install(crd *unstructured.Unstructured, drops bool) {
	w.Helper()
	testkit.Eventually(w, "definition", func(ctx context.Context) error {
		old := &unstructured.Unstructured{}
		old.SetGroupVersionKind(definition.Kind)
		if err := w.Get(ctx, client.ObjectKey{Name: definition.Rules}, old); err != nil {
			return err
		}
		next := crd.DeepCopy()
		next.SetResourceVersion(old.GetResourceVersion())
		return w.Update(ctx, next)
	})
	testkit.Eventually(w, "the CRD is active", func(ctx context.Context) error {
		probe := &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
		probe.Spec.Rules = []nfdv1alpha1.Rule{{Name: "x", Conditions: []nfdv1alpha1.Condition{{Op: "is-true", Args: nfdv1alpha1.JSON{Raw: []byte(`{"value":"x"}`)}}}}}
		if err := w.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if (len(probe.Spec.Rules[0].Conditions) == 0) != drops {
			return context.DeadlineExceeded
		}
		return nil
	})
}

// TestADefinitionChangesNoNode follows the definition of NodeFeatureRules while another program replaces and deletes it. A rule that lost its
// conditions gave its label and taint to all nodes, and those of a deleted definition went from all of them.
func TestADefinitionChangesNoNode(t *testing.T) {
	c := testkit.PrivateCluster(t, cluster.Options{})
	w := &world{T: t, WithWatch: testkit.Client(t, c.User), user: c.User}
	w.namespace = testkit.Namespace(t, w)
	ours := &unstructured.Unstructured{}
	ours.SetGroupVersionKind(definition.Kind)
	if err := w.Get(t.Context(), client.ObjectKey{Name: definition.Rules}, ours); err != nil {
		t.Fatal(err)
	}
	w.node("n1")
	w.publish(w.namespace, "n1", "n1", M{"a": "1"}, nil)
	const forOther = `{rules: [{name: x, labels: {example.com/other: "1"}, taints: [{key: example.com/other, effect: NoSchedule}], conditions: [{op: eq, args: {values: ["{node}", other]}}]}]}`
	const forThis = `{rules: [{name: x, labels: {example.com/this: "1"}, taints: [{key: example.com/this, effect: PreferNoSchedule}], conditions: [{op: eq, args: {values: ["{node}", n1]}}]}]}`
	other, this := w.rule("other", forOther), w.rule("this", forThis)
	w.rule("plain", `{rules: [{name: x, labels: {example.com/plain: "1"}}]}`)
	taints := func(c *controller.Config) { c.EnableTaints = true }
	m := w.start(taints)
	kept := M{"example.com/this": "1", "example.com/plain": "1", "example.com/other": ""}
	w.labels("n1", kept)
	w.recorded("", this)
	tainted := []corev1.Taint{{Key: "example.com/this", Effect: corev1.TaintEffectPreferNoSchedule}}
	h := w.record("n1")

	w.install(plainDefinition(t), true)
	w.metric("foreign")
	for _, r := range []*nfdv1alpha1.NodeFeatureRule{other, this} { // any client that writes the object makes the loss permanent
		change(w, r, func(r *nfdv1alpha1.NodeFeatureRule) { r.Annotations = M{"example.com/touched": "yes"} })
		if len(r.Spec.Rules[0].Conditions) > 0 {
			t.Fatal("the API server has kept a field that its definition lacks")
		}
	}
	w.rule("late", `{rules: [{name: x, labels: {example.com/late: "1"}}]}`)
	w.applied("marker-1")
	w.labels("n1", M{"example.com/marker-1": "1", "example.com/late": ""})
	m.stop()
	m = w.start(taints)
	w.applied("marker-2")
	w.labels("n1", M{"example.com/marker-2": "1", "example.com/late": ""})

	w.install(ours, false)
	w.metric("whole")
	w.condition(other, nfdv1alpha1.ConditionAccepted, metav1.ConditionFalse, "FieldsDropped", "apply it again")
	w.condition(this, nfdv1alpha1.ConditionAccepted, metav1.ConditionFalse, "FieldsDropped")
	w.setRule(other, forOther)
	w.setRule(this, forThis)
	w.condition(other, nfdv1alpha1.ConditionAccepted, metav1.ConditionTrue)
	w.condition(this, nfdv1alpha1.ConditionAccepted, metav1.ConditionTrue)

	if err := w.Delete(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	w.metric("absent")
	before := passes()
	w.publish(w.namespace, "more", "n1", M{"b": "2"}, nil)
	w.waitForPasses(before, 1)
	fresh := ours.DeepCopy()
	fresh.SetResourceVersion("")
	fresh.SetUID("")
	testkit.Eventually(w, "the definition is created, once the old one is gone", func(ctx context.Context) error { return w.Create(ctx, fresh.DeepCopy()) })
	w.metric("whole")
	again := &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: "this"}, Spec: this.Spec}
	testkit.Eventually(w, "the rule is applied again", func(ctx context.Context) error { return client.IgnoreAlreadyExists(w.Create(ctx, again)) })
	w.condition(again, nfdv1alpha1.ConditionAccepted, metav1.ConditionTrue)
	m.stop()
	for _, n := range h.states(w) {
		ofRules := slices.DeleteFunc(n.Spec.Taints, func(taint corev1.Taint) bool { return !strings.HasPrefix(taint.Key, "example.com/") })
		if !holds(n.Labels, kept) || !slices.Equal(ofRules, tainted) {
			t.Errorf("a version of the Node had %v and %v", n.Labels, ofRules)
		}
	}
}

// TestADeletedDefinitionOfNodeFeaturesRemovesNoLabel deletes the definition of NodeFeatures, and with it the objects of all publishers. Within
// the budget, the labels that they gave went from the Nodes until the definition was known to be gone.
func TestADeletedDefinitionOfNodeFeaturesRemovesNoLabel(t *testing.T) {
	for name, refuse := range map[string]bool{"Watched": false, "Read": true} {
		t.Run(name, func(t *testing.T) {
			c := testkit.PrivateCluster(t, cluster.Options{})
			w := &world{T: t, WithWatch: testkit.Client(t, c.User), user: c.User}
			w.namespace = testkit.Namespace(t, w)
			ours := &unstructured.Unstructured{}
			ours.SetGroupVersionKind(definition.Kind)
			if err := w.Get(t.Context(), client.ObjectKey{Name: definition.Features}, ours); err != nil {
				t.Fatal(err)
			}
			const nodes = 10
			w.fleet(nodes)
			w.rule("tenants", `{rules: [{name: x, labels: {tenant: "1"}, matchFeatures: [{feature: test.attr, matchExpressions: {a: {op: Exists}}}]}]}`)
			m := w.startWith(&traffic{fails: func(r *http.Request) int {
				if refuse && strings.Contains(r.URL.Path, "/customresourcedefinitions") && strings.Contains(r.URL.RawQuery, "watch=true") {
					return http.StatusForbidden
				}
				return 0
			}}, func(c *controller.Config) { c.RemovalBudget.Nodes, c.RemovalBudget.Share = 1000, 1 })
			w.count("tenant", "1", nodes)
			w.recorded("")
			all := make([]*history, nodes)
			for i := range all {
				all[i] = w.record(fmt.Sprintf("n%d", i))
			}

			if err := w.Delete(t.Context(), ours); err != nil {
				t.Fatal(err)
			}
			w.stateOf(definition.Features, "absent")
			before := passes()
			for i := range all { // another client writes the Node
				change(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: all[i].name}}, func(n *corev1.Node) { n.Annotations = M{"example.com/by-another": "1"} })
			}
			w.waitForPasses(before, nodes)
			fresh := ours.DeepCopy()
			fresh.SetResourceVersion("")
			fresh.SetUID("")
			testkit.Eventually(w, "the definition is created, once the old one is gone", func(ctx context.Context) error { return w.Create(ctx, fresh.DeepCopy()) })
			w.stateOf(definition.Features, "whole")
			testkit.Eventually(w, "a worker publishes again", func(ctx context.Context) error {
				f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "n0", Labels: M{nfdv1alpha1.NodeNameLabel: "n0"}}}
				f.Spec.Labels = M{"own": "again"}
				return client.IgnoreAlreadyExists(w.Create(ctx, f))
			})
			w.labels("n0", M{"own": "again"})
			m.stop()
			for _, h := range all {
				h.always(w, feature+"tenant")
				if states := h.states(w); states[len(states)-1].Labels[feature+"tenant"] != "1" {
					t.Errorf("%s has lost the label", h.name)
				}
			}
		})
	}
}

// metric waits until the controller knows that the definition of NodeFeatureRules is in a state.
func (w *world) metric(state string) {
	w.Helper()
	w.stateOf(definition.Rules, state)
}

// stateOf waits until the controller knows that a definition is in a state.
func (w *world) stateOf(name, state string) {
	w.Helper()
	testkit.Eventually(w, "assay_definition_state "+state, func(context.Context) error {
		families, err := ctrlmetrics.Registry.Gather()
		if err != nil {
			return err
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "assay_definition_state" && m.GetLabel()[0].GetValue() == name && m.GetLabel()[1].GetValue() == state {
					return nil
				}
			}
		}
		return errors.New("not yet")
	})
}

// applied creates a rule that gives a label of its name, as kubectl apply does, which says what was written.
func (w *world) applied(name string) {
	w.Helper()
	spec := fmt.Sprintf(`{"rules":[{"name":"x","labels":{"example.com/%s":"1"}}]}`, name)
	r := &nfdv1alpha1.NodeFeatureRule{}
	w.apply(r, fmt.Sprintf(`{metadata: {name: %s, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"spec":%s}'}}, spec: %s}`, name, spec, spec))
}

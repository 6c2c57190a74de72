package controller_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/controller"
	schemaguard "github.com/assay-project/assay/internal/assembly/schema"
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
		old.SetGroupVersionKind(schemaguard.Kind)
		if err := w.Get(ctx, client.ObjectKey{Name: schemaguard.Definition}, old); err != nil {
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

func TestRulesThatLostTheirConditionsMatchNothing(t *testing.T) {
	c := testkit.PrivateCluster(t, cluster.Options{})
	w := &world{T: t, WithWatch: testkit.Client(t, c.User), user: c.User}
	w.namespace = testkit.Namespace(t, w)
	ours := &unstructured.Unstructured{}
	ours.SetGroupVersionKind(schemaguard.Kind)
	if err := w.Get(t.Context(), client.ObjectKey{Name: schemaguard.Definition}, ours); err != nil {
		t.Fatal(err)
	}
	w.install(plainDefinition(t), true)
	w.node("n1")
	w.publish(w.namespace, "n1", "n1", M{"a": "1"}, nil)

	w.rule("plain", copies)
	lost := w.rule("lost", `{rules: [{name: only-some, labels: {example.com/lost: "1"}, conditions: [{op: eq, args: {values: ["{node}", other]}}]}]}`)
	if len(lost.Spec.Rules[0].Conditions) > 0 {
		t.Fatal("the API server has kept a field that its definition lacks")
	}
	applied := &nfdv1alpha1.NodeFeatureRule{}
	w.apply(applied, `{metadata: {name: applied, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"spec":{"phase":"early","rules":[{"name":"x"}]}}'}},
	  spec: {rules: [{name: x, labels: {example.com/applied: "1"}, matchFeatures: [{feature: test.attr, matchName: {op: Exists}}]}]}}`)
	m := w.start(func(c *controller.Config) { c.SchemaEvery = 50 * time.Millisecond })
	w.labels("n1", M{"a": "1", "example.com/lost": "", "example.com/applied": ""})
	// That CRD has no status, so an Event is emitted.
	if message := w.event("lost", "RuleInvalid"); !strings.Contains(message, `rule "only-some" matches every node`) || !strings.Contains(message, "spec.rules[].conditions") {
		t.Errorf("event says %q", message)
	}
	w.event("applied", "RuleInvalid", "written with spec.phase")
	if got := gauge(t, "assay_schema_missing_fields"); got < 10 {
		t.Errorf("assay_schema_missing_fields is %v", got)
	}

	// With our own CRD, the dropped fields are still missing.
	w.install(ours, false)
	w.condition(lost, nfdv1alpha1.ConditionAccepted, metav1.ConditionFalse, "FieldsDropped", "create it again")
	w.labels("n1", M{"a": "1", "example.com/lost": ""})
	m.stop()
	before := passes()
	w.start(func(c *controller.Config) { c.SchemaEvery = 50 * time.Millisecond })
	w.waitForPasses(before, 1)
	w.rule("marker", `{rules: [{name: m, labels: {example.com/marker: "1"}}]}`)
	w.labels("n1", M{"example.com/marker": "1", "example.com/lost": ""})
	w.delete(lost)
	again := w.rule("lost", `{rules: [{name: only-some, labels: {example.com/lost: "1"}, conditions: [{op: eq, args: {values: ["{node}", n1]}}]}]}`)
	w.labels("n1", M{"example.com/lost": "1"})
	w.condition(again, nfdv1alpha1.ConditionAccepted, metav1.ConditionTrue)

	// If the CRD is replaced while the manager runs, the manager detects it.
	w.install(plainDefinition(t), true)
	w.rule("late", `{rules: [{name: only-some, labels: {example.com/late: "1"}, conditions: [{op: eq, args: {values: ["{node}", other]}}]}]}`)
	w.event("late", "RuleInvalid")
	var events corev1.EventList
	if err := w.List(t.Context(), &events); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, e := range events.Items {
		if e.Reason == "RuleInvalid" {
			count[e.InvolvedObject.Name] += int(max(e.Count, 1))
		}
	}
	// Once per manager and CRD.
	if n := count["applied"]; n > 4 {
		t.Errorf("the same thing is said %d times", n)
	}
}

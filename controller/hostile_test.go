package controller_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/internal/testkit"
)

// flood is a rule with 256 outputs whose keys end in two numbers.
func flood(number int, field, value string) string {
	var b strings.Builder
	for i := range 256 {
		fmt.Fprintf(&b, "f%d-%d: %s,", number, i, value)
	}
	return fmt.Sprintf("{name: flood-%d, %s: {%s}}", number, field, strings.TrimSuffix(b.String(), ","))
}

// badRules are invalid specs, each in a different way. The CRD schema rejects some of them; the others are stored, as they would be
// while the webhook is down.
func badRules() map[string]string {
	rule := func(fields string) string { return "{rules: [{name: bad, " + fields + "}]}" }
	attr := func(expression string) string {
		return "matchFeatures: [{feature: test.attr, matchExpressions: {num: {" + expression + "}}}]"
	}
	var labels, annotations []string
	for i := range 40 {
		labels = append(labels, flood(i, "labels", `"1"`))
	}
	annotations = append(annotations, flood(0, "annotations", strings.Repeat("x", 1000)), flood(1, "annotations", strings.Repeat("x", 1000)))
	return map[string]string{
		"unknown-op":         rule(attr("op: Frobnicate")),
		"no-value":           rule(attr("op: In")),
		"too-many-values":    rule(attr(`op: Gt, value: ["1", "2"]`)),
		"regexp-invalid":     rule(attr(`op: InRegexp, value: ["("]`)),
		"regexp-too-large":   rule(attr(`op: InRegexp, value: ["(.{1,1000}){1,1000}"]`)),
		"no-number":          rule(`labels: {bad: "1"}, ` + attr(`op: Gt, value: ["5"]`)),
		"template-syntax":    rule(`labelsTemplate: "{{range}}"`),
		"template-repeat":    rule(`labelsTemplate: 'bad={{ repeat 100000000 "x" }}', ` + attr("op: Exists")),
		"template-until":     rule(`labelsTemplate: "bad={{ until 2000000 }}", ` + attr("op: Exists")),
		"template-random":    rule(`labelsTemplate: "bad={{ uuidv4 }}"`),
		"template-panic":     rule(`labelsTemplate: "bad={{ index nil 0 }}", ` + attr("op: Exists")),
		"label-protected":    rule(`labels: {node-role.kubernetes.io/control-plane: ""}`),
		"label-restricted":   rule(`labels: {x.node-restriction.kubernetes.io/y: "1"}`),
		"label-value":        rule(`labels: {bad: "` + strings.Repeat("x", 64) + `"}`),
		"label-from-feature": rule(`labels: {bad: "@test.attr.long"}`),
		"annotation-ours":    rule(`annotations: {nfd.node.kubernetes.io/feature-labels: "x"}`),
		"annotation-long":    rule(`annotations: {bad: "` + strings.Repeat("x", 2000) + `"}`),
		"resource-native":    rule(`extendedResources: {cpu: "4"}`),
		"resource-huge":      rule(`extendedResources: {vendor.io/bad: "1e30"}`),
		"resource-negative":  rule(`extendedResources: {vendor.io/bad: "-1"}`),
		"resource-missing":   rule(`extendedResources: {vendor.io/bad: "@test.attr.missing"}, labels: {bad: "x/y"}`),
		"taint-lifecycle":    rule(`taints: [{key: node.kubernetes.io/unreachable, effect: NoExecute}]`),
		"taint-effect":       rule(`taints: [{key: vendor.io/bad, effect: Evict}]`),
		"vars-circle":        rule(`vars: {a: "{b}", b: "{a}"}, labels: {bad: "{a}"}`),
		"loop-budget": rule(`loop: "{@test.many}", actions: [` + strings.TrimSuffix(strings.Repeat(
			`{op: extend-attribute, args: {path: /annotations/bad, value: `+strings.Repeat("x", 900)+`}},`, 60), ",") + `]`),
		"ten-thousand-labels": "{rules: [" + strings.Join(labels, ",") + "]}",
		"megabyte":            "{rules: [" + strings.Join(annotations, ",") + "]}",
	}
}

// TestABadRuleOfEachKindHarmsNoOther creates rules with every kind of error between valid ones.
func TestABadRuleOfEachKindHarmsNoOther(t *testing.T) {
	w := newWorld(t)
	n := w.node("n1")
	w.publish(w.namespace, "n1", "n1", M{"num": "seven", "long": strings.Repeat("x", 100)}, nil)
	many := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "many", Labels: M{nfdv1alpha1.NodeNameLabel: "n1"}}}
	things := make([]nfdv1alpha1.InstanceFeature, 256)
	for i := range things {
		things[i].Attributes = M{"i": fmt.Sprint(i)}
	}
	many.Spec.Features.Instances = map[string]nfdv1alpha1.InstanceFeatureSet{"test.many": {Elements: things}}
	testkit.Create(t, w, many)

	const good = `{rules: [{name: good, labels: {%[1]s: "1"}, annotations: {%[1]s: "1"}, extendedResources: {vendor.io/%[1]s: "1"},
	  taints: [{key: vendor.io/%[1]s, effect: NoSchedule}]}]}`
	want, stored := M{}, map[string]*nfdv1alpha1.NodeFeatureRule{}
	for i, name := range slices.Sorted(maps.Keys(badRules())) {
		w.rule(fmt.Sprintf("%s-%d", name, i), fmt.Sprintf(good, "good-"+name)) // one after each
		want["good-"+name] = "1"
		r := &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := yaml.UnmarshalStrict([]byte(badRules()[name]), &r.Spec); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		switch err := w.Create(t.Context(), r); {
		case err == nil:
			stored[name] = r
			t.Cleanup(func() { _ = w.Delete(context.Background(), r) })
		case !apierrors.IsInvalid(err):
			t.Fatalf("%s: %v", name, err)
		}
	}
	if len(stored) < 15 {
		t.Errorf("only %d bad rules were stored", len(stored))
	}
	w.start(func(c *controller.Config) { c.EnableTaints = true })
	w.labels("n1", want)
	becomes(w, n, "the other outputs of the good rules", func(n *corev1.Node) bool {
		for key := range want {
			one := n.Status.Capacity[corev1.ResourceName("vendor.io/"+key)]
			if n.Annotations[feature+key] != "1" || one.Value() != 1 ||
				!slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "vendor.io/"+key }) {
				return false
			}
		}
		return true
	})
	for key := range n.Labels {
		if key == feature+"bad" || strings.Contains(key, "control-plane") || strings.Contains(key, "node-restriction") {
			t.Errorf("label %s was written", key)
		}
	}
	for name, r := range stored {
		becomes(w, r, "a condition of "+name+" that says what is wrong", func(r *nfdv1alpha1.NodeFeatureRule) bool {
			for _, kind := range []string{nfdv1alpha1.ConditionAccepted, nfdv1alpha1.ConditionHealthy} {
				c := meta.FindStatusCondition(r.Status.Conditions, kind)
				if c != nil && (c.Status == metav1.ConditionFalse || strings.Contains(c.Message, "warning")) && c.Message != "" {
					return true
				}
			}
			return false
		})
	}
}

// TestACrashLeavesNoUnownedKeys kills the manager at each of its writes to a Node, before and after the API server has
// processed it. The next manager, for which the rule is deleted, cleans up.
func TestACrashLeavesNoUnownedKeys(t *testing.T) {
	const spec = `{rules: [{name: r, labels: {a: "1", vendor.io/a: "1"}, annotations: {a: "1"}, extendedResources: {vendor.io/a: "1"},
	  taints: [{key: vendor.io/a, effect: NoSchedule}]}]}`
	for at := 1; at <= 2; at++ {
		for _, carriedOut := range []bool{false, true} {
			t.Run(fmt.Sprintf("Write%d/%v", at, carriedOut), func(t *testing.T) {
				w := newWorld(t)
				n := w.node("n1")
				change(w, n, func(n *corev1.Node) {
					n.Labels = M{"admin": "1"}
					n.Spec.Taints = []corev1.Taint{{Key: "admin", Effect: "NoSchedule"}}
				})
				w.publish(w.namespace, "n1", "n1", nil, nil)
				r := w.rule("r", spec)
				var writes atomic.Int32
				crashed := make(chan struct{})
				tr := &traffic{}
				tr.fails = func(r *http.Request) int {
					if r.Method == http.MethodGet {
						return 0
					}
					if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/nodes/n1") && writes.Add(1) == int32(at) {
						defer close(crashed)
						if carriedOut {
							if resp, err := tr.next.RoundTrip(r); err == nil {
								_ = resp.Body.Close()
							}
						}
					}
					if writes.Load() >= int32(at) {
						return http.StatusServiceUnavailable
					}
					return 0
				}
				m := w.startWith(tr, func(c *controller.Config) { c.EnableTaints = true })
				<-crashed
				m.stop()
				w.delete(r)
				w.start(func(c *controller.Config) { c.EnableTaints = true })
				w.rule("marker", `{rules: [{name: m, labels: {marker: "1"}}]}`)
				w.labels("n1", M{"marker": "1"})
				becomes(w, n, "what it was, and the marker", func(n *corev1.Node) bool {
					_, resource := n.Status.Capacity["vendor.io/a"]
					return !resource && len(n.Spec.Taints) == 1 && n.Spec.Taints[0].Key == "admin" &&
						maps.Equal(n.Labels, M{"admin": "1", feature + "marker": "1"}) &&
						n.Annotations[feature+"a"] == "" && n.Annotations[nfdv1alpha1.FeatureLabelsAnnotation] == "marker" &&
						n.Annotations[nfdv1alpha1.FeatureAnnotationsAnnotation] == "" &&
						n.Annotations[nfdv1alpha1.ExtendedResourcesAnnotation] == "" && n.Annotations[nfdv1alpha1.TaintsAnnotation] == ""
				})
			})
		}
	}
}

// TestContestedLabelsAreLeftAlone has another client change a label back each time it is corrected.
func TestContestedLabelsAreLeftAlone(t *testing.T) {
	w := newWorld(t)
	n := w.node("n1")
	w.publish(w.namespace, "n1", "n1", M{"a": "ours"}, nil)
	w.rule("copy", copies)
	w.start()
	w.labels("n1", M{"a": "ours"})
	h := w.record("n1")
	for i := range 30 {
		change(w, n, func(n *corev1.Node) { n.Labels[feature+"a"] = fmt.Sprintf("theirs-%d", i) })
	}
	w.rule("marker", `{rules: [{name: m, labels: {marker: "1"}}]}`) // one contested key does not block the node
	w.labels("n1", M{"marker": "1"})
	repairs, before := 0, ""
	for i, state := range h.states(w) {
		a := state.Labels[feature+"a"]
		if i > 0 && a == "ours" && before != "ours" {
			repairs++
		}
		before = a
	}
	if repairs > 3 {
		t.Errorf("it was corrected %d times against 30 changes of another client", repairs)
	}
}

// TestHostilePublishers covers malformed NodeFeatures.
func TestHostilePublishers(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.node("n2")
	w.publish(w.namespace, "n1", "n1", M{"own": "1"}, nil)
	w.rule("copy", copies)
	w.rule("told", `{rules: [{name: told, labels: {node: "{node}", told: "@system.name.nodename"}, matchFeatures: [{feature: system.name, matchName: {op: Exists}}]}]}`)
	liar := w.publish(w.namespace, "liar", "n1", nil, nil)
	change(w, liar, func(f *nfdv1alpha1.NodeFeature) {
		f.Spec.Features.Attributes = map[string]nfdv1alpha1.AttributeFeatureSet{"system.name": {Elements: M{"nodename": "n2"}}}
	})
	owner := &corev1.ConfigMap{}
	w.apply(owner, fmt.Sprintf("{metadata: {namespace: %s, name: owner}}", w.namespace))
	owned := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.namespace, Name: "owned", Labels: M{nfdv1alpha1.NodeNameLabel: "n1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID, BlockOwnerDeletion: new(true), Controller: new(true)}},
	}}
	owned.Spec.Features.Attributes = map[string]nfdv1alpha1.AttributeFeatureSet{"test.attr": {Elements: M{"owned": "1"}}}
	testkit.Create(t, w, owned)
	stuck := w.publish(w.namespace, "stuck", "n1", M{"stuck": "1"}, nil)
	change(w, stuck, func(f *nfdv1alpha1.NodeFeature) { f.Finalizers = []string{"vendor.io/never"} })
	t.Cleanup(func() {
		_ = w.Patch(context.Background(), stuck, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
	})
	g := w.group(w.namespace, "told", `[{name: x, matchFeatures: [{feature: system.name, matchExpressions: {nodename: {op: In, value: [n2]}}}]}]`)
	m := w.start(withGroups)

	w.labels("n1", M{"own": "1", "owned": "1", "stuck": "1", "node": "n1", "told": "n2"})
	w.labels("n2", M{"node": "", "told": "", "own": ""}) // a publisher that forges a name affects no other node
	w.members(g, "n1")

	// An object that is being deleted does not count, even while a finalizer keeps it.
	if err := w.Delete(t.Context(), stuck); err != nil {
		t.Fatal(err)
	}
	w.labels("n1", M{"own": "1", "stuck": ""})

	// One that is created and deleted in a fast loop causes few writes, and does not delay other nodes.
	m.reset()
	for range 200 {
		f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "restless", Labels: M{nfdv1alpha1.NodeNameLabel: "n1"}}}
		f.Spec.Features.Attributes = map[string]nfdv1alpha1.AttributeFeatureSet{"test.attr": {Elements: M{"restless": "1"}}}
		if err := w.Create(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if err := w.Delete(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	w.publish(w.namespace, "n2", "n2", M{"calm": "1"}, nil)
	w.labels("n2", M{"calm": "1"})
	if got := len(m.requests("PATCH", "/nodes/n1")); got > 3 {
		t.Errorf("%d writes for an object that comes and goes", got)
	}
}

// TestRestlessRules covers rules that change faster than nodes can be updated.
func TestRestlessRules(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	restless := w.rule("restless", `{rules: [{name: r, labels: {restless: "0"}}]}`)
	w.rule("calm", `{rules: [{name: r, labels: {calm: "1"}}]}`)
	m := w.start()
	w.labels("n1", M{"restless": "0", "calm": "1"})
	m.reset()
	const updates = 200
	for i := range updates {
		change(w, restless, func(r *nfdv1alpha1.NodeFeatureRule) { r.Spec.Rules[0].Labels["restless"] = fmt.Sprint(i + 1) })
	}
	w.labels("n1", M{"restless": fmt.Sprint(updates), "calm": "1"})
	if got := len(m.requests("PATCH", "/nodes/n1")); got > updates {
		t.Errorf("%d writes of the node for %d updates of the rule", got, updates)
	}

	// A rule that is deleted and created again under the same name is a new object.
	w.delete(restless)
	again := w.rule("restless", `{rules: [{name: r, labels: {again: "1"}}]}`)
	w.labels("n1", M{"restless": "", "again": "1", "calm": "1"})
	w.condition(again, nfdv1alpha1.ConditionAccepted, metav1.ConditionTrue)
}

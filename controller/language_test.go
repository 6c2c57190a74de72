package controller_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/internal/doctest"
	"github.com/assay-project/assay/internal/testkit"
)

func TestTheHigherPriorityKeepsAKeyAndTheConflictIsReported(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	ten := w.rule("ten", `{priority: 10, rules: [{name: x, labels: {example.com/x: ten}}]}`)
	w.rule("twenty", `{priority: 20, rules: [{name: x, labels: {example.com/x: twenty}}]}`)
	w.rule("a", `{rules: [{name: y, labels: {example.com/y: a}}]}`)
	w.rule("b", `{rules: [{name: y, labels: {example.com/y: b}}]}`)
	w.start()
	w.labels("n1", M{"example.com/x": "twenty", "example.com/y": "b"})
	w.condition(ten, nfdv1alpha1.ConditionConflicted, metav1.ConditionTrue, "example.com/x: twenty/x keeps it, ten/x loses it")
	change(w, ten, func(r *nfdv1alpha1.NodeFeatureRule) {
		r.Spec.Priority = nil
		r.Spec.Rules[0].Labels = M{"example.com/z": "1"}
	})
	w.labels("n1", M{"example.com/x": "twenty", "example.com/z": "1"})
	w.condition(ten, nfdv1alpha1.ConditionConflicted, metav1.ConditionFalse)
}

func TestANodeThatIsNoLongerSelectedLosesTheLabels(t *testing.T) {
	w := newWorld(t)
	n := w.node("n1")
	change(w, n, func(n *corev1.Node) { n.Labels = M{"example.com/pool": "gpu"} })
	w.rule("pool", `{nodeSelector: {matchLabels: {example.com/pool: gpu}}, rules: [{name: x, labels: {example.com/gpu: "1"}}]}`)
	w.rule("all", `{rules: [{name: x, labels: {example.com/all: "1", example.com/pool2: gpu}}]}`)
	w.rule("chases-its-tail", `{nodeSelector: {matchLabels: {example.com/pool2: gpu}}, rules: [{name: x, labels: {example.com/tail: "1"}}]}`)
	w.start()
	w.labels("n1", M{"example.com/gpu": "1", "example.com/all": "1"})
	change(w, n, func(n *corev1.Node) { n.Labels["example.com/pool"] = "cpu" })
	w.labels("n1", M{"example.com/gpu": "", "example.com/all": "1", "example.com/tail": ""})
}

func TestAFailedNodeKeepsItsLabelsAndTheOthersGoOn(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"rejected-1", "rejected-2"} {
		w.node(name)
		w.publish(w.namespace, name, name, M{"memory": "64"}, nil)
	}
	r := w.rule("checks", `{priority: 9000, rules: [{name: memory-floor, conditions: [{op: lt, args: {values: ["{@test.attr.memory}", 32]}}],
	  actions: [{op: fail, args: {msg: "{node} has {@test.attr.memory} GiB"}}]}]}`)
	label := w.rule("label", `{rules: [{name: l, labels: {example.com/version: one}}]}`)
	w.start()
	w.labels("rejected-1", M{"example.com/version": "one"})
	w.labels("rejected-2", M{"example.com/version": "one"})
	n1 := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "rejected-1"}}
	change(w, n1, func(f *nfdv1alpha1.NodeFeature) { f.Spec.Features.Attributes["test.attr"].Elements["memory"] = "16" })
	node := becomes(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "rejected-1"}}, "annotation", func(n *corev1.Node) bool {
		return n.Annotations[assayv1alpha1.FailedAnnotation] != ""
	})
	if got := node.Annotations[assayv1alpha1.FailedAnnotation]; got != "checks/memory-floor: rejected-1 has 16 GiB" {
		t.Errorf("annotation says %q", got)
	}
	w.setRule(label, `{rules: [{name: l, labels: {example.com/version: two}}]}`)
	w.labels("rejected-2", M{"example.com/version": "two"})
	w.labels("rejected-1", M{"example.com/version": "one"})
	w.event("rejected-1", "NodeRejected", "rejected-1 has 16 GiB")
	w.condition(r, nfdv1alpha1.ConditionRejecting, metav1.ConditionTrue, "kept unchanged: 1 node,", "first rejected-1", "rejected-1 has 16 GiB")
	if got := gauge(t, "assay_nodes_failed"); got < 1 {
		t.Errorf("assay_nodes_failed is %v", got)
	}
	change(w, n1, func(f *nfdv1alpha1.NodeFeature) { f.Spec.Features.Attributes["test.attr"].Elements["memory"] = "64" })
	w.labels("rejected-1", M{"example.com/version": "two"})
	becomes(w, node, "no annotation", func(n *corev1.Node) bool { return n.Annotations[assayv1alpha1.FailedAnnotation] == "" })
	w.condition(r, nfdv1alpha1.ConditionRejecting, metav1.ConditionFalse)
}

// gauge returns the value of a metric of this process with the given label values, in the order of the label names.
func gauge(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			var have []string
			for _, l := range m.Label {
				have = append(have, l.GetValue())
			}
			if f.GetName() == name && slices.Equal(have, labels) {
				return m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

func TestAFailedNodeCanBeTainted(t *testing.T) {
	w := newWorld(t)
	n := w.node("n1")
	change(w, n, func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "example.com/theirs", Effect: "NoSchedule"}}
	})
	r := w.rule("checks", `{priority: 9000, rules: [{name: never, actions: [{op: fail, args: {msg: no}}]}]}`)
	w.rule("label", `{rules: [{name: l, labels: {example.com/l: "1"}, taints: [{key: example.com/by-rule, effect: NoSchedule}]}]}`)
	w.start(func(c *controller.Config) {
		c.FailTaint = "example.com/rejected=true:NoSchedule"
	})
	taints := func(want ...string) {
		t.Helper()
		becomes(w, n, fmt.Sprintf("taints %q", want), func(n *corev1.Node) bool {
			var have []string
			for _, t := range n.Spec.Taints {
				have = append(have, t.ToString())
			}
			return fmt.Sprint(have) == fmt.Sprint(want)
		})
	}
	taints("example.com/theirs:NoSchedule", "example.com/rejected=true:NoSchedule")
	w.labels("n1", M{"example.com/l": ""})
	w.delete(r)
	taints("example.com/theirs:NoSchedule")
	w.labels("n1", M{"example.com/l": "1"})
}

func TestFailCanBeSwitchedOff(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.rule("checks", `{priority: 9000, rules: [{name: never, actions: [{op: fail, args: {msg: no}}]}]}`)
	w.rule("label", `{rules: [{name: l, labels: {example.com/l: "1"}}]}`)
	w.start(func(c *controller.Config) { c.AllowFail = false })
	w.labels("n1", M{"example.com/l": "1"})
}

func TestLabelsOfAFeatureThatDisappearsGo(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	f := w.publish(w.namespace, "n1", "n1", M{"a": "1"}, nil)
	w.rule("r", `{rules: [{name: l, labels: {example.com/a: "{@test.attr.a}", example.com/always: "1"}}]}`)
	w.start()
	w.labels("n1", M{"example.com/a": "1", "example.com/always": "1"})
	change(w, f, func(f *nfdv1alpha1.NodeFeature) { delete(f.Spec.Features.Attributes, "test.attr") })
	w.labels("n1", M{"example.com/a": "", "example.com/always": "1"})
}

func TestAConditionThatFailsIsReportedAndStopsNothingElse(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.publish(w.namespace, "n1", "n1", M{"ip": "bogus"}, nil)
	r := w.rule("r", `{rules: [{name: net, labels: {example.com/net: "1"}, conditions: [{op: in-net, args: {address: "{@test.attr.ip}", subnet: 10.0.0.0/8}}]},
	  {name: other, labels: {example.com/other: "1"}}]}`)
	w.start()
	w.labels("n1", M{"example.com/net": "", "example.com/other": "1"})
	w.condition(r, nfdv1alpha1.ConditionHealthy, metav1.ConditionFalse, "n1", "net")
}

func TestBuiltInRulesSurroundThoseOfUsers(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	object := func(name string, priority int, rules string) string {
		return fmt.Sprintf("{apiVersion: nfd.k8s-sigs.io/v1alpha1, kind: NodeFeatureRule, metadata: {name: %s}, spec: {priority: %d, rules: [%s]}}", name, priority, rules)
	}
	write("policy.yaml", object("policy", 20000, `{name: p, labels: {example.com/policy: built-in}}`))
	write("defaults.yaml", object("defaults", -5, `{name: d, labels: {example.com/default: built-in, example.com/other: built-in}}`))
	user := w.rule("user", `{priority: 9999, rules: [{name: u, labels: {example.com/policy: user, example.com/default: user}}]}`)
	w.start(func(c *controller.Config) { c.BuiltInRules = dir })
	want := M{"example.com/policy": "built-in", "example.com/default": "user", "example.com/other": "built-in"}
	w.labels("n1", want)
	w.condition(user, nfdv1alpha1.ConditionConflicted, metav1.ConditionTrue, "builtin:policy/p keeps it, user/u loses it")
	status := func(what string, ok func(map[string]string) bool) {
		t.Helper()
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "assay-builtin-rules"}}
		becomes(w, m, what, func(m *corev1.ConfigMap) bool { return ok(m.Data) })
	}
	status("Loaded", func(d map[string]string) bool {
		return d["status"] == "Loaded" && strings.Contains(d["rules"], `"policy"`) && strings.Contains(d["rules"], `"defaults"`)
	})

	write("policy.yaml", "kind: NodeFeatureRule\nspec: [")
	status("Failed", func(d map[string]string) bool {
		return d["status"] == "Failed" && strings.Contains(d["problems"], "policy.yaml:2")
	})
	w.labels("n1", want)
	write("policy.yaml", object("policy", 20000, `{name: p, labels: {example.com/policy: repaired}}`))
	w.labels("n1", M{"example.com/policy": "repaired", "example.com/default": "user"})
	status("Loaded again", func(d map[string]string) bool { return d["status"] == "Loaded" && d["problems"] == "" })

	// Deleting all rules leaves the built-in ones.
	if err := w.DeleteAllOf(t.Context(), &nfdv1alpha1.NodeFeatureRule{}); err != nil {
		t.Fatal(err)
	}
	w.labels("n1", M{"example.com/policy": "repaired", "example.com/default": "built-in"})
}

func TestTheAPIServerAloneHoldsRangeEnumAndOneWay(t *testing.T) {
	w := newWorld(t) // no webhook is running
	refused := func(what, spec string) {
		t.Helper()
		r := &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: "refused"}}
		if err := yaml.UnmarshalStrict([]byte(spec), &r.Spec); err != nil {
			t.Fatal(err)
		}
		if err := w.Create(t.Context(), r, client.DryRunAll); !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("priority 10000", `{priority: 10000, rules: [{name: x}]}`)
	refused("priority -1", `{priority: -1, rules: [{name: x}]}`)
	refused("unknown phase", `{phase: late, rules: [{name: x}]}`)
	refused("multiple: some", `{rules: [{name: x, conditions: [{op: eq, multiple: some}]}]}`)
	r := w.rule("one-way", `{priority: 9999, sensitive: true, rules: [{name: x, labels: {example.com/x: "1"}}]}`)
	r.Spec.Sensitive = nil
	if err := w.Update(t.Context(), r); !apierrors.IsInvalid(err) {
		t.Errorf("sensitive was taken back: %v", err)
	}
}

// TestASecretIsNowhere puts a secret word into all fields of sensitive rules and searches all output for it.
func TestASecretIsNowhere(t *testing.T) {
	const word = "hunter2"
	w := newWorld(t)
	w.node("secret-1")
	w.publish(w.namespace, "secret-1", "secret-1", M{"serial": word, "text": "x"}, nil)
	w.apply(&corev1.Secret{}, fmt.Sprintf(`{metadata: {namespace: %s, name: rules}, stringData: {good: %q, bad: %q, broken: "hunter2: ["}}`, w.namespace,
		`[{name: good, labels: {example.com/listed: "1"}, conditions: [{op: eq, args: {values: ["{@test.attr.serial}", hunter2]}}]},
		  {name: refused, labels: {"bad key hunter2": x, example.com/y: "hunter2/ /"}, vars: {v: hunter2}},
		  {name: fails, labels: {example.com/f: "{@test.attr.serial + 1}"}, actions: [{op: event, args: {reason: Said, msg: "hunter2 {@test.attr.serial}"}}]}]`,
		`[{name: bad, labels: {example.com/z: "{hunter2"}, conditions: [{op: matches, args: {value: x, regex: "[hunter2"}}]}, {name: worse, labels: {"{hunter2": x}}]`))
	sensitive := []*nfdv1alpha1.NodeFeatureRule{
		w.rule("secret-conditions", `{sensitive: true, rules: [{name: c, labels: {example.com/c: "1"}, conditions: [{op: gt, args: {values: ["{@test.attr.serial}", 5]}}]}]}`),
		w.rule("secret-regexp", `{sensitive: true, rules: [{name: r, conditions: [{op: matches, args: {value: "{@test.attr.serial}", regex: "[hunter2"}}]}]}`),
		w.rule("secret-actions", `{sensitive: true, rules: [{name: a, actions: [{op: log, args: {msg: hunter2}}, {op: event, args: {reason: Told, msg: hunter2}}]}]}`),
		w.rule("secret-literal", `{sensitive: true, rules: [{name: l, labels: {"bad key hunter2": x, example.com/l: "hunter2/ /"}, annotations: {example.com/ok: fine}}]}`),
		w.rule("secret-good", `{rulesFrom: [{secretKeyRef: {name: rules, key: good}}]}`),
		w.rule("secret-bad", `{rulesFrom: [{secretKeyRef: {name: rules, key: bad}}]}`),
		w.rule("secret-broken", `{rulesFrom: [{secretKeyRef: {name: rules, key: broken}}]}`),
		w.rule("secret-fail", `{sensitive: true, priority: 0, nodeSelector: {matchLabels: {example.com/reject: "true"}}, rules: [{name: f, actions: [{op: fail, args: {msg: hunter2}}]}]}`),
	}
	dir := t.TempDir()
	text := `{apiVersion: nfd.k8s-sigs.io/v1alpha1, kind: NodeFeatureRule, metadata: {name: builtin}, spec: {sensitive: true, rules: [{name: b, conditions: [{op: eq, args: {values: ["{node}", hunter2]}}], labels: {example.com/b: "1"}}]}}`
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m := w.start(func(c *controller.Config) { c.BuiltInRules = dir })
	w.labels("secret-1", M{"example.com/listed": "1", "example.com/c": ""})
	w.condition(sensitive[1], nfdv1alpha1.ConditionAccepted, metav1.ConditionFalse, "spec.rules[0]")
	w.condition(sensitive[6], nfdv1alpha1.ConditionResolved, metav1.ConditionFalse, "ReferenceUnreadable")
	w.condition(sensitive[5], nfdv1alpha1.ConditionAccepted, metav1.ConditionFalse)
	w.condition(sensitive[4], nfdv1alpha1.ConditionHealthy, metav1.ConditionFalse)
	w.event("secret-1", "Told")
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "secret-1"}}
	change(w, n, func(n *corev1.Node) { n.Labels["example.com/reject"] = "true" })
	becomes(w, n, "annotation", func(n *corev1.Node) bool { return n.Annotations[assayv1alpha1.FailedAnnotation] != "" })
	w.event("secret-1", "NodeRejected")
	w.condition(sensitive[7], nfdv1alpha1.ConditionRejecting, metav1.ConditionTrue)

	var events corev1.EventList
	var maps corev1.ConfigMapList
	testkit.Eventually(t, "status of the built-in rules", func(ctx context.Context) error {
		if err := w.List(ctx, &maps, client.InNamespace(w.namespace)); err != nil || len(maps.Items) == 0 {
			return fmt.Errorf("%d ConfigMaps, %w", len(maps.Items), err)
		}
		return nil
	})
	if err := w.List(t.Context(), &events); err != nil {
		t.Fatal(err)
	}
	metrics, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]any{"events": events.Items, "config maps": maps.Items, "log": m.log.String(), "metrics": fmt.Sprint(metrics), "node": n}
	for _, r := range sensitive {
		if err := w.Get(t.Context(), client.ObjectKeyFromObject(r), r); err != nil {
			t.Fatal(err)
		}
		places["status of "+r.Name] = r.Status
	}
	for place, content := range places {
		out, err := yaml.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, word) {
				t.Errorf("%s: %s", place, line)
			}
		}
	}
}

// TestTheGuideHoldsInTheCluster runs every example of docs/rules.md and docs/rule-language.md that has an outcome against a real API server.
func TestTheGuideHoldsInTheCluster(t *testing.T) {
	w := newWorld(t)
	w.start(func(c *controller.Config) { c.EnableTaints = true })
	played := 0
	for _, file := range []string{"../docs/rules.md", "../docs/rule-language.md"} {
		page, err := doctest.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		var scene guideScene
		section := -1
		for _, b := range page.Blocks {
			if b.Section != section {
				section, scene = b.Section, guideScene{node: "node-1"}
			}
			switch b.Kind {
			case "rule":
				if scene.done {
					scene.rules, scene.done = "", false
				}
				scene.rules += "\n---\n" + b.Text
			case "facts":
				scene.facts = b.Text
				if name := b.Settings["node"]; name != "" {
					scene.node = name
				}
			case "node":
				scene.metadata = b.Text
			case "settings":
				scene.skip = true
			case "outcome":
				scene.done = true
				if scene.skip || b.Settings["file"] != "" {
					continue
				}
				played++
				w.play(page.At(b), scene, b.Text)
			}
		}
	}
	if played < 20 {
		t.Errorf("%d examples were played", played)
	}
}

// guideScene is an example of the guide.
type guideScene struct {
	rules, facts, metadata, node string
	done, skip                   bool
}

// play creates the node, its features and the rules, waits for the outcome, and deletes everything.
func (w *world) play(where string, s guideScene, outcome string) {
	w.Helper()
	var want struct {
		Labels            map[string]string `json:"labels"`
		Annotations       map[string]string `json:"annotations"`
		ExtendedResources map[string]string `json:"extendedResources"`
		Taints            []string          `json:"taints"`
		Failed            string            `json:"failed"`
	}
	var metadata metav1.ObjectMeta
	f := &nfdv1alpha1.NodeFeature{}
	for text, into := range map[string]any{outcome: &want, s.metadata: &metadata, s.facts: &f.Spec.Features} {
		if err := yaml.Unmarshal([]byte(text), into); err != nil {
			w.Fatalf("%s: %v", where, err)
		}
	}
	if metadata.Name == "" {
		metadata.Name = s.node
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: metadata.Name, Labels: metadata.Labels, Annotations: metadata.Annotations}}
	f.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace, Name: node.Name, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: node.Name}}
	objects := []client.Object{f, node}
	for i, doc := range strings.Split(s.rules, "\n---\n") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		r := &nfdv1alpha1.NodeFeatureRule{}
		if err := yaml.UnmarshalStrict([]byte(doc), r); err != nil {
			r = &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("example-%d", i)}}
			if err := yaml.UnmarshalStrict([]byte(doc), &r.Spec.Rules); err != nil {
				w.Fatalf("%s: %v", where, err)
			}
		}
		if strings.HasPrefix(want.Failed, "example/") || strings.HasPrefix(r.Name, "example-") && i == 1 {
			r.Name = "example"
		}
		objects = append([]client.Object{r}, objects...)
	}
	for _, o := range objects {
		if err := w.Create(w.Context(), o); err != nil {
			w.Fatalf("%s: %v", where, err)
		}
	}
	becomes(w, node, where, func(n *corev1.Node) bool {
		if want.Failed != "" {
			return n.Annotations[assayv1alpha1.FailedAnnotation] == want.Failed
		}
		var taints []string
		for _, t := range n.Spec.Taints {
			taints = append(taints, t.ToString())
		}
		for name, value := range want.ExtendedResources {
			if q := n.Status.Capacity[corev1.ResourceName(name)]; q.String() != value {
				return false
			}
		}
		ours := strings.Count(","+n.Annotations[nfdv1alpha1.FeatureLabelsAnnotation], ",")
		if n.Annotations[nfdv1alpha1.FeatureLabelsAnnotation] == "" {
			ours = 0
		}
		return holds(n.Labels, want.Labels) && holds(n.Annotations, want.Annotations) && ours == len(want.Labels) &&
			(len(want.Taints) == 0 || fmt.Sprint(taints) == fmt.Sprint(want.Taints))
	})
	for _, o := range objects {
		w.delete(o)
	}
	testkit.Eventually(w, "removal", func(ctx context.Context) error {
		if err := w.Get(ctx, client.ObjectKeyFromObject(node), node); !apierrors.IsNotFound(err) {
			return fmt.Errorf("node %s is still there (%w)", node.Name, err)
		}
		return nil
	})
}

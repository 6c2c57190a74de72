package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/internal/testkit"
)

func TestStatusFollowsTheRules(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		name := fmt.Sprintf("n%d", i)
		w.node(name)
		w.publish(w.namespace, name, name, M{"num": fmt.Sprint(i)}, nil)
	}
	r := w.rule("r", `{rules: [{name: r, labels: {low: "true"}, matchFeatures: [{feature: test.attr, matchExpressions: {num: {op: Lt, value: ["2"]}}}]}]}`)
	w.start()
	matched := func(want int32) {
		t.Helper()
		becomes(w, r, fmt.Sprintf("%d matched nodes", want), func(r *nfdv1alpha1.NodeFeatureRule) bool {
			return r.Status.ObservedGeneration == r.Generation && r.Status.MatchedNodes != nil && *r.Status.MatchedNodes == want
		})
	}
	matched(2)
	w.condition(r, nfdv1alpha1.ConditionAccepted, metav1.ConditionTrue)
	w.condition(r, nfdv1alpha1.ConditionHealthy, metav1.ConditionTrue)
	w.setRule(r, `{rules: [{name: r, labels: {low: "true"}}]}`)
	matched(3)
	if err := w.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}}); err != nil {
		t.Fatal(err)
	}
	matched(2)
}

func TestABrokenRuleIsIsolated(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.publish(w.namespace, "n1", "n1", M{"num": "7"}, nil)
	for name, tc := range map[string]struct{ rule, path string }{
		"regexp":   {`{name: x, labels: {bad: "1"}, matchFeatures: [{feature: test.attr, matchExpressions: {num: {op: InRegexp, value: ["("]}}}]}`, "spec.rules[1].matchFeatures[0].matchExpressions[num].value[0]"},
		"type":     {`{name: x, labels: {bad: "1"}, matchFeatures: [{feature: test.attr, matchExpressions: {num: {op: Gt, value: ["x"]}}}]}`, "spec.rules[1].matchFeatures[0].matchExpressions[num].value[0]"},
		"template": {`{name: x, labelsTemplate: "{{range}}"}`, "spec.rules[1].labelsTemplate"},
	} {
		r := w.rule(name, fmt.Sprintf(`{rules: [{name: good, labels: {good-%s: "1"}}, %s]}`, name, tc.rule))
		defer func() { // checked once the manager runs
			w.condition(r, nfdv1alpha1.ConditionAccepted, metav1.ConditionFalse, "Invalid", tc.path)
			w.event(name, "RuleInvalid", tc.path)
		}()
	}
	w.start()
	w.labels("n1", M{"good-regexp": "1", "good-type": "1", "good-template": "1", "bad": ""})
}

// TestARuleSaysThatItMayNotBeWritten: the API server refuses all writes to a Node without naming a key. The rule stayed Healthy, and only the log
// of the controller had the reason.
func TestARuleSaysThatItMayNotBeWritten(t *testing.T) {
	w := newWorld(t)
	n := w.node("sealed")
	w.publish(w.namespace, "sealed", "sealed", M{"a": "b"}, nil)
	seal := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	w.apply(seal, `{metadata: {name: sealed}, spec: {
		matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [nodes/status], resourceNames: [sealed]}]},
		validations: [{expression: "object.metadata.?labels == oldObject.metadata.?labels", message: closed for today}]}}`)
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	w.apply(binding, `{metadata: {name: sealed}, spec: {policyName: sealed, validationActions: [Deny]}}`)
	testkit.Eventually(t, "the policy is active", func(ctx context.Context) error {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"try":"it"}}}`))
		if err := w.Status().Patch(ctx, n.DeepCopy(), patch, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "closed for today") {
			return fmt.Errorf("got %w, want a refusal", err)
		}
		return nil
	})
	r := w.rule("r", `{rules: [{name: r, labels: {example.com/a: "1"}, extendedResources: {example.com/r: "1"}}]}`)
	without := w.rule("without", `{rules: [{name: without, labels: {example.com/b: "1"}, matchFeatures: [{feature: test.attr, matchExpressions: {none: {op: Exists}}}]}]}`)
	w.start()
	if c := w.condition(r, nfdv1alpha1.ConditionHealthy, metav1.ConditionFalse, "on 1 node; first on sealed: ", "example.com/", "closed for today"); c.Reason != nfdv1alpha1.ReasonForbidden {
		t.Errorf("the reason is %q", c.Reason)
	}
	w.event("r", "RuleFailed", "closed for today")
	w.condition(without, nfdv1alpha1.ConditionHealthy, metav1.ConditionTrue)
	w.delete(binding)
	w.labels("sealed", M{"example.com/a": "1"})
	w.condition(r, nfdv1alpha1.ConditionHealthy, metav1.ConditionTrue)
}

func TestWhatFailsOnANodeIsReported(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.publish(w.namespace, "n1", "n1", M{"num": "seven", "long": strings.Repeat("x", 64)}, nil)
	compare := w.rule("compare", `{rules: [{name: compare, labels: {x: "1"}, matchFeatures: [{feature: test.attr, matchExpressions: {num: {op: Gt, value: ["5"]}}}]}]}`)
	value := w.rule("value", `{rules: [{name: value, labels: {too-long: "@test.attr.long", short: "1"}}]}`)
	w.rule("one", `{rules: [{name: one, labels: {both: "1"}}]}`)
	two := w.rule("two", `{rules: [{name: two, labels: {both: "2"}}]}`)
	w.start()
	w.labels("n1", M{"x": "", "short": "1", "too-long": "", "both": "2"})
	w.condition(compare, nfdv1alpha1.ConditionHealthy, metav1.ConditionFalse, "on 1 node;", "n1", "seven")
	w.condition(value, nfdv1alpha1.ConditionHealthy, metav1.ConditionFalse, "too-long")
	w.condition(two, nfdv1alpha1.ConditionConflicted, metav1.ConditionTrue, "two/two keeps it")
	w.event("compare", "RuleFailed")
}

func TestRulesSpeak(t *testing.T) {
	w := newWorld(t)
	n := w.node("n1")
	w.publish(w.namespace, "n1", "n1", M{"bad": "false"}, nil)
	w.rule("say", `{rules: [{name: say, labels: {said: "true"}, actions: [
	  {op: log, args: {msg: "evaluated {node}", level: warning}}, {op: event, args: {reason: Seen, msg: "saw {node}"}}]}]}`)
	r := w.rule("fail", `{priority: 1, rules: [{name: no-bad, matchFeatures: [{feature: test.attr, matchExpressions: {bad: {op: IsTrue}}}],
	  actions: [{op: fail, args: {msg: "{node} is bad"}}]}]}`)
	m := w.start()
	w.labels("n1", M{"said": "true"})
	if got := w.event("n1", "Seen"); got != "saw n1" {
		t.Errorf("event says %q", got)
	}
	testkit.Eventually(t, "log line", func(context.Context) error {
		for line := range strings.Lines(m.log.String()) {
			if strings.Contains(line, "evaluated n1") && strings.Contains(line, "level=WARN") {
				return nil
			}
		}
		return fmt.Errorf("not there with its level")
	})
	f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "n1"}}
	change(w, f, func(f *nfdv1alpha1.NodeFeature) { f.Spec.Features.Attributes["test.attr"].Elements["bad"] = "true" })
	becomes(w, n, "annotation "+assayv1alpha1.FailedAnnotation, func(n *corev1.Node) bool {
		return n.Annotations[assayv1alpha1.FailedAnnotation] == "fail/no-bad: n1 is bad" && n.Labels[feature+"said"] == "true"
	})
	w.event("n1", "NodeRejected")
	if err := w.Delete(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	becomes(w, n, "no annotation", func(n *corev1.Node) bool { return n.Annotations[assayv1alpha1.FailedAnnotation] == "" })
}

func TestSensitiveRulesSayNothing(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.publish(w.namespace, "n1", "n1", M{"num": "hunter2"}, nil)
	broken := w.rule("broken", `{sensitive: true, rules: [{name: x, matchFeatures: [{feature: test.attr, matchExpressions: {num: {op: InRegexp, value: ["(hunter2"]}}}]}]}`)
	failing := w.rule("failing", `{sensitive: true, rules: [{name: x, labels: {a: "1"}, matchFeatures: [{feature: test.attr, matchExpressions: {num: {op: Gt, value: ["5"]}}}]},
	  {name: y, actions: [{op: log, args: {msg: "{@test.attr.num}"}}, {op: event, args: {reason: Told, msg: "{@test.attr.num}"}}]}]}`)
	m := w.start()
	w.condition(broken, nfdv1alpha1.ConditionAccepted, metav1.ConditionFalse, "spec.rules[0]")
	w.condition(failing, nfdv1alpha1.ConditionHealthy, metav1.ConditionFalse)
	w.event("n1", "Told")
	var events corev1.EventList
	if err := w.List(t.Context(), &events); err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]any{"status": broken.Status, "other status": failing.Status, "events": events.Items, "log": m.log.String()} {
		if out, _ := yaml.Marshal(text); strings.Contains(string(out), "hunter2") {
			t.Errorf("%s tells: %s", what, out)
		}
	}
}

func TestFeatureSourcesAndScope(t *testing.T) {
	w := newWorld(t)
	n := w.node("n1")
	change(w, n, func(n *corev1.Node) { n.Labels = M{assayv1alpha1.ScopeLabel: "hall-a"} })
	w.node("n2")
	w.publish(w.namespace, "n1", "n1", M{"own": "1"}, nil)
	w.publish(w.namespace, "vendor", "n1", M{"vendor": "1"}, nil)
	w.rule("trusted", `{featureSources: "/n1$", rules: [{name: x, labelsTemplate: "{{range .test.attr}}{{.Name}}=1\n{{end}}", matchFeatures: [{feature: test.attr, matchName: {op: Exists}}]}]}`)
	hall := w.rule("hall", `{scope: hall-a, phase: main, rules: [{name: x, labels: {hall: a}}]}`)
	w.rule("all", `{rules: [{name: x, labels: {all: "1"}}]}`)
	w.start()
	w.labels("n1", M{"own": "1", "vendor": "", "hall": "a", "all": "1"})
	w.labels("n2", M{"hall": "", "all": "1"})
	var list nfdv1alpha1.NodeFeatureRuleList
	if err := w.List(t.Context(), &list, client.MatchingFields{"spec.scope": "hall-a", "spec.phase": "main"}); err != nil || len(list.Items) != 1 || list.Items[0].Name != hall.Name {
		t.Errorf("field selectors give %d objects (%v)", len(list.Items), err)
	}
}

func TestRulesFromSecretsAndTemplatesFromConfigMaps(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	r := w.rule("r", `{rulesFrom: [{secretKeyRef: {name: site, key: rules}}],
	  rules: [{name: tmpl, labelsTemplateFrom: {configMapKeyRef: {name: site, key: labels}}, matchFeatures: [{feature: test.attr, matchName: {op: Exists}}]}]}`)
	w.publish(w.namespace, "n1", "n1", M{"a": "1"}, nil)
	w.start()
	w.condition(r, nfdv1alpha1.ConditionResolved, metav1.ConditionFalse, "ReferenceMissing", "site")

	secret, cm := &corev1.Secret{}, &corev1.ConfigMap{}
	w.apply(secret, fmt.Sprintf(`{metadata: {namespace: %s, name: site}, stringData: {rules: "[{name: s, labels: {secret: one}}]"}}`, w.namespace))
	w.apply(cm, fmt.Sprintf(`{metadata: {namespace: %s, name: site}, data: {labels: "tmpl={{len .test.attr}}"}}`, w.namespace))
	w.labels("n1", M{"secret": "one", "tmpl": "1"})
	w.condition(r, nfdv1alpha1.ConditionResolved, metav1.ConditionTrue)
	change(w, secret, func(s *corev1.Secret) { s.Data["rules"] = []byte("[{name: s, labels: {secret: two}}]") })
	w.labels("n1", M{"secret": "two", "tmpl": "1"})
	change(w, secret, func(s *corev1.Secret) { s.Data["rules"] = []byte("hunter2: [") })
	c := w.condition(r, nfdv1alpha1.ConditionResolved, metav1.ConditionFalse, "ReferenceUnreadable")
	if strings.Contains(c.Message, "hunter2") {
		t.Errorf("the condition tells: %s", c.Message)
	}
	w.labels("n1", M{"secret": "two"}) // the last good value
}

func TestBasedOnTemplates(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	tmpl := func(name, spec string) *assayv1alpha1.NodeFeatureRuleTemplate {
		o := &assayv1alpha1.NodeFeatureRuleTemplate{}
		w.apply(o, fmt.Sprintf("{metadata: {name: %s}, spec: %s}", name, spec))
		return o
	}
	r := w.rule("r", `{basedOn: [{name: site}], rules: [{name: own, labels: {own: "1"}}]}`)
	other := w.rule("other", `{rules: [{name: own, labels: {other: "1"}}]}`)
	m := w.start()
	w.condition(r, nfdv1alpha1.ConditionResolved, metav1.ConditionFalse, "BaseMissing", "site")

	site := tmpl("site", `{rules: [{name: base, labels: {base: one}}]}`)
	w.labels("n1", M{"own": "1", "base": "one", "other": "1"})
	becomes(w, r, "origins", func(r *nfdv1alpha1.NodeFeatureRule) bool {
		return len(r.Status.Origins) == 1 && r.Status.Origins[0] == nfdv1alpha1.RuleOrigin{Rule: "base", From: "site"}
	})
	w.condition(r, nfdv1alpha1.ConditionResolved, metav1.ConditionTrue)
	hash, otherStatus := r.Status.EffectiveHash, becomes(w, other, "status", func(r *nfdv1alpha1.NodeFeatureRule) bool { return r.Status.EffectiveHash != "" }).DeepCopy()

	m.reset()
	change(w, site, func(o *assayv1alpha1.NodeFeatureRuleTemplate) { o.Spec.Rules[0].Labels["base"] = "two" })
	w.labels("n1", M{"base": "two"})
	becomes(w, r, "another hash", func(r *nfdv1alpha1.NodeFeatureRule) bool { return r.Status.EffectiveHash != hash })
	if got := becomes(w, other, "status", func(*nfdv1alpha1.NodeFeatureRule) bool { return true }); got.ResourceVersion != otherStatus.ResourceVersion {
		t.Error("an object that is not based on the template was written")
	}
	change(w, site, func(o *assayv1alpha1.NodeFeatureRuleTemplate) { o.Spec.BasedOn = []nfdv1alpha1.Base{{Name: "site"}} })
	w.condition(r, nfdv1alpha1.ConditionResolved, metav1.ConditionFalse, "BaseCycle", "cycle")
	w.labels("n1", M{"base": "two"})
	if err := w.Delete(t.Context(), site); err != nil {
		t.Fatal(err)
	}
	w.condition(r, nfdv1alpha1.ConditionResolved, metav1.ConditionFalse, "BaseMissing")
	w.labels("n1", M{"base": "two", "own": "1"})
	tmpl("site", `{rules: [{name: base, labelsTemplate: "{{range}}"}]}`)
	w.condition(r, nfdv1alpha1.ConditionAccepted, metav1.ConditionFalse, `rule "base" of site`)
	w.setRule(r, `{basedOn: [{name: site, digest: "sha256:00"}], rules: [{name: own, labels: {own: "1"}}]}`)
	w.condition(r, nfdv1alpha1.ConditionResolved, metav1.ConditionFalse, "DigestMismatch")
}

func TestDefaultTemplateAndMinimumVersion(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.apply(&assayv1alpha1.NodeFeatureRuleTemplate{}, `{metadata: {name: defaults}, spec: {rules: [{name: "*", vars: {site: a}}]}}`)
	w.rule("r", `{rules: [{name: r, labels: {site: "{vars.site}"}, vars: {x: y}}]}`)
	old := w.rule("old", `{minimumVersion: "99.0", rules: [{name: r, labels: {old: "1"}}]}`)
	w.rule("new", `{minimumVersion: "1.1", rules: [{name: r, labels: {new: "1"}}]}`)
	w.start(func(c *controller.Config) { c.DefaultTemplate, c.Version = "defaults", "v1.2.3" })
	w.labels("n1", M{"new": "1", "old": ""})
	w.condition(old, nfdv1alpha1.ConditionAccepted, metav1.ConditionFalse, "VersionTooOld", "99.0")
}

package controller_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/settings"
)

// object creates an object of any kind from YAML, and returns it as stored in the API server.
func (w *world) object(text string) *unstructured.Unstructured {
	w.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), u); err != nil {
		w.Fatal(err)
	}
	group := assayv1alpha1.GroupVersion
	if kind := u.GetKind(); kind == "NodeFeatureRule" || kind == "NodeFeatureGroup" {
		group = nfdv1alpha1.GroupVersion
	}
	u.SetGroupVersionKind(group.WithKind(u.GetKind()))
	if kind := u.GetKind(); kind == "NodeFeatureGroup" || kind == "NodeFeatureRequest" {
		u.SetNamespace(w.namespace)
	}
	testkit.Create(w, w, u)
	return u
}

// kstatus waits until kstatus, the library used by Flux, `kpt` and `cli-utils`, reports this state for an object.
func (w *world) kstatus(u *unstructured.Unstructured, want status.Status) *status.Result {
	w.Helper()
	var found *status.Result
	testkit.Eventually(w, fmt.Sprintf("kstatus %s of %s %s", want, u.GetKind(), u.GetName()), func(ctx context.Context) error {
		if err := w.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
			return err
		}
		var err error
		if found, err = status.Compute(u); err != nil {
			return err
		}
		if found.Status != want {
			return fmt.Errorf("is %s: %s; the status is %v", found.Status, found.Message, u.Object["status"])
		}
		return nil
	})
	return found
}

const (
	regexpWrong = `matchFeatures: [{feature: test.attr, matchExpressions: {a: {op: InRegexp, value: ["("]}}}]`
	regexpFine  = `matchFeatures: [{feature: test.attr, matchExpressions: {a: {op: InRegexp, value: ["x"]}}}]`
)

// statusKinds lists the kinds with a status, each with a spec that contains FILTER in place of a matcher.
var statusKinds = map[string]string{
	"NodeFeatureRule":             `{rules: [{name: r, labels: {a: "1"}, FILTER}]}`,
	"NodeFeatureGroup":            `{featureGroupRules: [{name: r, FILTER}]}`,
	"NodeFeatureRuleTemplate":     `{rules: [{name: r, labels: {a: "1"}, FILTER}]}`,
	"NodeFeatureRequest":          `{required: {FILTER}}`,
	"NodeFeatureSchedulingPolicy": `{namespaceSelector: {}, required: {FILTER}}`,
}

func TestKstatusUnderstandsEachKind(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.publish(w.namespace, "n1", "n1", M{"a": "y"}, nil)
	fine, wrong := map[string]*unstructured.Unstructured{}, map[string]*unstructured.Unstructured{}
	for kind, spec := range statusKinds {
		fine[kind] = w.object(fmt.Sprintf("{kind: %s, metadata: {name: fine}, spec: %s}", kind, strings.Replace(spec, "FILTER", regexpFine, 1)))
		wrong[kind] = w.object(fmt.Sprintf("{kind: %s, metadata: {name: wrong}, spec: %s}", kind, strings.Replace(spec, "FILTER", regexpWrong, 1)))
		// The controller has not processed it yet: `helm --wait` and Flux wait.
		w.kstatus(fine[kind], status.InProgressStatus)
	}
	w.start(withGroups, func(c *controller.Config) { c.FeatureGates[settings.GateScheduling] = true })
	for kind := range statusKinds {
		w.kstatus(fine[kind], status.CurrentStatus)
		if failed := w.kstatus(wrong[kind], status.FailedStatus); !strings.Contains(failed.Message, "missing closing )") {
			t.Errorf("%s: kstatus says %q", kind, failed.Message)
		}
		// A corrected object becomes ready again.
		change(w, wrong[kind], func(u *unstructured.Unstructured) { u.Object["spec"] = fine[kind].Object["spec"] })
		w.kstatus(wrong[kind], status.CurrentStatus)
		for _, c := range conditions(wrong[kind]) {
			if c["type"] == nfdv1alpha1.ConditionStalled {
				t.Errorf("%s: Stalled stays after the object was corrected", kind)
			}
			if c["observedGeneration"] != wrong[kind].GetGeneration() {
				t.Errorf("%s: %s is of generation %v, want %d", kind, c["type"], c["observedGeneration"], wrong[kind].GetGeneration())
			}
		}
	}
}

func conditions(u *unstructured.Unstructured) (out []map[string]any) {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range list {
		out = append(out, c.(map[string]any))
	}
	return out
}

// A base can be applied after the object that uses it: tools continue to wait.
func TestAMissingTemplateIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.start()
	rule := w.object(`{kind: NodeFeatureRule, metadata: {name: r}, spec: {basedOn: [{name: base}], rules: []}}`)
	middle := w.object(`{kind: NodeFeatureRuleTemplate, metadata: {name: middle}, spec: {basedOn: [{name: base}], rules: []}}`)
	testkit.Eventually(w, "Ready=False", func(ctx context.Context) error {
		for _, u := range []*unstructured.Unstructured{rule, middle} {
			if err := w.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
				return err
			}
			if text := fmt.Sprint(u.Object["status"]); !strings.Contains(text, "BaseMissing") {
				return fmt.Errorf("the status of %s is %s", u.GetName(), text)
			}
		}
		return nil
	})
	w.kstatus(rule, status.InProgressStatus)
	w.kstatus(middle, status.InProgressStatus)
	w.object(`{kind: NodeFeatureRuleTemplate, metadata: {name: base}, spec: {rules: [{name: b, labels: {b: "1"}}]}}`)
	w.kstatus(rule, status.CurrentStatus)
	w.kstatus(middle, status.CurrentStatus)
	w.object(`{kind: NodeFeatureRuleTemplate, metadata: {name: circle-1}, spec: {basedOn: [{name: circle-2}], rules: []}}`)
	circle := w.object(`{kind: NodeFeatureRuleTemplate, metadata: {name: circle-2}, spec: {basedOn: [{name: circle-1}], rules: []}}`)
	w.kstatus(circle, status.FailedStatus)
}

// TestAFailingNodeLeavesARuleReady: one failing node must not block a release.
func TestAFailingNodeLeavesARuleReady(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.publish(w.namespace, "n1", "n1", M{"num": "seven"}, nil)
	r := w.rule("compare", `{rules: [{name: compare, labels: {x: "1"}, matchFeatures: [{feature: test.attr, matchExpressions: {num: {op: Gt, value: ["5"]}}}]}]}`)
	w.start()
	w.condition(r, nfdv1alpha1.ConditionHealthy, "False")
	w.condition(r, nfdv1alpha1.ConditionReady, "True")
}

// TestKubectlWaitsForReady: scripts and pipelines wait with kubectl.
func TestKubectlWaitsForReady(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	fine := w.rule("fine", `{rules: [{name: r, labels: {a: "1"}}]}`)
	wrong := w.rule("wrong", `{rules: [{name: r, labels: {a: "1"}, `+regexpWrong+`}]}`)
	w.start()
	wait := func(arguments ...string) string {
		t.Helper()
		out, err := w.user.Kubectl(t.Context(), append([]string{"wait", "--timeout=" + patience.String()}, arguments...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := wait("nodefeaturerule/"+fine.Name, "--for=condition=Ready"); out != "nodefeaturerule.nfd.k8s-sigs.io/fine condition met\n" {
		t.Errorf("kubectl wait prints %q", out)
	}
	wait("nodefeaturerule/"+wrong.Name, "--for=condition=Ready=false")
	wait("nodefeaturerule/"+wrong.Name, "--for=condition=Stalled")
	wide, err := w.user.Kubectl(t.Context(), "get", "nodefeaturerules", "-o", "wide")
	if err != nil {
		t.Fatal(err)
	}
	if head, _, _ := strings.Cut(wide, "\n"); strings.Join(strings.Fields(head), " ") !=
		"NAME PRIORITY PHASE SENSITIVE BASED-ON MATCHED ACCEPTED HEALTHY READY CONFLICTED WITHHELD AGE" {
		t.Errorf("kubectl get -o wide prints\n%s", wide)
	}
	t.Log("\n" + wide)
}

// TestOutputsThatASettingWithholdsAreReported: by default no rule writes taints. The object reports this and stays ready.
func TestOutputsThatASettingWithholdsAreReported(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	taints := w.rule("taints", `{rules: [{name: a, labels: {a: "1"}}, {name: b, taints: [{key: example.com/b, effect: NoSchedule}]},
	  {name: c, actions: [{op: extend-attribute, args: {path: /taints, value: {key: example.com/c, effect: NoSchedule}}}]}]}`)
	labels := w.rule("labels", `{rules: [{name: a, labels: {b: "1"}}]}`)
	m := w.start()
	w.condition(taints, nfdv1alpha1.ConditionWithheld, "True", "TaintsDisabled", `taints of rule "b" and 1 more are not written`, "set enableTaints")
	w.condition(taints, nfdv1alpha1.ConditionHealthy, "True")
	w.condition(taints, nfdv1alpha1.ConditionReady, "True")
	w.event("taints", "RuleWithheld", "taints are disabled")
	w.condition(labels, nfdv1alpha1.ConditionReady, "True")
	if c := meta.FindStatusCondition(labels.Status.Conditions, nfdv1alpha1.ConditionWithheld); c != nil {
		t.Errorf("labels are written, and the condition is %+v", c)
	}
	m.stop()
	w.start(func(c *controller.Config) { c.EnableTaints, c.Restrictions.DisableLabels = true, true })
	w.condition(labels, nfdv1alpha1.ConditionWithheld, "True", "LabelsDisabled", "unset disableLabels")
	w.condition(taints, nfdv1alpha1.ConditionWithheld, "True", "LabelsDisabled")
	change(w, taints, func(r *nfdv1alpha1.NodeFeatureRule) { r.Spec.Rules = r.Spec.Rules[1:] })
	becomes(w, taints, "no condition Withheld", func(r *nfdv1alpha1.NodeFeatureRule) bool {
		return r.Status.ObservedGeneration == r.Generation && meta.FindStatusCondition(r.Status.Conditions, nfdv1alpha1.ConditionWithheld) == nil
	})
}

func TestAConflictIsAnEvent(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.rule("high", `{priority: 10, rules: [{name: a, labels: {x: "1"}}]}`)
	low := w.rule("low", `{rules: [{name: b, labels: {x: "2"}}]}`)
	w.start()
	w.condition(low, nfdv1alpha1.ConditionConflicted, "True")
	w.condition(low, nfdv1alpha1.ConditionReady, "True")
	w.event("low", "RuleConflicted", "high/a keeps it, low/b loses it")
}

// TestAFlappingOutputIsInTheStatus: Flapping does not change Ready, names nodes and keys, and ends with the process that held the change.
func TestAFlappingOutputIsInTheStatus(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	f := w.publish(w.namespace, "n1", "n1", M{"link": "0"}, nil)
	r := w.rule("flaps", `{rules: [{name: l, labels: {example.com/link: "@test.attr.link"}, matchFeatures: [{feature: test.attr}]}]}`)
	calm := w.rule("calm", `{rules: [{name: c, labels: {example.com/calm: "1"}}]}`)
	m := w.start()
	w.condition(r, nfdv1alpha1.ConditionReady, "True")
	n := 0
	testkit.Eventually(t, "condition Flapping", func(ctx context.Context) error {
		n++
		body := fmt.Sprintf(`{"spec":{"features":{"attributes":{"test.attr":{"elements":{"link":"%d"}}}}}}`, n)
		if err := w.Patch(ctx, f, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
			return err
		}
		if err := w.Get(ctx, client.ObjectKeyFromObject(r), r); err != nil {
			return err
		}
		c := meta.FindStatusCondition(r.Status.Conditions, nfdv1alpha1.ConditionFlapping)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != "ChangesHeld" || !strings.Contains(c.Message, "on 1 node, ") || !strings.Contains(c.Message, ": n1: label example.com/link") {
			return fmt.Errorf("the condition is %+v", c)
		}
		if ready := meta.FindStatusCondition(r.Status.Conditions, nfdv1alpha1.ConditionReady); ready.Status != metav1.ConditionTrue {
			return fmt.Errorf("Ready is %+v", ready)
		}
		if nodes, rules := gauge(t, "assay_nodes_flapping"), gauge(t, "assay_rules", "Flapping", "True"); nodes < 1 || rules != 1 {
			return fmt.Errorf("the metrics count %v nodes and %v rules", nodes, rules)
		}
		return nil
	})
	w.condition(calm, nfdv1alpha1.ConditionHealthy, "True")
	if c := meta.FindStatusCondition(calm.Status.Conditions, nfdv1alpha1.ConditionFlapping); c != nil {
		t.Errorf("a rule whose outputs are stable has %+v", c)
	}
	m.stop()
	w.start()
	w.labels("n1", M{"example.com/link": strconv.Itoa(n)})
	w.condition(r, nfdv1alpha1.ConditionFlapping, "False", "NoChangeHeld")
}

func TestRulesAreCountedByCondition(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.rule("fine", `{rules: [{name: r, labels: {a: "1"}}]}`)
	wrong := w.rule("wrong", `{rules: [{name: r, labels: {a: "1"}, `+regexpWrong+`}]}`)
	w.start()
	w.condition(wrong, nfdv1alpha1.ConditionStalled, "True")
	for _, want := range []struct {
		condition, status string
		n                 float64
	}{{"Ready", "True", 1}, {"Accepted", "False", 1}, {"Stalled", "True", 1}, {"Healthy", "False", 0}, {"Healthy", "True", 2}} {
		testkit.Eventually(t, fmt.Sprintf("%v in assay_rules", want), func(context.Context) error {
			if n := gauge(t, "assay_rules", want.condition, want.status); n != want.n {
				return fmt.Errorf("is %v", n)
			}
			return nil
		})
	}
}

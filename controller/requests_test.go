package controller_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/settings"
)

// materialized reports whether a request has this status and reason of the condition Materialized.
func materialized(status metav1.ConditionStatus, reason string) func(*assayv1alpha1.NodeFeatureRequest) bool {
	return func(r *assayv1alpha1.NodeFeatureRequest) bool {
		c := meta.FindStatusCondition(r.Status.Conditions, assayv1alpha1.ConditionMaterialized)
		return c != nil && c.Status == status && c.Reason == reason && c.ObservedGeneration == r.Generation
	}
}

func TestMaterializedRequestsLabelNodes(t *testing.T) {
	w := newWorld(t)
	w.node("fast")
	w.node("slow")
	w.publish(w.namespace, "fast", "fast", map[string]string{"speed": "9"}, nil)
	f := w.publish(w.namespace, "slow", "slow", map[string]string{"speed": "1"}, nil)
	request := func(name, spec string) *assayv1alpha1.NodeFeatureRequest {
		t.Helper()
		r := &assayv1alpha1.NodeFeatureRequest{}
		w.apply(r, "metadata: {name: "+name+", namespace: "+w.namespace+"}\nspec: "+spec)
		return r
	}
	const speed = `required: {matchFeatures: [{feature: test.attr, matchExpressions: {speed: {op: Ge, value: ["5"]}}}]}`
	first := request("a-first", "{"+speed+"}")
	never := request("b-never", "{materialize: Never, "+speed+"}")
	empty := request("c-empty", "{materialize: Always}")
	long := request("c-"+strings.Repeat("x", 64), "{"+speed+"}")
	second := request("c-second", "{materialize: Always, "+speed+"}")
	label := "features.assay.dev/" + w.namespace + ".a-first"

	off := w.start(func(c *controller.Config) { c.FeatureGates[settings.GateScheduling] = true })
	becomes(w, first, "the limit is 0", materialized(metav1.ConditionFalse, "Disabled"))
	w.labels("fast", map[string]string{label: ""})
	off.stop()

	m := w.start(func(c *controller.Config) {
		c.FeatureGates[settings.GateScheduling], c.MaterializedRequests = true, settings.MaterializedRequests{Total: 2}
	})
	w.labels("fast", map[string]string{label: "true"})
	w.labels("slow", map[string]string{label: ""})
	becomes(w, first, "the status names the label", func(r *assayv1alpha1.NodeFeatureRequest) bool {
		return r.Status.Label == label && materialized(metav1.ConditionTrue, "Labeled")(r)
	})
	becomes(w, empty, "nothing is required", materialized(metav1.ConditionFalse, compile.ReasonNothingRequired))
	becomes(w, long, "its name is too long", materialized(metav1.ConditionFalse, compile.ReasonNameTooLong))
	w.event(long.Name, "NotMaterialized", "use a name of at most")
	becomes(w, never, "the status is written", func(r *assayv1alpha1.NodeFeatureRequest) bool {
		return len(r.Status.Conditions) > 0 && meta.FindStatusCondition(r.Status.Conditions, assayv1alpha1.ConditionMaterialized) == nil
	})

	// The label follows the features and the requirements.
	change(w, f, func(f *nfdv1alpha1.NodeFeature) { f.Spec.Features.Attributes["test.attr"].Elements["speed"] = "7" })
	w.labels("slow", map[string]string{label: "true"})
	change(w, first, func(r *assayv1alpha1.NodeFeatureRequest) {
		(*r.Spec.Required.MatchFeatures[0].MatchExpressions)["speed"].Value = nfdv1alpha1.MatchValue{"8"}
	})
	w.labels("slow", map[string]string{label: ""})

	// The two oldest have the places: another one waits until one of them is deleted.
	last := request("d-last", "{"+speed+"}")
	next := "features.assay.dev/" + w.namespace + ".d-last"
	becomes(w, last, "there is no place", materialized(metav1.ConditionFalse, compile.ReasonTooManyRequests))
	w.labels("fast", map[string]string{label: "true", next: ""})
	if err := w.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	w.labels("fast", map[string]string{label: "true", next: "true"})
	becomes(w, last, "there is a place", materialized(metav1.ConditionTrue, "Labeled"))

	// A request that is deleted while no controller runs takes its label along.
	m.stop()
	if err := w.Delete(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	w.start(func(c *controller.Config) {
		c.FeatureGates[settings.GateScheduling], c.MaterializedRequests = true, settings.MaterializedRequests{Total: 2}
	})
	w.labels("fast", map[string]string{label: "true", next: ""})
	if err := w.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	w.labels("fast", map[string]string{label: ""})
}

// The prefix of these labels is for requests alone.
func TestRulesCannotWriteLabelsOfRequests(t *testing.T) {
	w := newWorld(t)
	w.start(func(c *controller.Config) { c.MaterializedRequests = settings.MaterializedRequests{Total: 1} })
	w.node("thief")
	r := w.rule("thief", `rules: [{name: r, labels: {features.assay.dev/ml.amx: "true", other: "true"}}]`)
	w.labels("thief", map[string]string{"other": "true", "features.assay.dev/ml.amx": ""})
	becomes(w, r, "the status warns", func(r *nfdv1alpha1.NodeFeatureRule) bool {
		c := meta.FindStatusCondition(r.Status.Conditions, nfdv1alpha1.ConditionAccepted)
		return c != nil && strings.Contains(c.Message, "is protected")
	})
}

// joinsWith creates nodes with a label that their pool declares, and with the record that a pool can declare too.
func (w *world) joinsWith(label string, nodes ...string) {
	w.Helper()
	for _, name := range nodes {
		change(w, w.joins(name), func(n *corev1.Node) {
			n.Labels, n.Annotations = M{label: "true", "example.com/theirs": "1"}, M{nfdv1alpha1.FeatureLabelsAnnotation: label}
		})
	}
}

// A node pool can declare the label of a request, so that an autoscaler buys its nodes, and be wrong.
func TestANodeThatDoesNotMeetTheRequestOfItsLabelIsNotReady(t *testing.T) {
	w := newWorld(t)
	w.allowStartup()
	r := &assayv1alpha1.NodeFeatureRequest{}
	w.apply(r, "metadata: {name: fast, namespace: "+w.namespace+"}\n"+
		`spec: {materialize: Always, required: {matchFeatures: [{feature: test.attr, matchExpressions: {speed: {op: Exists}}}]}}`)
	label := "features.assay.dev/" + w.namespace + ".fast"
	w.joinsWith(label, "fast", "slow", "unknown")
	history := w.record("slow")
	limits := func(c *controller.Config) {
		c.FeatureGates[settings.GateScheduling], c.MaterializedRequests = true, settings.MaterializedRequests{Total: 1}
	}
	m := w.start(withReady, limits, func(c *controller.Config) { c.StartupTaint, c.FailOpenAfter = startupTaint, time.Hour })
	becomes(w, r, "the request is materialized", materialized(metav1.ConditionTrue, "Labeled"))
	w.examines("fast", "boot-1", M{"speed": "1"})
	w.examines("slow", "boot-1", M{"a": "1"})
	open := func(n *corev1.Node) bool { return !tainted(n, startupTaint) }
	fast := becomes(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "fast"}}, "no start-up taint", open)
	if fast.Labels[label] != "true" || fast.Annotations[nfdv1alpha1.FeatureLabelsAnnotation] != label {
		t.Errorf("the node that meets the request has labels %v and the record %q", fast.Labels, fast.Annotations[nfdv1alpha1.FeatureLabelsAnnotation])
	}
	// The autoscaler waits for the other one, and pods cannot use it.
	slow := w.ready("slow", corev1.ConditionFalse, assayv1alpha1.ReasonLabelsUnmet, label)
	if slow.Labels[label] != "true" || !tainted(slow, startupTaint) || slow.Annotations[nfdv1alpha1.FeatureLabelsAnnotation] != "" {
		t.Errorf("labels %v, taints %v, record %q", slow.Labels, slow.Spec.Taints, slow.Annotations[nfdv1alpha1.FeatureLabelsAnnotation])
	}
	if message := w.event("slow", assayv1alpha1.ReasonLabelsUnmet); !strings.Contains(message, label) {
		t.Errorf("the Event says %q", message)
	}
	// Karpenter adds the start-up taint when it registers a node, which can be after the worker has published.
	change(w, w.joins("early"), func(n *corev1.Node) {
		n.Labels, n.Spec.Taints = M{label: "true"}, []corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}}
	})
	w.examines("early", "boot-1", M{"a": "1"})
	if early := w.ready("early", corev1.ConditionFalse, assayv1alpha1.ReasonLabelsUnmet, label); early.Labels[label] != "true" {
		t.Errorf("the node that is not registered has labels %v", early.Labels)
	}
	if n := w.labels("unknown", nil); n.Labels[label] != "true" || !tainted(n, startupTaint) {
		t.Errorf("the node without features has labels %v and taints %v", n.Labels, n.Spec.Taints)
	}
	m.stop()

	// In the end the label goes, before the taint.
	w.start(withReady, limits, func(c *controller.Config) { c.StartupTaint, c.FailOpenAfter = startupTaint, time.Second })
	slow = becomes(w, slow, "no start-up taint", open)
	if slow.Labels[label] != "" || slow.Labels["example.com/theirs"] != "1" {
		t.Errorf("the node that does not meet the request has labels %v", slow.Labels)
	}
	w.event("slow", "UnmetLabelRemoved", label)
	for _, n := range history.states(w) {
		if !tainted(n, startupTaint) && n.Labels[label] != "" {
			t.Errorf("the false label and no taint at resourceVersion %s", n.ResourceVersion)
		}
	}
	// An autoscaler can write it again when it registers the node.
	change(w, slow, func(n *corev1.Node) { n.Labels[label] = "true" })
	w.labels("slow", M{label: ""})
}

package controller_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/settings"
)

func withReady(c *controller.Config) { c.FeaturesReady = true }

// boots makes the kubelet of a node report a boot, and its own condition.
func (w *world) boots(node, id string) {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := w.Get(w.Context(), client.ObjectKeyFromObject(n), n); err != nil {
		w.Fatal(err)
	}
	before := n.DeepCopy()
	n.Status.NodeInfo.BootID = id
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"})
	if len(before.Status.Conditions) > 0 {
		n.Status.Conditions = before.Status.Conditions
	}
	if err := w.Status().Patch(w.Context(), n, client.StrategicMergeFrom(before)); err != nil {
		w.Fatal(err)
	}
}

// examined returns what the worker of a node publishes about a boot.
func examined(boot string, attributes map[string]string) nfdv1alpha1.Features {
	return nfdv1alpha1.Features{Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{
		"system.boot": {Elements: M{"id": boot}}, "test.attr": {Elements: attributes},
	}}
}

func (w *world) examines(node, boot string, attributes map[string]string) *nfdv1alpha1.NodeFeature {
	w.Helper()
	f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: node, Labels: M{nfdv1alpha1.NodeNameLabel: node}}}
	f.Spec.Features = examined(boot, attributes)
	testkit.Create(w, w, f)
	return f
}

func conditionOf(n *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == kind {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// ready waits until a node has the condition FeaturesReady with this status and reason, and a message with these parts.
func (w *world) ready(node string, status corev1.ConditionStatus, reason string, parts ...string) *corev1.Node {
	w.Helper()
	return becomes(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, fmt.Sprintf("FeaturesReady=%s %s %q", status, reason, parts), func(n *corev1.Node) bool {
		c := conditionOf(n, assayv1alpha1.FeaturesReadyCondition)
		if c == nil || c.Status != status || c.Reason != reason || c.LastTransitionTime.IsZero() {
			return false
		}
		for _, part := range parts {
			if !strings.Contains(c.Message, part) {
				return false
			}
		}
		return true
	})
}

// opensWith checks that a node was never ready without a label, and, if it must stay so, never not ready afterwards.
func (h *history) opensWith(w *world, label string, stays bool) {
	w.Helper()
	opened := false
	for _, n := range h.states(w) {
		c := conditionOf(n, assayv1alpha1.FeaturesReadyCondition)
		is := c != nil && c.Status == corev1.ConditionTrue
		if _, there := n.Labels[label]; is && !there {
			w.Errorf("ready without label %s at resourceVersion %s", label, n.ResourceVersion)
		}
		if opened && !is && stays {
			w.Errorf("not ready any more at resourceVersion %s: %v", n.ResourceVersion, c)
		}
		if kubelet := conditionOf(n, corev1.NodeReady); kubelet == nil || kubelet.Reason != "KubeletReady" {
			w.Errorf("the kubelet's condition at resourceVersion %s: %v", n.ResourceVersion, kubelet)
		}
		opened = opened || is
	}
	if !opened {
		w.Error("never ready")
	}
}

func TestANodeIsReadyOnceItsLabelsAreThere(t *testing.T) {
	w := newWorld(t)
	w.rule("copy", copies)
	for _, name := range []string{"n1", "without", "nfd"} {
		w.node(name)
		w.boots(name, "boot-1")
	}
	history := w.record("n1")
	m := w.start(withReady)
	w.publish(w.namespace, "nfd", "nfd", M{"a": "1"}, nil)
	f := w.examines("n1", "boot-1", M{"a": "1"})
	n := w.ready("n1", corev1.ConditionTrue, "FeaturesApplied", "boot boot-1")
	if got := n.Annotations[assayv1alpha1.NodeConditionsAnnotation]; got != assayv1alpha1.FeaturesReadyCondition {
		t.Errorf("the record of conditions is %q", got)
	}
	w.labels("nfd", M{"a": "1"})

	// What changes later does not close the gate.
	change(w, f, func(f *nfdv1alpha1.NodeFeature) { f.Spec.Features = examined("boot-1", M{"a": "1", "b": "1"}) })
	w.labels("n1", M{"b": "1"})
	change(w, f, func(f *nfdv1alpha1.NodeFeature) { f.Spec.Features = examined("boot-1", M{"a": "1"}) })
	w.labels("n1", M{"b": ""})
	w.rule("more", `{rules: [{name: more, labels: {more: "1"}, taints: [{key: example.com/x, effect: PreferNoSchedule}]}]}`)
	last := w.labels("n1", M{"more": "1"})
	if err := w.Delete(t.Context(), f); err != nil { // counts for ten more minutes
		t.Fatal(err)
	}
	w.rule("again", `{rules: [{name: again, labels: {again: "1"}}]}`)
	w.labels("n1", M{"again": "1", "a": "1"})
	history.opensWith(w, feature+"a", true)

	for _, name := range []string{"without", "nfd"} {
		if c := conditionOf(w.labels(name, M{"again": "1"}), assayv1alpha1.FeaturesReadyCondition); c != nil {
			t.Errorf("node %s, which has no worker of Assay, has condition %v", name, c)
		}
	}
	before, after := conditionOf(n, assayv1alpha1.FeaturesReadyCondition), conditionOf(last, assayv1alpha1.FeaturesReadyCondition)
	if *before != *after {
		t.Errorf("the condition was %v, and is written again: %v", before, after)
	}

	// A restart writes nothing, and one with the condition switched off removes it.
	m.stop()
	version := w.labels("n1", nil).ResourceVersion
	passed := passes()
	m = w.start(withReady)
	w.waitForPasses(passed, 3)
	m.stop()
	if now := w.labels("n1", nil).ResourceVersion; now != version {
		t.Errorf("the restart wrote: resourceVersion %s -> %s", version, now)
	}
	w.start()
	becomes(w, n, "no condition FeaturesReady", func(n *corev1.Node) bool {
		_, recorded := n.Annotations[assayv1alpha1.NodeConditionsAnnotation]
		return conditionOf(n, assayv1alpha1.FeaturesReadyCondition) == nil && !recorded && conditionOf(n, corev1.NodeReady) != nil
	})
}

func TestARebootedNodeIsReadyOnceItsNewFeaturesAre(t *testing.T) {
	w := newWorld(t)
	w.rule("copy", copies)
	w.node("n1")
	w.boots("n1", "boot-1")
	f := w.examines("n1", "boot-1", M{"card": "old", "a": "1"})
	// No node may lose a label before five minutes have passed.
	w.start(withReady, func(c *controller.Config) {
		c.RemovalBudget = settings.RemovalBudget{Window: time.Minute, Hold: 5 * time.Minute}
	})
	w.ready("n1", corev1.ConditionTrue, "FeaturesApplied", "boot-1")
	w.labels("n1", M{"card": "old"})

	w.boots("n1", "boot-2")
	w.ready("n1", corev1.ConditionFalse, "StaleBoot", "of boot boot-1", "runs boot boot-2")
	change(w, f, func(f *nfdv1alpha1.NodeFeature) { f.Spec.Features = examined("boot-2", M{"a": "1"}) })
	w.ready("n1", corev1.ConditionFalse, "RulesPending", "removal of label "+feature+"card")
	change(w, f, func(f *nfdv1alpha1.NodeFeature) { f.Spec.Features = examined("boot-2", M{"card": "old", "a": "1"}) })
	w.ready("n1", corev1.ConditionTrue, "FeaturesApplied", "boot-2")

	w.rule("refuse", `{rules: [{name: card, matchFeatures: [{feature: test.attr, matchExpressions: {card: {op: In, value: [old]}}}],
	  actions: [{op: fail, args: {msg: "the card is on the recall list"}}]}]}`)
	w.ready("n1", corev1.ConditionFalse, "Failed", "refuse", "recall list")
}

func TestANodeWithoutFeaturesIsNotReady(t *testing.T) {
	w := newWorld(t)
	w.rule("copy", copies)
	for _, name := range []string{"gone", "sets"} {
		w.node(name)
		w.boots(name, "boot-1")
	}
	gone := w.examines("gone", "boot-1", M{"a": "1"})
	missing := w.set(M{"late": "1"})
	f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "sets", Labels: M{nfdv1alpha1.NodeNameLabel: "sets"}}}
	f.Spec.Features = nfdv1alpha1.Features{Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{"system.boot": {Elements: M{"id": "boot-1"}}}}
	f.Spec.FeatureSets = []string{missing.Name}
	testkit.Create(w, w, f)
	w.start(withReady, func(c *controller.Config) { c.RemovalGracePeriod = time.Second })
	w.ready("gone", corev1.ConditionTrue, "FeaturesApplied")
	w.ready("sets", corev1.ConditionFalse, "FeatureSetsMissing", missing.Name)
	testkit.Create(w, w, missing)
	w.ready("sets", corev1.ConditionTrue, "FeaturesApplied")
	w.labels("sets", M{"late": "1"})
	if err := w.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	w.ready("gone", corev1.ConditionFalse, "NoFeatures", "worker")
}

// TestANodeIsReadyAfterItsTaints is about the second write that taints are: a pod must not slip in between.
func TestANodeIsReadyAfterItsTaints(t *testing.T) {
	w := newWorld(t)
	w.rule("taint", `{rules: [{name: r, labels: {a: "1"}, taints: [{key: example.com/gpu, effect: NoSchedule}]}]}`)
	w.node("n1")
	w.boots("n1", "boot-1")
	history := w.record("n1")
	w.examines("n1", "boot-1", M{})
	w.start(withReady, func(c *controller.Config) { c.EnableTaints = true })
	w.ready("n1", corev1.ConditionTrue, "FeaturesApplied")
	history.opensWith(w, feature+"a", true)
	for _, n := range history.states(w) {
		if conditionOf(n, assayv1alpha1.FeaturesReadyCondition) != nil && !tainted(n, "example.com/gpu") {
			t.Errorf("ready without the taint at resourceVersion %s", n.ResourceVersion)
		}
	}
}

func tainted(n *corev1.Node, key string) bool {
	for _, taint := range n.Spec.Taints {
		if taint.Key == key {
			return true
		}
	}
	return false
}

const startupTaint = "startup-taint.cluster-autoscaler.kubernetes.io/features"

// joins makes a Node with the start-up taint, beside one of another owner.
func (w *world) joins(name string) *corev1.Node {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Spec.Taints = []corev1.Taint{
		{Key: startupTaint, Value: "x", Effect: corev1.TaintEffectNoExecute}, {Key: "example.com/theirs", Effect: corev1.TaintEffectNoSchedule},
		{Key: startupTaint, Effect: corev1.TaintEffectNoSchedule},
	}
	testkit.Create(w, w, n)
	w.boots(name, "boot-1")
	return n
}

// allowStartup changes the policy on what the controller writes as the chart does.
func (w *world) allowStartup() {
	w.Helper()
	w.setPolicy(charts.PolicySettings{StartupTaint: startupTaint})
}

func TestTheStartupTaintGoesOnceANodeIsReady(t *testing.T) {
	w := newWorld(t)
	w.allowStartup()
	w.rule("copy", copies)
	w.joins("n1")
	w.joins("late")
	history := w.record("n1")
	w.start(withReady, func(c *controller.Config) { c.StartupTaint, c.FailOpenAfter = startupTaint, time.Hour })
	w.ready("n1", corev1.ConditionFalse, "NoFeatures", "worker")
	w.examines("n1", "boot-1", M{"a": "1"})
	open := func(n *corev1.Node) bool { return !tainted(n, startupTaint) && tainted(n, "example.com/theirs") }
	n := becomes(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, "no start-up taint", open)
	history.opensWith(w, feature+"a", true)
	for _, n := range history.states(w) {
		if _, there := n.Labels[feature+"a"]; !there && !tainted(n, startupTaint) {
			t.Errorf("no taint and no label at resourceVersion %s", n.ResourceVersion)
		}
	}
	// An administrator closes a node again: it is ready, so the taint goes.
	change(w, n, func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: startupTaint, Effect: corev1.TaintEffectNoSchedule})
	})
	becomes(w, n, "no start-up taint", open)
	if n := w.labels("late", nil); !tainted(n, startupTaint) {
		t.Error("the node without features is open")
	}
}

// TestAWorkersConfigurationIsReported by the controller, about its Node: a worker cannot create Events, and no other publisher can have this
// one written.
func TestAWorkersConfigurationIsReported(t *testing.T) {
	w := newWorld(t)
	n := w.joins("misconfigured")
	annotate := func(f *nfdv1alpha1.NodeFeature, text string) {
		before := f.DeepCopy()
		f.Annotations = M{assayv1alpha1.InvalidConfigurationAnnotation: text}
		if err := w.Patch(w.Context(), f, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	w.start(withReady)
	own := w.examines(n.Name, "boot-1", M{"a": "1"})
	other := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "vendor", Labels: M{nfdv1alpha1.NodeNameLabel: n.Name}}}
	testkit.Create(w, w, other)
	annotate(other, "forged")
	w.ready(n.Name, corev1.ConditionTrue, "FeaturesApplied")
	annotate(own, "worker.conf:1:27: core: expected a list\nand more")
	want := "The worker keeps its previous configuration: worker.conf:1:27: core: expected a list; and more"
	if got := w.event(n.Name, "InvalidConfiguration"); got != want {
		t.Errorf("the Event says %q, want %q", got, want)
	}
}

func TestTheStartupTaintGoesInTheEnd(t *testing.T) {
	w := newWorld(t)
	w.allowStartup()
	n := w.joins("broken")
	w.start(withReady, func(c *controller.Config) {
		c.StartupTaint, c.FailOpenAfter = startupTaint, 2*time.Second
	})
	becomes(w, n, "no start-up taint", func(n *corev1.Node) bool { return !tainted(n, startupTaint) })
	if message := w.event("broken", "StartupTaintTimeout"); !strings.Contains(message, "2s") || !strings.Contains(message, "NoFeatures") {
		t.Errorf("the Event says %q", message)
	}
	w.ready("broken", corev1.ConditionFalse, "NoFeatures")
}

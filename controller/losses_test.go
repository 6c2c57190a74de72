package controller_test

import (
	"context"
	"fmt"
	"slices"
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

const lossTaint = "example.com/features-lost"

func withLossTaint(c *controller.Config) {
	c.FeatureGates[settings.GateScheduling] = true
	c.LossTaint = lossTaint + ":NoExecute"
	c.NoExecuteBudget = settings.NoExecuteBudget{Every: 200 * time.Millisecond, Share: 0.25}
}

// requires creates a namespace with a NodeFeatureRequest for the link of a node, and returns its name.
func (w *world) requires(spec string, optIn bool) string {
	w.Helper()
	ns := testkit.Namespace(w, w)
	if optIn {
		w.optIn(ns)
	}
	w.apply(&assayv1alpha1.NodeFeatureRequest{}, "metadata: {name: link, namespace: "+ns+"}\nspec: {"+spec+
		`required: {matchFeatures: [{feature: test.attr, matchExpressions: {link: {op: In, value: [up]}}}]}}`)
	return ns
}

func (w *world) optIn(namespace string) {
	w.Helper()
	change(w, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, func(n *corev1.Namespace) {
		n.Labels[assayv1alpha1.OnLossLabel] = assayv1alpha1.OnLossLabelEnabled
	})
}

// runs binds a pod that refers to that request to a node.
func (w *world) runs(namespace, node string) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "on-" + node, Labels: M{assayv1alpha1.FeatureRequestLabel: "link"}}}
	p.Spec = corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}}
	testkit.Eventually(w, "create a pod", func(ctx context.Context) error { return w.Create(ctx, p) }) // its ServiceAccount is created with the namespace
	return p
}

// podEvent waits for an Event with this reason on a pod, whose message has all parts.
func (w *world) podEvent(pod *corev1.Pod, reason string, parts ...string) {
	w.Helper()
	testkit.Eventually(w, "event "+reason+" about "+pod.Name, func(ctx context.Context) error {
		var list corev1.EventList
		if err := w.List(ctx, &list, client.InNamespace(pod.Namespace)); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.InvolvedObject.Name == pod.Name && e.Reason == reason &&
				!slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(e.Message, p) }) {
				return nil
			}
		}
		return fmt.Errorf("%d events, none with %q", len(list.Items), parts)
	})
}

// knowsPods waits until the controller has checked all pods against their nodes: nodes are checked in the order of their names, and the pod
// on the last one draws an Event.
func (w *world) knowsPods() {
	w.Helper()
	const last = "zz-last"
	node := w.node(last)
	f := w.publish(w.namespace, last, last, M{"link": "down"}, nil)
	pod := w.runs(w.requires("", false), last)
	w.podEvent(pod, "FeaturesLost", last)
	for _, o := range []client.Object{pod, f, node} {
		if err := w.Delete(w.Context(), o, client.GracePeriodSeconds(0)); err != nil {
			w.Fatal(err)
		}
	}
}

// lossTaints returns the value of the taint of each node that has it.
func (w *world) lossTaints() map[string]string {
	w.Helper()
	var list corev1.NodeList
	if err := w.List(w.Context(), &list); err != nil {
		w.Fatal(err)
	}
	out := map[string]string{}
	for i := range list.Items {
		for _, t := range list.Items[i].Spec.Taints {
			if t.Key == lossTaint {
				out[list.Items[i].Name] = t.Value
			}
		}
	}
	return out
}

func setLink(w *world, f *nfdv1alpha1.NodeFeature, state string) {
	w.Helper()
	change(w, f, func(f *nfdv1alpha1.NodeFeature) { f.Spec.Features.Attributes["test.attr"].Elements["link"] = state })
}

// TestNodesThatLoseAFeatureAreTaintedAtThePace lets eight nodes lose a feature at once that their pods require.
func TestNodesThatLoseAFeatureAreTaintedAtThePace(t *testing.T) {
	w := newWorld(t)
	lossy := w.requires("onLoss: Taint, grace: 1s, ", true)
	patient := w.requires("onLoss: Taint, grace: 1h, ", true)
	silent := w.requires("", true)
	outside := w.requires("onLoss: Taint, grace: 1s, ", false)
	published, pods := map[string]*nfdv1alpha1.NodeFeature{}, map[string]*corev1.Pod{}
	for name, ns := range map[string]string{
		"n0": lossy, "n1": lossy, "n2": lossy, "n3": lossy, "n4": lossy, "patient": patient, "silent": silent, "outside": outside,
	} {
		w.node(name)
		published[name] = w.publish(w.namespace, name, name, M{"link": "up"}, nil)
		pods[name] = w.runs(ns, name)
	}
	never := []*history{w.record("patient"), w.record("silent"), w.record("outside")}
	m := w.start(withLossTaint)
	request := &assayv1alpha1.NodeFeatureRequest{ObjectMeta: metav1.ObjectMeta{Namespace: lossy, Name: "link"}}
	becomes(w, request, "all nodes have it", func(r *assayv1alpha1.NodeFeatureRequest) bool {
		return r.Status.MatchingNodes != nil && *r.Status.MatchingNodes == 8
	})
	w.knowsPods()
	for _, f := range published {
		setLink(w, f, "down")
	}
	for name, pod := range pods {
		w.podEvent(pod, "FeaturesLost", name, "test.attr/link")
	}
	const share = 2 // a quarter of eight
	becomes(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}}, "as many nodes are tainted as may be", func(*corev1.Node) bool {
		return len(w.lossTaints()) == share
	})
	first, second := "", ""
	for name, value := range w.lossTaints() {
		if value != lossy+".link" || !strings.HasPrefix(name, "n") {
			t.Errorf("node %s has the value %s", name, value)
		}
		first, second = name, first
	}
	w.event(first, "LossTaintAdded", lossTaint+"="+lossy+".link:NoExecute", "lacked test.attr/link", "NodeFeatureRequest "+lossy+"/link", lossy+"/on-"+first)
	for name := range published {
		if strings.HasPrefix(name, "n") && name != first && name != second {
			w.event(name, "EvictionHeld")
		}
	}
	// Further passes release no other taint.
	w.rule("marker", `{rules: [{name: m, labels: {marker: "1"}}]}`)
	for name := range published {
		w.labels(name, M{"marker": "1"})
	}
	if got := w.lossTaints(); len(got) != share {
		t.Errorf("%v are tainted", got)
	}

	// A restart forgets for how long the features are lost, and keeps the taints.
	history := w.record(second)
	m.stop()
	w.start(withLossTaint)
	w.rule("again", `{rules: [{name: m, labels: {again: "1"}}]}`)
	for name := range published {
		w.labels(name, M{"again": "1"})
	}
	for name, f := range published {
		if strings.HasPrefix(name, "n") && name != second {
			setLink(w, f, "up")
		}
	}
	free := func(n *corev1.Node) bool { return !tainted(n, lossTaint) }
	n := becomes(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: first}}, "no taint: the feature is back", free)
	if record := n.Annotations[nfdv1alpha1.TaintsAnnotation]; record != "" {
		t.Errorf("the record lists %q", record)
	}
	w.event(first, "LossTaintRemoved", lossTaint)
	for _, n := range history.states(w) {
		if !tainted(n, lossTaint) {
			t.Errorf("the taint of %s was removed although the feature is lost", second)
		}
	}
	if err := w.Delete(t.Context(), pods[second], client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	becomes(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: second}}, "no taint: the pod is gone", free)
	becomes(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: second}}, "no node is tainted", func(*corev1.Node) bool { return len(w.lossTaints()) == 0 })
	for _, h := range never {
		for _, n := range h.states(w) {
			if tainted(n, lossTaint) {
				t.Fatalf("node %s was tainted", n.Name)
			}
		}
	}
}

// TestALossCountsOnlyIfTheNodeHadTheFeature: a user who may create pods can bind them to a node of their choice, and require what it never
// had. The node must not be tainted for that.
func TestALossCountsOnlyIfTheNodeHadTheFeature(t *testing.T) {
	w := newWorld(t)
	ns := w.requires("onLoss: Taint, grace: 1s, ", true)
	published := map[string]*nfdv1alpha1.NodeFeature{}
	for name, link := range map[string]string{"had": "up", "never": "down", "before": "up"} {
		w.node(name)
		published[name] = w.publish(w.namespace, name, name, M{"link": link}, nil)
	}
	victims := []*history{w.record("never"), w.record("before")}
	w.start(withLossTaint, func(c *controller.Config) {
		c.NoExecuteBudget = settings.NoExecuteBudget{Every: time.Millisecond, Share: 1}
	})
	request := &assayv1alpha1.NodeFeatureRequest{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "link"}}
	matching := func(want int32) {
		t.Helper()
		becomes(w, request, fmt.Sprintf("%d nodes have it", want), func(r *assayv1alpha1.NodeFeatureRequest) bool {
			return r.Status.MatchingNodes != nil && *r.Status.MatchingNodes == want
		})
	}
	matching(2)
	setLink(w, published["before"], "down")
	matching(1)
	honest := w.runs(ns, "had")
	for _, node := range []string{"never", "before"} {
		w.podEvent(w.runs(ns, node), "FeaturesLost", node, "the pod goes on running")
	}
	setLink(w, published["had"], "down")
	w.podEvent(honest, "FeaturesLost", "had", "will be tainted")
	becomes(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "had"}}, "the taint", func(n *corev1.Node) bool { return tainted(n, lossTaint) })
	for _, h := range victims {
		for _, n := range h.states(w) {
			if tainted(n, lossTaint) {
				t.Fatalf("node %s was tainted", n.Name)
			}
		}
	}
}

// TestANodeIsNotTaintedWithoutItsWorkersFeatures: a node whose worker was deleted seems to lack everything.
func TestANodeIsNotTaintedWithoutItsWorkersFeatures(t *testing.T) {
	w := newWorld(t)
	ns := w.requires("onLoss: Taint, grace: 1s, ", true)
	published := map[string]*nfdv1alpha1.NodeFeature{}
	for _, name := range []string{"gone", "lost", "keeps"} {
		w.node(name)
		published[name] = w.publish(w.namespace, name, name, M{"link": "up"}, nil)
		w.runs(ns, name)
	}
	history := w.record("gone")
	w.start(withLossTaint, func(c *controller.Config) {
		c.RemovalGracePeriod, c.NoExecuteBudget = time.Millisecond, settings.NoExecuteBudget{Every: time.Millisecond, Share: 1}
	})
	request := &assayv1alpha1.NodeFeatureRequest{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "link"}}
	matching := func(want int32) {
		t.Helper()
		becomes(w, request, fmt.Sprintf("%d nodes have it", want), func(r *assayv1alpha1.NodeFeatureRequest) bool {
			return r.Status.MatchingNodes != nil && *r.Status.MatchingNodes == want
		})
	}
	matching(3)
	w.knowsPods()
	has := func(n *corev1.Node) bool { return tainted(n, lossTaint) }
	keeps := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "keeps"}}
	setLink(w, published["keeps"], "down")
	becomes(w, keeps, "the taint", has)
	w.delete(published["gone"])
	w.delete(published["keeps"])
	matching(1)
	setLink(w, published["lost"], "down")
	becomes(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lost"}}, "the taint", has)
	for _, n := range history.states(w) {
		if tainted(n, lossTaint) {
			t.Error("a node without a NodeFeature was tainted")
		}
	}
	if becomes(w, keeps, "it exists", func(*corev1.Node) bool { return true }); !has(keeps) {
		t.Error("a node lost its taint with its NodeFeature")
	}
}

func TestTheStatusSaysWhyOnLossHasNoEffect(t *testing.T) {
	w := newWorld(t)
	ns := w.requires("onLoss: Taint, ", false)
	request := &assayv1alpha1.NodeFeatureRequest{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "link"}}
	withheld := func(reason, message string) {
		t.Helper()
		becomes(w, request, "Withheld for "+reason, func(r *assayv1alpha1.NodeFeatureRequest) bool {
			c := meta.FindStatusCondition(r.Status.Conditions, nfdv1alpha1.ConditionWithheld)
			if c == nil {
				return reason == "" && len(r.Status.Conditions) > 0
			}
			return c.Status == metav1.ConditionTrue && c.Reason == reason && strings.Contains(c.Message, message)
		})
	}
	m := w.start(func(c *controller.Config) { c.FeatureGates[settings.GateScheduling] = true })
	withheld("LossTaintDisabled", "lossTaint")
	m.stop()
	w.start(withLossTaint)
	withheld("NamespaceNotEnabled", assayv1alpha1.OnLossLabel)
	w.optIn(ns)
	withheld("", "")
}

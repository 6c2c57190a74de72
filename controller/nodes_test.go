package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/controller/node"
	"github.com/assay-project/assay/internal/testkit"
)

// copies is a rule that copies the attributes of test.attr to labels.
const copies = `{rules: [{name: copy, labelsTemplate: "{{range .test.attr}}{{.Name}}={{.Value}}\n{{end}}",
  matchFeatures: [{feature: test.attr, matchName: {op: Exists}}]}]}`

type M = map[string]string

func TestMergesInTheOrderOfNFD(t *testing.T) {
	w := newWorld(t)
	other := testkit.Namespace(t, w)
	w.node("n1")
	w.rule("copy", copies)
	w.publish(w.namespace, "n1", "n1", M{"own": "worker", "shared": "worker", "name": "worker"}, M{"requested": "worker", "copied": "requested"})
	w.publish(w.namespace, "a", "n1", M{"name": "a"}, nil)
	w.publish(other, "n1", "n1", M{"shared": "other"}, M{"requested": "other"})
	w.publish(other, "b", "n2", M{"stranger": "true"}, nil)
	w.start()

	w.labels("n1", M{
		"own":       "worker",
		"shared":    "other",  // NodeFeatures in the manager's own namespace are merged first
		"name":      "worker", // then by name: a before n1
		"requested": "other",
		"stranger":  "", // of another node
	})
}

// TestWhatTheNodeSaysOfItselfCounts covers features that are read from the Node, not published by a worker: the kubelet is upgraded
// and declares more features.
func TestWhatTheNodeSaysOfItselfCounts(t *testing.T) {
	w := newWorld(t)
	n := w.node("n1")
	kubelet := func(version string, declared ...string) {
		change(w, n, func(n *corev1.Node) { n.Spec.ProviderID = "aws:///a/i-1" })
		before := n.DeepCopy()
		n.Status.NodeInfo.KubeletVersion, n.Status.NodeInfo.BootID = version, "boot-of-"+version
		n.Status.DeclaredFeatures = declared
		if err := w.Status().Patch(w.Context(), n, client.MergeFrom(before)); err != nil {
			w.Fatal(err)
		}
	}
	kubelet("v1.35.1")
	w.publish(w.namespace, "forger", "n1", nil, nil)
	forger := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "forger"}}
	change(w, forger, func(f *nfdv1alpha1.NodeFeature) {
		f.Spec.Features.Attributes = map[string]nfdv1alpha1.AttributeFeatureSet{"kubernetes.node": {Elements: M{"kubelet_version": "v9"}}}
	})
	w.rule("facts", `{rules: [
		{name: version, labelsTemplate: "kubelet={{range .kubernetes.node}}{{if eq .Name \"kubelet_version\"}}{{.Value}}{{end}}{{end}}",
		 matchFeatures: [{feature: kubernetes.node, matchExpressions: {kubelet_version: {op: Exists}}}]},
		{name: provider, labels: {cloud: aws}, matchFeatures: [{feature: kubernetes.provider, matchExpressions: {name: {op: In, value: [aws]}}}]},
		{name: declared, labels: {resize: "1"}, matchFeatures: [{feature: kubernetes.declaredfeature, matchExpressions: {Resize: {op: Exists}}}]}]}`)
	w.start()
	w.labels("n1", M{"kubelet": "v1.35.1", "cloud": "aws", "resize": ""})
	kubelet("v1.36.3", "Resize")
	w.labels("n1", M{"kubelet": "v1.36.3", "cloud": "aws", "resize": "1"})
}

func TestRulesWinOverRequestedLabels(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.publish(w.namespace, "n1", "n1", nil, M{"a": "requested", "b": "requested", "bad key": "x", "c": "not/a value"})
	w.rule("r1", `{rules: [{name: r, labels: {a: r1, x: r1, z: r1}}]}`)
	w.rule("r2", `{rules: [{name: r, labels: {x: r2}}]}`)
	w.rule("r0", `{priority: 5, rules: [{name: r, labels: {z: r0}}]}`)
	w.start()
	w.labels("n1", M{"a": "r1", "b": "requested", "x": "r2", "z": "r0", "c": ""})
}

func TestFollowsFeaturesAndRules(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	f := w.publish(w.namespace, "n1", "n1", M{"a": "1", "b": "1"}, nil)
	rule := w.rule("copy", copies)
	w.start()
	n := w.labels("n1", M{"a": "1", "b": "1"})
	if got := n.Annotations[nfdv1alpha1.FeatureLabelsAnnotation]; got != "a,b" {
		t.Errorf("record is %q", got)
	}
	change(w, f, func(f *nfdv1alpha1.NodeFeature) {
		f.Spec.Features.Attributes["test.attr"] = nfdv1alpha1.AttributeFeatureSet{Elements: M{"a": "2"}}
	})
	w.labels("n1", M{"a": "2", "b": ""})
	w.setRule(rule, `{rules: [{name: fixed, labels: {vendor.io/c: "3"}}]}`)
	w.labels("n1", M{"a": "", "vendor.io/c": "3"})
	if err := w.Delete(t.Context(), rule); err != nil {
		t.Fatal(err)
	}
	n = w.labels("n1", M{"vendor.io/c": ""})
	for key := range n.Annotations {
		if strings.Contains(key, nfdv1alpha1.BookkeepingNamespace) {
			t.Errorf("annotation %s stays although nothing is owned", key)
		}
	}
}

func TestThirdPartiesMayBeDeniedLabels(t *testing.T) {
	w := newWorld(t)
	other := testkit.Namespace(t, w)
	w.node("n1")
	w.rule("copy", copies)
	w.publish(w.namespace, "n1", "n1", nil, M{"own": "true"})
	w.publish(w.namespace, "third", "n1", M{"feature": "true"}, M{"named": "true"})
	w.publish(other, "n1", "n1", nil, M{"foreign": "true"})
	w.start(func(c *controller.Config) { c.Restrictions.DenyNodeFeatureLabels = true })
	w.labels("n1", M{"own": "true", "feature": "true", "named": "", "foreign": ""})
}

func TestNamespacesAreChosenByLabel(t *testing.T) {
	w := newWorld(t)
	other := testkit.Namespace(t, w)
	w.node("n1")
	w.rule("copy", copies)
	w.publish(w.namespace, "n1", "n1", M{"own": "true"}, nil)
	w.publish(other, "vendor", "n1", M{"vendor": "true"}, nil)
	w.start(func(c *controller.Config) {
		c.Restrictions.NodeFeatureNamespaceSelector = &metav1.LabelSelector{MatchLabels: M{"trusted": "yes"}}
	})
	w.labels("n1", M{"own": "true", "vendor": ""})

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}
	change(w, ns, func(ns *corev1.Namespace) { ns.Labels["trusted"] = "yes" })
	w.labels("n1", M{"own": "true", "vendor": "true"})
	change(w, ns, func(ns *corev1.Namespace) { delete(ns.Labels, "trusted") })
	w.labels("n1", M{"own": "true", "vendor": ""})
}

func TestRepairsDrift(t *testing.T) {
	w := newWorld(t)
	n := w.node("n1")
	w.publish(w.namespace, "n1", "n1", M{"a": "1"}, nil)
	w.rule("copy", copies)
	w.rule("device", `{rules: [{name: device, extendedResources: {vendor.io/d: "4"}}]}`)
	w.start()
	w.labels("n1", M{"a": "1"})

	change(w, n, func(n *corev1.Node) { n.Labels[feature+"a"] = "tampered" })
	w.labels("n1", M{"a": "1"})
	change(w, n, func(n *corev1.Node) { delete(n.Labels, feature+"a") })
	w.labels("n1", M{"a": "1"})

	has := func(amount string) func(n *corev1.Node) bool {
		return func(n *corev1.Node) bool {
			q := resource.MustParse(amount)
			c, a := n.Status.Capacity["vendor.io/d"], n.Status.Allocatable["vendor.io/d"]
			return c.Cmp(q) == 0 && a.Cmp(q) == 0
		}
	}
	becomes(w, n, "vendor.io/d 4", has("4"))
	// A kubelet resets unknown resources to 0 when it starts.
	zero := []byte(`{"status":{"capacity":{"vendor.io/d":"0"},"allocatable":{"vendor.io/d":"0"}}}`)
	if err := w.Status().Patch(t.Context(), n, client.RawPatch(types.MergePatchType, zero)); err != nil {
		t.Fatal(err)
	}
	becomes(w, n, "vendor.io/d 4 again", has("4"))

	if err := w.Delete(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	rebuilt := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if err := w.Create(t.Context(), rebuilt); err != nil {
		t.Fatal(err)
	}
	w.labels("n1", M{"a": "1"})
	becomes(w, rebuilt, "vendor.io/d 4 on the rebuilt node", has("4"))
}

// TestARefusedKeyDoesNotBlockOthers: the API server rejects keys because of an admission policy that Assay does not know; its error
// names the key, or does not.
func TestARefusedKeyDoesNotBlockOthers(t *testing.T) {
	w := newWorld(t)
	n := w.node("n1")
	w.forbid("nodes/status", "label", `!("vendor.io/forbidden" in object.metadata.?labels.orValue({}))`, "vendor.io/forbidden is not for you")
	w.forbid("nodes/status", "resource", `!("vendor.io/denied" in object.status.?capacity.orValue({}))`, "not for you")
	w.forbid("nodes", "taint", `!object.spec.?taints.orValue([]).exists(t, t.key == "vendor.io/closed")`, "the taint vendor.io/closed is not for you")
	w.rule("copy", copies)
	w.publish(w.namespace, "n1", "n1", M{"a": "1"}, nil)
	label := w.rule("label", `{rules: [{name: forbidden, labels: {vendor.io/forbidden: "true", fine: "true"}}]}`)
	denied := w.rule("resource", `{rules: [{name: denied, extendedResources: {vendor.io/denied: "1"}, labels: {ok: "true"}}]}`)
	taint := w.rule("taint", `{rules: [{name: closed, taints: [{key: vendor.io/closed, effect: NoSchedule}, {key: vendor.io/open, effect: NoSchedule}]}]}`)
	m := w.start(func(c *controller.Config) { c.EnableTaints = true })
	w.labels("n1", M{"a": "1", "fine": "true", "ok": "true"})
	becomes(w, n, "the taint that is allowed", func(n *corev1.Node) bool { return len(n.Spec.Taints) == 1 && n.Spec.Taints[0].Key == "vendor.io/open" })
	w.condition(label, nfdv1alpha1.ConditionHealthy, metav1.ConditionFalse, "vendor.io/forbidden", "refuses")
	w.condition(denied, nfdv1alpha1.ConditionHealthy, metav1.ConditionFalse, "vendor.io/denied", "refuses")
	w.condition(taint, nfdv1alpha1.ConditionHealthy, metav1.ConditionFalse, "vendor.io/closed", "refuses")
	w.event("n1", "KeyRefused")

	// A rejected key is not retried in a loop, and does not block later changes.
	m.reset()
	w.rule("more", `{rules: [{name: more, labels: {more: "true"}}]}`)
	w.labels("n1", M{"more": "true"})
	if got := m.requests("PATCH", "/nodes/"); len(got) != 1 {
		t.Errorf("requests for one more label: %v", got)
	}
	if _, there := n.Status.Capacity["vendor.io/denied"]; there {
		t.Error("the policy was not active")
	}
}

// forbid creates an admission policy for a resource of Nodes, and waits until it is active.
func (w *world) forbid(resource, name, expression, message string) {
	w.Helper()
	w.apply(&admissionv1.ValidatingAdmissionPolicy{}, fmt.Sprintf(`
metadata: {name: %s}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [%s]}]}
  validations:
  - {expression: '%s', message: %s}
  - {expression: '!("probe-%s" in object.metadata.?labels.orValue({}))'}`, name, resource, expression, message, name))
	w.apply(&admissionv1.ValidatingAdmissionPolicyBinding{}, fmt.Sprintf(
		`{metadata: {name: %s}, spec: {policyName: %s, validationActions: [Deny]}}`, name, name))
	probe := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"probe-%s":"1"}}}`, name))
	testkit.Eventually(w, "policy "+name, func(ctx context.Context) error {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		patch := func() error { return w.Patch(ctx, n, probe, client.DryRunAll) }
		if resource == "nodes/status" {
			patch = func() error { return w.Status().Patch(ctx, n, probe, client.DryRunAll) }
		}
		if err := patch(); err == nil {
			return errors.New("not active")
		}
		return nil
	})
}

func TestAnErrorLosesNoNode(t *testing.T) {
	for _, code := range []int{http.StatusInternalServerError, http.StatusTooManyRequests, http.StatusConflict} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			w := newWorld(t)
			w.node("bad")
			w.node("good")
			w.rule("r", `{rules: [{name: r, labels: {a: "1"}}]}`)
			var left atomic.Int32
			left.Store(4)
			w.startWith(&traffic{fails: func(r *http.Request) int {
				if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/nodes/bad") && left.Add(-1) >= 0 {
					return code
				}
				return 0
			}})
			w.labels("good", M{"a": "1"})
			w.labels("bad", M{"a": "1"})
		})
	}
}

func TestWritesTaintsOnlyIfEnabled(t *testing.T) {
	w := newWorld(t)
	n := w.node("n1")
	change(w, n, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "admin", Effect: "NoSchedule"}} })
	w.rule("taint", `{rules: [{name: t, labels: {done: "1"}, taints: [{key: vendor.io/gpu, value: "true", effect: NoExecute}]}]}`)

	m := w.start()
	n = w.labels("n1", M{"done": "1"})
	if len(n.Spec.Taints) != 1 {
		t.Errorf("taints are %v although they are disabled", n.Spec.Taints)
	}
	m.stop()
	m = w.start(func(c *controller.Config) { c.EnableTaints = true })
	keys := func(want ...string) func(*corev1.Node) bool {
		return func(n *corev1.Node) bool {
			var got []string
			for _, t := range n.Spec.Taints {
				got = append(got, t.Key)
			}
			return slices.Equal(got, want)
		}
	}
	becomes(w, n, "both taints", keys("admin", "vendor.io/gpu"))
	if got := n.Annotations[nfdv1alpha1.TaintsAnnotation]; got != "vendor.io/gpu=true:NoExecute" {
		t.Errorf("record is %q", got)
	}
	m.stop()
	w.start()
	becomes(w, n, "the administrator's taint alone", keys("admin"))
}

func TestWritesAnnotationsAndBackReferences(t *testing.T) {
	w := newWorld(t)
	n := w.node("n1")
	w.publish(w.namespace, "n1", "n1", M{"model": "x-1"}, nil)
	w.rule("first", `{rules: [{name: a, vars: {kind: fast}, labels: {model: "@test.attr.model"}, annotations: {note: "for {node}"},
	  matchFeatures: [{feature: test.attr, matchExpressions: {model: {op: Exists}}}]}]}`)
	w.rule("second", `{rules: [{name: b, labels: {second: "true"},
	  matchFeatures: [{feature: rule.matched, matchExpressions: {kind: {op: In, value: [fast]}, model: {op: In, value: [x-1]}}}]}]}`)
	w.start()
	w.labels("n1", M{"model": "x-1", "second": "true"})
	becomes(w, n, "annotation", func(n *corev1.Node) bool { return n.Annotations[feature+"note"] == "for n1" })
}

func TestInstancesKeepOutOfEachOthersWay(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.publish(w.namespace, "n1", "n1", M{"a": "1"}, nil)
	w.rule("copy", copies)
	blue := w.start(func(c *controller.Config) { c.Instance = "blue" })
	n := w.labels("n1", M{"a": "1"})
	if got := n.Annotations["blue."+nfdv1alpha1.FeatureLabelsAnnotation]; got != "a" {
		t.Errorf("annotations are %v", n.Annotations)
	}
	blue.stop()
	green := w.start(func(c *controller.Config) { c.Restrictions.DisableLabels = true })
	w.rule("mark", `{rules: [{name: m, annotations: {mark: "1"}}]}`)
	becomes(w, n, "the mark", func(n *corev1.Node) bool { return n.Annotations[feature+"mark"] == "1" })
	if n.Labels[feature+"a"] != "1" {
		t.Error("the default instance has removed what instance blue owns")
	}
	green.stop()
}

func TestLeavesForeignKeysIfConfigured(t *testing.T) {
	w := newWorld(t)
	n := w.node("n1")
	change(w, n, func(n *corev1.Node) { n.Labels = M{"vendor.io/a": "theirs"} })
	rule := w.rule("r", `{rules: [{name: r, labels: {vendor.io/a: ours, vendor.io/b: ours}}]}`)
	m := w.start(func(c *controller.Config) { c.Restrictions.AllowOverwrite = false })
	w.labels("n1", M{"vendor.io/a": "theirs", "vendor.io/b": "ours"})
	w.condition(rule, nfdv1alpha1.ConditionHealthy, metav1.ConditionFalse, "vendor.io/a", "another client")
	m.stop()
	w.start()
	w.labels("n1", M{"vendor.io/a": "ours", "vendor.io/b": "ours"})
}

func TestDisabledKindsAreLeftOut(t *testing.T) {
	w := newWorld(t)
	n := w.node("n1")
	w.rule("r", `{rules: [{name: r, labels: {a: "1"}, annotations: {a: "1"}, extendedResources: {vendor.io/a: "1"}}]}`)
	w.start(func(c *controller.Config) {
		c.Restrictions.DisableLabels, c.Restrictions.DisableExtendedResources = true, true
	})
	becomes(w, n, "annotation", func(n *corev1.Node) bool { return n.Annotations[feature+"a"] == "1" })
	if _, there := n.Labels[feature+"a"]; there || len(n.Status.Capacity) != 3 {
		t.Errorf("labels %v, capacity %v", n.Labels, n.Status.Capacity)
	}
}

func TestRestartAndIdlePassesMakeNoCalls(t *testing.T) {
	w := newWorld(t)
	const nodes = 20
	copyRule := w.rule("copy", copies)
	device := w.rule("device", `{rules: [{name: device, extendedResources: {vendor.io/d: 1k}, annotations: {a: b}}]}`)
	versions := M{}
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		w.node(name)
		w.publish(w.namespace, name, name, M{"a": "1"}, nil)
	}
	m := w.start()
	for i := range nodes {
		n := w.labels(fmt.Sprintf("n%d", i), M{"a": "1"})
		versions[n.Name] = n.ResourceVersion
	}
	if got := len(m.requests("PATCH", "/nodes/")); got != nodes {
		t.Errorf("%d patches for %d nodes", got, nodes)
	}
	for _, r := range []*nfdv1alpha1.NodeFeatureRule{copyRule, device} {
		becomes(w, r, "all nodes matched", func(r *nfdv1alpha1.NodeFeatureRule) bool {
			return r.Status.MatchedNodes != nil && *r.Status.MatchedNodes == nodes
		})
	}
	m.stop()

	m = w.start(func(c *controller.Config) { c.ResyncPeriod = time.Second })
	testkit.Eventually(w, "the record of provenance is read", func(context.Context) error {
		if len(m.requests("GET", "/configmaps/")) == 0 {
			return errors.New("passes before the rules are compiled do not read it")
		}
		return nil
	})
	w.waitForPasses(passes(), nodes)
	m.reset()
	w.waitForPasses(passes(), 2*nodes) // two resync intervals
	if calls := m.requests(); len(calls) > 0 {
		t.Errorf("idle passes make calls: %v", calls)
	}
	now := M{}
	var list corev1.NodeList
	if err := w.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	for _, n := range list.Items {
		now[n.Name] = n.ResourceVersion
	}
	if diff := cmp.Diff(versions, now); diff != "" {
		t.Errorf("nodes were written (-before +after):\n%s", diff)
	}
}

func TestLabelsOutliveTheirWorker(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	f := w.publish(w.namespace, "n1", "n1", M{"a": "1"}, nil)
	w.rule("copy", copies)
	m := w.start()
	w.labels("n1", M{"a": "1"})
	h := w.record("n1")
	if err := w.Delete(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	w.rule("marker1", `{rules: [{name: m, labels: {marker1: "1"}}]}`)
	w.labels("n1", M{"a": "1", "marker1": "1"})

	m.stop() // in the middle of the grace period
	w.start()
	w.rule("marker2", `{rules: [{name: m, labels: {marker2: "1"}}]}`)
	w.labels("n1", M{"a": "1", "marker2": "1"})
	w.publish(w.namespace, "n1", "n1", M{"a": "1"}, nil)
	w.rule("marker3", `{rules: [{name: m, labels: {marker3: "1"}}]}`)
	w.labels("n1", M{"a": "1", "marker3": "1"})
	h.always(w, feature+"a")
}

func TestLabelsGoWhenTheGraceIsOver(t *testing.T) {
	for name, grace := range map[string]time.Duration{"AtOnceAsInNFD": 0, "AfterAWhile": time.Second} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node("n1")
			f := w.publish(w.namespace, "n1", "n1", M{"a": "1"}, nil)
			w.rule("copy", copies)
			w.start(func(c *controller.Config) { c.RemovalGracePeriod = grace })
			w.labels("n1", M{"a": "1"})
			if err := w.Delete(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			w.labels("n1", M{"a": ""})
		})
	}
}

func TestThirdPartyObjectsActAtOnce(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.publish(w.namespace, "n1", "n1", M{"a": "1"}, nil)
	third := w.publish(w.namespace, "vendor", "n1", M{"b": "1"}, nil)
	w.rule("copy", copies)
	w.start()
	w.labels("n1", M{"a": "1", "b": "1"})
	if err := w.Delete(t.Context(), third); err != nil {
		t.Fatal(err)
	}
	w.labels("n1", M{"a": "1", "b": ""})
}

func TestMassRemovalIsHeld(t *testing.T) {
	w := newWorld(t)
	const nodes = 8
	w.rule("copy", copies)
	var published []*nfdv1alpha1.NodeFeature
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		w.node(name)
		published = append(published, w.publish(w.namespace, "vendor-"+name, name, M{"a": "1"}, nil))
	}
	w.start(func(c *controller.Config) {
		c.RemovalBudget.Nodes, c.RemovalBudget.Share, c.RemovalBudget.Hold = 3, 0.05, 5*time.Second
	})
	for i := range nodes {
		w.labels(fmt.Sprintf("n%d", i), M{"a": "1"})
	}
	for _, f := range published {
		if err := w.Delete(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	lost := func() (n int) {
		var list corev1.NodeList
		if err := w.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		for _, node := range list.Items {
			if node.Labels[feature+"a"] == "" {
				n++
			}
		}
		return n
	}
	testkit.Eventually(t, "as many removals as the budget allows", func(context.Context) error {
		if n := lost(); n != 3 {
			return fmt.Errorf("%d nodes have lost the label", n)
		}
		return nil
	})
	testkit.Eventually(t, "all removals, since the wish persists", func(context.Context) error {
		if n := lost(); n != nodes {
			return fmt.Errorf("%d nodes have lost the label", n)
		}
		return nil
	})
}

func TestAConfirmedRemovalGoesOn(t *testing.T) {
	w := newWorld(t)
	w.rule("copy", copies)
	var published []*nfdv1alpha1.NodeFeature
	for i := range 3 {
		name := fmt.Sprintf("n%d", i)
		w.node(name)
		published = append(published, w.publish(w.namespace, "vendor-"+name, name, M{"a": "1"}, nil))
	}
	manager := &appsv1.Deployment{}
	w.apply(manager, fmt.Sprintf(`{metadata: {namespace: %s, name: manager, annotations: {%s: "2001-02-03T04:05:06Z"}},
	  spec: {replicas: 0, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`,
		w.namespace, node.ConfirmAnnotation))
	w.start(func(c *controller.Config) {
		c.RemovalBudget.Nodes, c.RemovalBudget.Share, c.RemovalBudget.Hold = 0, 0, time.Hour
		c.ConfirmEvery = time.Second
	})
	for i := range published {
		w.labels(fmt.Sprintf("n%d", i), M{"a": "1"})
	}
	for _, f := range published {
		if err := w.Delete(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	for i := range published {
		w.event(fmt.Sprintf("n%d", i), "RemovalHeld")
		w.labels(fmt.Sprintf("n%d", i), M{"a": "1"})
	}
	change(w, manager, func(d *appsv1.Deployment) {
		d.Annotations[node.ConfirmAnnotation] = time.Now().UTC().Format(time.RFC3339)
	})
	for i := range published {
		w.labels(fmt.Sprintf("n%d", i), M{"a": ""})
	}
}

func TestAFlappingLabelIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	f := w.publish(w.namespace, "n1", "n1", M{"a": "0", "other": "0"}, nil)
	w.rule("copy", copies)
	w.start()
	w.labels("n1", M{"a": "0"})
	set := func(key, value string) {
		t.Helper()
		change(w, f, func(f *nfdv1alpha1.NodeFeature) { f.Spec.Features.Attributes["test.attr"].Elements[key] = value })
	}
	for _, value := range []string{"1", "2"} { // changes two and three are applied immediately
		set("a", value)
		w.labels("n1", M{"a": value})
	}
	set("a", "3")
	set("other", "1")
	w.labels("n1", M{"a": "2", "other": "1"})
}

func TestAMassRemovalByARuleIsNotHeld(t *testing.T) {
	w := newWorld(t)
	const nodes = 6
	r := w.rule("r", `{rules: [{name: r, labels: {a: "1"}}]}`)
	for i := range nodes {
		w.node(fmt.Sprintf("n%d", i))
	}
	w.start(func(c *controller.Config) {
		c.RemovalBudget.Nodes, c.RemovalBudget.Share, c.RemovalBudget.Hold = 1, 0, time.Hour
	})
	for i := range nodes {
		w.labels(fmt.Sprintf("n%d", i), M{"a": "1"})
	}
	if err := w.Delete(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		w.labels(fmt.Sprintf("n%d", i), M{"a": ""})
	}
}

func TestBadNodeFeatures(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.rule("copy", copies)
	w.publish(w.namespace, "n1", "n1", M{"a": "1"}, nil)
	nameless := w.publish(w.namespace, "nameless", "n1", M{"nameless": "1"}, nil)
	change(w, nameless, func(f *nfdv1alpha1.NodeFeature) { f.Labels = nil })
	w.publish(w.namespace, "nowhere", "no-such-node", M{"nowhere": "1"}, nil)
	w.publish(w.namespace, "binary", "n1", M{"binary": "a\x00b", "rtl": "\u202ex", "z": "caf\xe9"}, nil)
	huge := M{}
	for i := range 14_000 {
		huge[fmt.Sprintf("huge%d", i)] = strings.Repeat("y", 80)
	}
	big := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.namespace, Name: "big", Labels: M{nfdv1alpha1.NodeNameLabel: "n1"},
	}}
	big.Spec.Features.Attributes = map[string]nfdv1alpha1.AttributeFeatureSet{"big.attr": {Elements: huge}}
	testkit.Create(t, w, big)
	w.rule("big", `{rules: [{name: big, labels: {big: "true"}, matchFeatures: [{feature: big.attr, matchExpressions: {huge13999: {op: Exists}}}]}]}`)
	w.start()
	w.labels("n1", M{"a": "1", "big": "true", "nameless": "", "nowhere": "", "binary": "", "rtl": ""})
}

func TestNothingIsWrittenInADryRun(t *testing.T) {
	w := newWorld(t)
	n := w.node("n1")
	r := w.rule("r", `{rules: [{name: r, labels: {a: "1"}}]}`)
	w.start(func(c *controller.Config) { c.NoPublish = true })
	becomes(w, r, "one matched node", func(r *nfdv1alpha1.NodeFeatureRule) bool {
		return r.Status.MatchedNodes != nil && *r.Status.MatchedNodes == 1
	})
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(n), n); err != nil || n.Labels[feature+"a"] != "" {
		t.Errorf("labels are %v (%v)", n.Labels, err)
	}
}

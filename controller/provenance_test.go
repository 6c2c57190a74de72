package controller_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/internal/testkit"
)

// fleetSize is the number of nodes in tests with many nodes: slightly more than the budget for removals. $ASSAY_TEST_NODES
// overrides it.
func fleetSize(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("ASSAY_TEST_NODES"))
	if err != nil {
		return 30
	}
	return n
}

// fleet creates nodes, each with a NodeFeature of the worker and one of a tenant with the attribute a.
func (w *world) fleet(n int) (tenants []*nfdv1alpha1.NodeFeature) {
	w.Helper()
	tenant := testkit.Namespace(w, w)
	for i := range n {
		name := fmt.Sprintf("n%d", i)
		w.node(name)
		w.publish(w.namespace, name, name, M{"own": "1"}, nil)
		tenants = append(tenants, w.publish(tenant, name, name, M{"a": "1"}, nil))
	}
	return tenants
}

// having counts the nodes that have a label with a value; "" matches any value.
func (w *world) having(label, value string) (n int) {
	w.Helper()
	var list corev1.NodeList
	if err := w.List(w.Context(), &list); err != nil {
		w.Fatal(err)
	}
	for i := range list.Items {
		if got, ok := list.Items[i].Labels[feature+label]; ok && (value == "" || got == value) {
			n++
		}
	}
	return n
}

// count waits until the given number of nodes have a label.
func (w *world) count(label, value string, want int) {
	w.Helper()
	start := time.Now()
	testkit.Eventually(w, fmt.Sprintf("label %s=%s on %d nodes", label, value, want), func(context.Context) error {
		if n := w.having(label, value); n != want {
			return fmt.Errorf("%d nodes have it", n)
		}
		return nil
	})
	w.Logf("label %s=%q on %d nodes after %s", label, value, want, time.Since(start).Round(time.Millisecond))
}

// recorded waits until the controller has recorded that the current rules, including these, have reached all nodes.
func (w *world) recorded(instance string, rules ...client.Object) {
	w.Helper()
	name := "assay-kept-rules"
	if instance != "" {
		name += "-" + instance
	}
	testkit.Eventually(w, "record of provenance", func(ctx context.Context) error {
		m := &corev1.ConfigMap{}
		if err := w.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, m); err != nil {
			return err
		}
		var record struct {
			Whole   bool
			Objects map[string]struct{ Name, Rolled string }
		}
		if err := json.Unmarshal([]byte(m.Data["_provenance"]), &record); err != nil {
			return err
		}
		for _, r := range rules {
			if !record.Whole || record.Objects[string(r.GetUID())].Rolled == "" {
				return fmt.Errorf("%s is not rolled out: %s", r.GetName(), m.Data["_provenance"])
			}
		}
		return nil
	})
}

func (w *world) deleteAll(list []*nfdv1alpha1.NodeFeature) {
	w.Helper()
	for _, f := range list {
		if err := w.Delete(w.Context(), f); err != nil {
			w.Fatal(err)
		}
	}
}

// TestAnUnrelatedRuleDoesNotLiftTheBudget deletes the NodeFeatures of a tenant for all nodes, and then changes unrelated rules.
func TestAnUnrelatedRuleDoesNotLiftTheBudget(t *testing.T) {
	w := newWorld(t)
	nodes := fleetSize(t)
	tenants := w.fleet(nodes)
	copyRule := w.rule("copy", copies)
	w.rule("reader", `{rules: [{name: r, labels: {read: "1"}, matchFeatures: [{feature: rule.matched, matchExpressions: {a: {op: Exists}}}]}]}`)
	budget := max(10, nodes/20)
	m := w.start()
	w.count("read", "1", nodes)
	w.deleteAll(tenants[:budget])
	w.count("a", "", nodes-budget)
	w.deleteAll(tenants[budget:])
	last := tenants[len(tenants)-1].Name // over the budget
	w.event(last, "RemovalHeld", feature+"a")

	before := passes()
	nothing := w.rule("nothing", `{rules: [{name: r, labels: {nothing: "1"}, matchFeatures: [{feature: no.such, matchExpressions: {x: {op: Exists}}}]}]}`)
	w.waitForPasses(before, nodes)
	marker := w.rule("marker", `{rules: [{name: r, labels: {marker: "1"}}]}`)
	w.count("marker", "1", nodes)
	w.delete(nothing)
	w.delete(marker)
	w.count("marker", "", 0)
	for _, label := range []string{"a", "read"} {
		if n := w.having(label, ""); n != nodes-budget {
			t.Errorf("%d nodes have the label %s after changes of other rules, want %d", n, label, nodes-budget)
		}
	}
	m.stop()

	// The same holds in another process, which reads from the record which rule gave the labels.
	before = passes()
	m = w.start()
	w.waitForPasses(before, nodes)
	w.rule("marker2", `{rules: [{name: r, labels: {marker2: "1"}}]}`)
	w.count("marker2", "1", nodes)
	if n := w.having("a", ""); n < nodes-2*budget {
		t.Errorf("%d nodes have the label after a restart, want %d", n, nodes-2*budget)
	}

	// The rule that reads the output of the other one no longer matches either.
	w.setRule(copyRule, `{rules: [{name: other, labels: {other: "1"}}]}`)
	w.count("a", "", 0)
	w.count("read", "", 0)
	m.stop()
}

// leaving returns a function that modifies responses so that lists of a resource lack one object.
func leaving(resource, name string) *traffic {
	of := func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+resource)
	}
	return &traffic{
		fails: func(r *http.Request) int {
			if of(r) && r.URL.Query().Get("sendInitialEvents") == "true" {
				return http.StatusUnprocessableEntity // it falls back to a list
			}
			return 0
		},
		edits: func(r *http.Request, body []byte) []byte {
			if !of(r) || r.URL.Query().Get("labelSelector") != "" { // a list of the cache
				return nil
			}
			var list map[string]any
			if json.Unmarshal(body, &list) != nil {
				return nil
			}
			items, _ := list["items"].([]any)
			list["items"] = slices.DeleteFunc(items, func(item any) bool {
				object, _ := item.(map[string]any)
				metadata, _ := object["metadata"].(map[string]any)
				return metadata["name"] == name
			})
			out, _ := json.Marshal(list)
			return out
		},
	}
}

// edited returns the response with another body.
func edited(resp *http.Response, edit func(body []byte) []byte) (*http.Response, error) {
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if err := resp.Body.Close(); err != nil {
		return nil, err
	}
	if next := edit(body); next != nil {
		body = next
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp.Header.Del("Content-Length")
	return resp, nil
}

// TestARuleMissingInTheFirstListIsNotGone restarts the controller with a cache that lacks an object with active rules.
func TestARuleMissingInTheFirstListIsNotGone(t *testing.T) {
	for name, lacks := range map[string]struct{ resource, object string }{
		"Rule":     {"nodefeaturerules", "lost"},
		"Template": {"nodefeatureruletemplates", "base"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			const nodes = 15 // over the budget
			for i := range nodes {
				w.node(fmt.Sprintf("n%d", i))
				w.publish(w.namespace, fmt.Sprintf("n%d", i), fmt.Sprintf("n%d", i), nil, nil)
			}
			w.template("base", `{rules: [{name: base, labels: {base: "1"}}]}`)
			lost := w.rule("lost", `{basedOn: [{name: base}], rules: [{name: r, labels: {lost: "1"}}]}`)
			m := w.start()
			w.count("lost", "1", nodes)
			w.recorded("", lost)
			m.stop()

			h := w.record("n3")
			before := passes()
			w.startWith(leaving(lacks.resource, lacks.object))
			w.waitForPasses(before, nodes)
			w.rule("marker", `{rules: [{name: r, labels: {marker: "1"}}]}`)
			w.count("marker", "1", nodes)
			for _, label := range []string{"lost", "base"} {
				h.always(w, feature+label)
				if n := w.having(label, "1"); n != nodes {
					t.Errorf("%d of %d nodes have the label %s", n, nodes, label)
				}
			}
			// Its changes are processed anyway.
			w.setRule(lost, `{rules: [{name: r, labels: {lost: "2"}}]}`)
			w.count("lost", "2", nodes)
			w.count("base", "", 0)
			w.delete(lost)
			w.count("lost", "", 0)
		})
	}
}

// TestRemovalsAreHeldIfTheOwnerIsUnknown deletes or corrupts the record while no controller runs.
func TestRemovalsAreHeldIfTheOwnerIsUnknown(t *testing.T) {
	for name, spoil := range map[string]func(*world, *corev1.ConfigMap) error{
		"Missing": func(w *world, m *corev1.ConfigMap) error { return w.Delete(w.Context(), m) },
		"Corrupt": func(w *world, m *corev1.ConfigMap) error {
			m.Data["_provenance"] = `{"whole":true,"objects":{"x":{"keys":"?"}}}`
			return w.Update(w.Context(), m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node("n1")
			w.publish(w.namespace, "n1", "n1", nil, nil)
			r := w.rule("r", `{rules: [{name: r, labels: {a: "1"}}]}`)
			stays := w.rule("stays", `{rules: [{name: r, labels: {stays: "1"}}]}`)
			m := w.start()
			w.labels("n1", M{"a": "1", "stays": "1"})
			w.recorded("", r, stays)
			m.stop()
			kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "assay-kept-rules"}}
			if err := w.Get(t.Context(), client.ObjectKeyFromObject(kept), kept); err != nil {
				t.Fatal(err)
			}
			if err := spoil(w, kept); err != nil {
				t.Fatal(err)
			}
			w.delete(r)
			w.start(func(c *controller.Config) { c.RemovalBudget.Hold = 10 * time.Second })
			w.event("n1", "RemovalHeld", "not known which rule", feature+"a") // it goes with the hold
			w.rule("marker", `{rules: [{name: r, labels: {marker: "1"}}]}`)
			w.labels("n1", M{"marker": "1", "a": "1"})
			w.labels("n1", M{"a": "", "stays": "1"}) // the removal is still due

			// After that, the record is complete again.
			w.recorded("", stays)
			w.delete(stays)
			w.labels("n1", M{"stays": ""})
		})
	}
}

// TestInstancesHaveARecordEach runs two controllers in one namespace, for which the previous release used one ConfigMap.
func TestInstancesHaveARecordEach(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	r := w.rule("r", `{rules: [{name: r, labels: {a: "1"}}]}`)
	blue := w.start(func(c *controller.Config) { c.Instance = "blue" })
	w.labels("n1", M{"a": "1"})
	w.recorded("blue", r)
	err := w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "assay-kept-rules"}, &corev1.ConfigMap{})
	if client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("instance blue has written the ConfigMap of the other: %v", err)
	}
	blue.stop()
}

// TestEditsActAtOnceWithoutTheWorkersFacts deletes and edits rules while the controller is down, for nodes without a worker's
// NodeFeature.
func TestEditsActAtOnceWithoutTheWorkersFacts(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	own := w.publish(w.namespace, "n1", "n1", M{"fact": "1"}, nil)
	gone := w.rule("gone", `{rules: [{name: r, labels: {gone: "1"}}]}`)
	edit := w.rule("edit", `{rules: [{name: r, labels: {dropped: "1", value: "1"}}]}`)
	copied := w.rule("copy", copies)
	m := w.start()
	w.labels("n1", M{"gone": "1", "dropped": "1", "value": "1", "fact": "1"})
	w.recorded("", gone, edit, copied)
	m.stop()
	if err := w.Delete(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	w.delete(gone)
	w.setRule(edit, `{rules: [{name: r, labels: {value: "2"}}]}`)
	change(w, copied, func(r *nfdv1alpha1.NodeFeatureRule) { r.Spec.Rules[0].Labels = M{"more": "1"} })
	w.start()
	// The template needs the missing facts, so its edit explains nothing.
	w.labels("n1", M{"gone": "", "dropped": "", "value": "2", "fact": "1"})
}

// TestAPublisherMissingInTheFirstListIsNotGone restarts the controller with a cache that lacks the NodeFeatures of a tenant.
func TestAPublisherMissingInTheFirstListIsNotGone(t *testing.T) {
	w := newWorld(t)
	tenant := testkit.Namespace(t, w)
	for _, name := range []string{"n1", "n2"} {
		w.node(name)
		w.publish(w.namespace, name, name, nil, nil)
	}
	vendor := w.publish(tenant, "vendor", "n1", M{"a": "1"}, nil)
	copied := w.rule("copy", copies)
	m := w.start()
	w.labels("n1", M{"a": "1"})
	w.recorded("", copied)
	m.stop()

	h := w.record("n1")
	m = w.startWith(leaving("nodefeatures", "vendor"))
	w.rule("marker", `{rules: [{name: r, labels: {marker: "1"}}]}`)
	w.labels("n2", M{"marker": "1"})
	testkit.Eventually(t, "the API server is asked", func(context.Context) error {
		if len(m.requests("GET /apis/nfd.k8s-sigs.io/v1alpha1/nodefeatures")) < 2 {
			return fmt.Errorf("only once, for the cache: %v", m.requests("nodefeatures"))
		}
		return nil
	})
	change(w, vendor, func(f *nfdv1alpha1.NodeFeature) { f.Annotations = M{"example.com/touched": "1"} })
	w.labels("n1", M{"a": "1", "marker": "1"})
	h.always(w, feature+"a")
}

// TestANamespaceMissingInTheFirstListIsNotGone restarts the controller with a cache that lacks the namespace of a tenant whose NodeFeatures
// count because of a label of the namespace.
func TestANamespaceMissingInTheFirstListIsNotGone(t *testing.T) {
	w := newWorld(t)
	tenant := testkit.Namespace(t, w)
	trusted := func(c *controller.Config) {
		c.Restrictions.NodeFeatureNamespaceSelector = &metav1.LabelSelector{MatchLabels: M{"kubernetes.io/metadata.name": tenant}}
	}
	for _, name := range []string{"n1", "n2"} {
		w.node(name)
		w.publish(w.namespace, name, name, nil, nil)
	}
	w.publish(tenant, "vendor", "n1", M{"a": "1"}, nil)
	copied := w.rule("copy", copies)
	m := w.start(trusted)
	w.labels("n1", M{"a": "1"})
	w.recorded("", copied)
	m.stop()

	h := w.record("n1")
	lacking := leaving("namespaces", tenant)
	fails := lacking.fails
	lacking.fails = func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/namespaces") && r.URL.Query().Get("watch") == "" { // otherwise it is not in JSON
			r.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
		}
		return fails(r)
	}
	m = w.startWith(lacking, trusted)
	w.rule("marker", `{rules: [{name: r, labels: {marker: "1"}}]}`)
	w.labels("n2", M{"marker": "1"})
	testkit.Eventually(t, "the API server is asked", func(context.Context) error {
		if len(m.requests("GET /api/v1/namespaces/"+tenant)) == 0 {
			return fmt.Errorf("it is not: %v", m.requests("namespaces"))
		}
		return nil
	})
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}}
	change(w, ns, func(n *corev1.Namespace) { n.Annotations = M{"example.com/touched": "1"} })
	w.labels("n1", M{"a": "1", "marker": "1"})
	h.always(w, feature+"a")
}

// TestBuiltInRulesWithErrorsAtTheStartAreNotGone restarts the controller while a file of built-in rules has errors.
func TestBuiltInRulesWithErrorsAtTheStartAreNotGone(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.publish(w.namespace, "n1", "n1", nil, nil)
	file := filepath.Join(t.TempDir(), "a.yaml")
	write := func(labels string) {
		t.Helper()
		text := "{apiVersion: nfd.k8s-sigs.io/v1alpha1, kind: NodeFeatureRule, metadata: {name: policy}, spec: {rules: [{name: r, labels: " + labels + "}]}}"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	builtIn := func(c *controller.Config) { c.BuiltInRules = filepath.Dir(file) }
	write(`{owner: platform}`)
	m := w.start(builtIn)
	w.labels("n1", M{"owner": "platform"})
	policy := &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: "builtin:policy", UID: "builtin:policy"}}
	w.recorded("", policy)
	m.stop()

	write(`{owner: [platform}`)
	h := w.record("n1")
	w.start(builtIn)
	w.rule("marker", `{rules: [{name: r, labels: {marker: "1"}}]}`)
	w.labels("n1", M{"owner": "platform", "marker": "1"})
	w.event("n1", "RemovalHeld", "owner")
	h.always(w, feature+"owner")
	write(`{team: platform}`)
	w.labels("n1", M{"owner": "", "team": "platform"})
}

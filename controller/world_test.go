package controller_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/internal/fleet"
	"github.com/assay-project/assay/internal/fleet/devices"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/settings"
	"github.com/assay-project/assay/test/cluster"
)

// feature is the default namespace of labels.
const feature = "feature.node.kubernetes.io/"

// world is a control plane with a namespace for the manager.
type world struct {
	*testing.T
	client.WithWatch
	user      *cluster.User
	namespace string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := testkit.Cluster(t)
	w := &world{T: t, WithWatch: testkit.Client(t, c.User), user: c.User}
	w.namespace = testkit.Namespace(t, w)
	w.bindController()
	// Events on Nodes and rules are in the default namespace, where another test would find them.
	if err := w.DeleteAllOf(t.Context(), &corev1.Event{}, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		t.Fatal(err)
	}
	return w
}

// traffic records the requests of a manager.
type traffic struct {
	next http.RoundTripper
	mu   sync.Mutex
	list []string
	// fails returns the status with which a request fails, 0 to let it pass; nil lets all pass.
	fails func(*http.Request) int
	// edits returns a modified body for a response; nil keeps the body.
	edits func(r *http.Request, body []byte) []byte
}

func (c *traffic) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.Contains(r.URL.RawQuery, "watch=true") && !strings.Contains(r.URL.Path, "/leases") && !strings.HasPrefix(r.URL.Path, "/apis?") {
		c.mu.Lock()
		c.list = append(c.list, r.Method+" "+r.URL.Path)
		c.mu.Unlock()
	}
	if c.fails != nil {
		if code := c.fails(r); code != 0 {
			return &http.Response{StatusCode: code, Request: r, Body: io.NopCloser(strings.NewReader("made to fail")), Header: http.Header{}}, nil
		}
	}
	resp, err := c.next.RoundTrip(r)
	if err != nil || c.edits == nil || strings.Contains(r.URL.RawQuery, "watch=true") {
		return resp, err
	}
	return edited(resp, func(body []byte) []byte { return c.edits(r, body) })
}

// requests returns the requests so far whose text contains all parts.
func (c *traffic) requests(parts ...string) (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.list {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(r, p) }) {
			out = append(out, r)
		}
	}
	return out
}

func (c *traffic) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = nil
}

// manager is a running manager.
type manager struct {
	*traffic
	stop func()
	log  *journal
}

// journal collects a log.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// Components outside of reconcilers use one logger per process, which can only be set once; it writes to the journal of the manager
// that was started last.
var (
	current      atomic.Pointer[journal]
	setGlobalLog = sync.OnceFunc(func() { logf.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(latest{}, nil))) })
)

type latest struct{}

func (latest) Write(p []byte) (int, error) { return current.Load().Write(p) }

// start runs a manager until the test ends or stop is called. By default it writes the outputs of rules and nothing else.
func (w *world) start(options ...func(*controller.Config)) *manager {
	w.Helper()
	return w.startWith(&traffic{}, options...)
}

// startWith is like start, but sends requests through t.
func (w *world) startWith(t *traffic, options ...func(*controller.Config)) *manager {
	w.Helper()
	return w.startAs(charts.DefaultNamespace, charts.DefaultManager, t, options...)
}

// startAs is like startWith, with the token of a ServiceAccount.
func (w *world) startAs(namespace, account string, t *traffic, options ...func(*controller.Config)) *manager {
	w.Helper()
	config := controller.Config{Settings: settings.Default(), Namespace: w.namespace}
	config.FeaturesReady, config.FeatureGates, config.NodeShapeLabels = false, map[string]bool{}, nil
	config.MaterializedRequests, config.GcInterval, config.ResyncPeriod = settings.MaterializedRequests{}, 0, 0
	for _, option := range options {
		option(&config)
	}
	m := &manager{log: &journal{}, traffic: t}
	rest := asAccount(w.user.RESTConfig(), namespace, account)
	rest.Wrap(func(next http.RoundTripper) http.RoundTripper {
		m.traffic.next = next
		return m.traffic
	})
	scheme, err := fleet.Scheme()
	if err != nil {
		w.Fatal(err)
	}
	log := logr.FromSlogHandler(slog.NewTextHandler(m.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	current.Store(m.log)
	setGlobalLog()
	sameNames := true
	own := config.Namespace
	sets := featuresets.New(own)
	caches := controller.Cache(own, 0, sets)
	if caches.NewInformer, err = nodefeature.Direct(rest, caches.NewInformer); err != nil {
		w.Fatal(err)
	}
	mgr, err := ctrl.NewManager(rest, ctrl.Options{
		Scheme: scheme, Cache: caches, NewCache: compile.NewCache, Metrics: metricsserver.Options{BindAddress: "0"}, Logger: log,
		Controller: ctrlconfig.Controller{SkipNameValidation: &sameNames},
	})
	if err != nil {
		w.Fatal(err)
	}
	if config.Devices, err = devices.Add(mgr, config.Sources(), config.RemovalGracePeriod); err != nil {
		w.Fatal(err)
	}
	if err := controller.Add(mgr, config, sets); err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	controller.WatchSets(ctx, sets, own, mgr)
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	m.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.Errorf("manager: %v", err)
		}
		if w.Failed() {
			w.Logf("the manager's log:\n%s", m.log)
		}
	})
	w.Cleanup(m.stop)
	return m
}

// passes returns the number of passes over nodes that have finished in this process.
func passes() (n int) {
	families, _ := ctrlmetrics.Registry.Gather()
	for _, f := range families {
		if f.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "controller" && l.GetValue() == "node" {
					n += int(m.Counter.GetValue())
				}
			}
		}
	}
	return n
}

// waitForPasses waits until the given number of further passes have finished.
func (w *world) waitForPasses(before, more int) {
	w.Helper()
	testkit.Eventually(w, "passes over the nodes", func(context.Context) error {
		if n := passes() - before; n < more {
			return fmt.Errorf("%d passes, %d wanted", n, more)
		}
		return nil
	})
}

// node creates a Node that is deleted at the end of the test.
func (w *world) node(name string) *corev1.Node {
	w.Helper()
	return testkit.Node(w, w, name)
}

// apply creates an object from YAML that is deleted at the end of the test.
func (w *world) apply(object client.Object, text string) {
	w.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		w.Fatal(err)
	}
	testkit.Create(w, w, object)
}

// publish creates the NodeFeature of a node, with attributes of one feature, test.attr.
func (w *world) publish(namespace, name, node string, attributes, labels map[string]string) *nfdv1alpha1.NodeFeature {
	w.Helper()
	f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: node},
	}}
	f.Spec.Labels = labels
	if attributes != nil {
		f.Spec.Features.Attributes = map[string]nfdv1alpha1.AttributeFeatureSet{"test.attr": {Elements: attributes}}
	}
	testkit.Create(w, w, f)
	return f
}

// rule creates a NodeFeatureRule from the YAML of its spec.
func (w *world) rule(name, spec string) *nfdv1alpha1.NodeFeatureRule {
	w.Helper()
	r := &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &r.Spec); err != nil {
		w.Fatal(err)
	}
	testkit.Create(w, w, r)
	return r
}

// change reads an object and modifies it, and retries on conflicts.
func change[T client.Object](w *world, object T, f func(T)) {
	w.Helper()
	testkit.Eventually(w, "change of "+object.GetName(), func(ctx context.Context) error {
		if err := w.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		f(object)
		return w.Update(ctx, object)
	})
}

// setRule replaces the spec of a rule.
func (w *world) setRule(r *nfdv1alpha1.NodeFeatureRule, spec string) {
	w.Helper()
	change(w, r, func(r *nfdv1alpha1.NodeFeatureRule) {
		r.Spec = nfdv1alpha1.NodeFeatureRuleSpec{}
		if err := yaml.UnmarshalStrict([]byte(spec), &r.Spec); err != nil {
			w.Fatal(err)
		}
	})
}

// becomes waits until an object satisfies a condition, and returns the object. The description of the condition is for the error
// message.
func becomes[T client.Object](w *world, object T, what string, ok func(T) bool) T {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	for {
		err := w.Get(ctx, client.ObjectKeyFromObject(object), object)
		if err == nil && ok(object) {
			return object
		}
		select {
		case <-ctx.Done():
			text, _ := yaml.Marshal(object)
			w.Fatalf("not within %s: %s (%v); it is\n%s", patience, what, err, text)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// patience is how long a test waits for something that normally takes seconds, on a loaded machine with two cores. A passing test
// never waits that long.
const patience = time.Minute

// labels waits until a node has these labels; "" means that the label must be absent.
func (w *world) labels(name string, want map[string]string) *corev1.Node {
	w.Helper()
	return becomes(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, fmt.Sprintf("labels %v", want), func(n *corev1.Node) bool {
		return holds(n.Labels, want)
	})
}

func holds(have, want map[string]string) bool {
	for key, value := range want {
		if !strings.Contains(key, "/") {
			key = feature + key
		}
		if got, there := have[key]; got != value || there != (value != "") {
			return false
		}
	}
	return true
}

// condition waits until an object has a condition with this status whose message contains a string, and returns it.
func (w *world) condition(r *nfdv1alpha1.NodeFeatureRule, kind string, status metav1.ConditionStatus, parts ...string) *metav1.Condition {
	w.Helper()
	becomes(w, r, fmt.Sprintf("%s=%s with %q", kind, status, parts), func(r *nfdv1alpha1.NodeFeatureRule) bool {
		c := meta.FindStatusCondition(r.Status.Conditions, kind)
		if c == nil || c.Status != status || c.ObservedGeneration != r.Generation {
			return false
		}
		return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(c.Reason+" "+c.Message, p) })
	})
	return meta.FindStatusCondition(r.Status.Conditions, kind)
}

// event waits for an Event with this reason on an object, whose message has all parts, and returns the message.
func (w *world) event(object, reason string, parts ...string) (message string) {
	w.Helper()
	testkit.Eventually(w, "event "+reason+" about "+object, func(ctx context.Context) error {
		var list corev1.EventList
		if err := w.List(ctx, &list); err != nil {
			return err
		}
		var others []string
		for _, e := range list.Items {
			ours := e.Namespace == metav1.NamespaceDefault || e.Namespace == w.namespace // others are of other tests
			if !ours || e.InvolvedObject.Name != object || e.Reason != reason {
				continue
			}
			if message = e.Message; !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(message, p) }) {
				return nil
			}
			others = append(others, message)
		}
		return fmt.Errorf("no message has all of %q: %q", parts, others)
	})
	return message
}

// history holds all observed states of a Node.
type history struct {
	name  string
	mu    sync.Mutex
	nodes []*corev1.Node
}

// record watches a Node from now on.
func (w *world) record(name string) *history {
	w.Helper()
	watcher, err := w.Watch(w.Context(), &corev1.NodeList{}, client.MatchingFields{"metadata.name": name})
	if err != nil {
		w.Fatal(err)
	}
	h := &history{name: name}
	w.Cleanup(watcher.Stop)
	go func() {
		for e := range watcher.ResultChan() {
			if n, ok := e.Object.(*corev1.Node); ok && e.Type != watch.Deleted {
				h.mu.Lock()
				h.nodes = append(h.nodes, n)
				h.mu.Unlock()
			}
		}
	}()
	return h
}

// states returns all states of the Node up to the present one, which the watch may receive late.
func (h *history) states(w *world) (nodes []*corev1.Node) {
	w.Helper()
	var now corev1.Node
	err := w.Get(w.Context(), client.ObjectKey{Name: h.name}, &now)
	if client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	testkit.Eventually(w, "the history of "+h.name, func(context.Context) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		nodes = slices.Clone(h.nodes)
		if err == nil && !slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n.ResourceVersion == now.ResourceVersion }) {
			return fmt.Errorf("%d states, none with resourceVersion %s", len(nodes), now.ResourceVersion)
		}
		return nil
	})
	return nodes
}

// always checks that a label was never missing after it was first set.
func (h *history) always(w *world, label string) {
	w.Helper()
	seen := false
	for _, n := range h.states(w) {
		_, there := n.Labels[label]
		if seen && !there {
			w.Errorf("label %s was missing at resourceVersion %s", label, n.ResourceVersion)
		}
		seen = seen || there
	}
}

package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/controller/node/decide"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/controller/rulestats"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/inputs/inputstest"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/servertime"
	"github.com/assay-project/assay/internal/sim/apiserver"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/gather"
	"github.com/assay-project/assay/rules/plan"
	"github.com/assay-project/assay/settings"
)

// namespace is the namespace of the manager and the worker, and prefix the default namespace of labels.
const (
	namespace = "assay"
	prefix    = nfdv1alpha1.FeatureLabelNamespace + "/"
)

type M = map[string]string

// passes calls Reconcile for the node n of a model API server. NodeFeatures are in the cache as soon as they are published.
type passes struct {
	*testing.T
	client.Client
	server *apiserver.Server
	cache  *inputstest.Cache
	clock  *clocktesting.FakeClock
	events *record.FakeRecorder
	r      *Reconciler
	// fail returns the error of a write of a Node, nil to carry it out. The error of lose is that of one that is carried out.
	fail, lose func(body string) error
	// cached is the Node in the controller's cache; nil: the present one.
	cached *corev1.Node
}

// newPasses returns a cluster with the node n, whose controller has compiled no rules.
func newPasses(t *testing.T, change ...func(*Reconciler)) *passes {
	t.Helper()
	w := &passes{
		T: t, server: apiserver.New(apiserver.Resources()...), cache: inputstest.New(), clock: clocktesting.NewFakeClock(time.Now()),
		events: record.NewFakeRecorder(1000), fail: func(string) error { return nil },
		lose: func(string) error { return nil },
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, nodefeature.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	api, err := client.NewWithWatch(&rest.Config{
		Host: "http://model", Transport: w.server.NewClient("controller").Direct(), QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	}, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	w.Client = interceptor.NewClient(api, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := w.failure(o, patch, w.fail); err != nil {
				return err
			}
			return cmp.Or(c.Patch(ctx, o, patch, opts...), w.failure(o, patch, w.lose))
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := w.failure(o, patch, w.fail); err != nil {
				return err
			}
			return cmp.Or(c.SubResource(sub).Patch(ctx, o, patch, opts...), w.failure(o, patch, w.lose))
		},
	})
	w.restart(change...)
	w.do(http.MethodPost, "/api/v1/nodes", apiserver.Object{"metadata": apiserver.Object{"name": "n"}})
	return w
}

func (w *passes) failure(o client.Object, patch client.Patch, of func(body string) error) error {
	if _, node := o.(*corev1.Node); !node {
		return nil
	}
	body, err := patch.Data(o)
	if err != nil {
		return err
	}
	return of(string(body))
}

// cached is a client whose cache has the Node that cached is.
type cached struct {
	client.Client
	w *passes
}

func (c cached) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if node, ok := o.(*corev1.Node); ok && c.w.cached != nil {
		c.w.cached.DeepCopyInto(node)
		return nil
	}
	return c.Client.Get(ctx, key, o, opts...)
}

// restart replaces the controller by a new process that knows no rules.
func (w *passes) restart(change ...func(*Reconciler)) {
	w.Helper()
	registry := assembly.NewRegistry(rules.Options{})
	r := &Reconciler{
		client: cached{w.Client, w}, live: w.Client, events: w.events, clock: w.clock, age: servertime.New(w.clock).Age, registry: registry, stats: rulestats.New(func(string) {}),
		inputs: inputs.New(inputs.Options{
			Policy: gather.Policy{Namespace: namespace}, Grace: settings.DefaultRemovalGracePeriod, Live: w.Client, Clock: w.clock,
		}),
		settings: decide.Settings{Settings: desired.Settings{Policy: plan.Policy{Taints: true}}},
		owners: &owners{
			registry: registry,
			object:   func(string) *assembly.Object { return nil },
			confirm:  func(context.Context, string, string) error { return nil },
			vanished: func(string, string) bool { return false },
		},
		limits: limits{
			breaker: budget.NewBreaker(budget.Default, w.clock), gate: budget.NewGate(budget.Evictions{}, w.clock), changes: flap.NewChanges(w.clock),
		},
		fleet:    &fleet{cache: informers{client: w.Client}, client: w.Client, clock: w.clock},
		holds:    newHolds(w.Client, w.Client, w.clock, "", namespace),
		watchdog: NewWatchdog(w.clock), metrics: sharedMetrics(), memory: newMemory(),
	}
	for _, f := range change {
		f(r)
	}
	r.owners.keep(provenance.NewStore(w.Client, w.Client, namespace, "state"), r.fleet.count)
	if err := r.inputs.Watch(w.Context(), w.cache); err != nil {
		w.Fatal(err)
	}
	w.r = r
}

// do carries out a request of another client.
func (w *passes) do(method, path string, body apiserver.Object) {
	w.Helper()
	if code, answer := w.server.Do("other", method, path, body); code >= http.StatusMultipleChoices {
		w.Fatalf("%s %s: %d %s", method, path, code, answer)
	}
}

// change merges a change of another client into the Node.
func (w *passes) change(sub string, body apiserver.Object) {
	w.Helper()
	w.do(http.MethodPatch, "/api/v1/nodes/n"+sub, body)
}

// label sets labels of the Node as another client.
func (w *passes) label(labels apiserver.Object) {
	w.Helper()
	w.change("", apiserver.Object{"metadata": apiserver.Object{"labels": labels}})
}

const featuresPath = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/" + namespace + "/nodefeatures"

// published returns the NodeFeature of a publisher; that of the worker has the name n.
func published(name string, features map[string]facts.Feature) *nodefeature.NodeFeature {
	f := &nodefeature.NodeFeature{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(name), Generation: 1, Labels: M{nfdv1alpha1.NodeNameLabel: "n"},
	}}
	f.Spec.Features.Facts = facts.FromMap(features, nil)
	return f
}

// attributes returns features with one feature that has attributes.
func attributes(feature string, elements M) map[string]facts.Feature {
	return map[string]facts.Feature{feature: {Attributes: facts.NewAttributes(elements)}}
}

// publish creates or replaces a NodeFeature.
func (w *passes) publish(f *nodefeature.NodeFeature) {
	w.Helper()
	w.publishAs(f, f)
}

// publishAs is like publish, for a cache that holds other features than the API server.
func (w *passes) publishAs(f, cached *nodefeature.NodeFeature) {
	w.Helper()
	w.store(f.Name)
	spec := apiserver.Object{}
	data, err := json.Marshal(map[string]any{"features": f.Spec.Features, "labels": f.Spec.Labels})
	if err = errors.Join(err, json.Unmarshal(data, &spec)); err != nil {
		w.Fatal(err)
	}
	object := maps.Clone(w.server.Get("nodefeatures", f.Namespace, f.Name))
	metadata := maps.Clone(object["metadata"].(apiserver.Object))
	metadata["annotations"] = apiserver.Object{"revision": strconv.FormatInt(w.server.Revision(), 10)} // each call writes another version
	object["metadata"], object["spec"] = metadata, spec
	w.do(http.MethodPut, featuresPath+"/"+f.Name, object)
	stored := w.server.Get("nodefeatures", f.Namespace, f.Name)["metadata"].(apiserver.Object)
	cached.ResourceVersion = stored["resourceVersion"].(string)
	w.cache.Put(cached)
}

// store creates a NodeFeature that the cache does not get, unless it exists.
func (w *passes) store(name string) {
	w.Helper()
	if code, _ := w.server.Do("other", http.MethodGet, featuresPath+"/"+name, nil); code == http.StatusNotFound {
		w.do(http.MethodPost, featuresPath, apiserver.Object{"metadata": apiserver.Object{
			"name": name, "labels": apiserver.Object{nfdv1alpha1.NodeNameLabel: "n"},
		}})
	}
}

// unpublish deletes a NodeFeature.
func (w *passes) unpublish(f *nodefeature.NodeFeature) {
	w.Helper()
	w.do(http.MethodDelete, featuresPath+"/"+f.Name, nil)
	w.cache.Remove(f)
}

// rule makes a NodeFeatureRule active. Its rules are named by their position.
func (w *passes) rule(name string, list ...nfdv1alpha1.Rule) {
	w.Helper()
	for i := range list {
		list[i].Name = string(rune('a' + i))
	}
	object := &nfdv1alpha1.NodeFeatureRule{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: nfdv1alpha1.NodeFeatureRuleSpec{Rules: list},
	}
	set, report := rules.Compile(object, rules.Options{})
	if !report.OK() {
		w.Fatal(report.Errors)
	}
	w.r.registry.Replace([]assembly.Rules{{Set: set, Spec: &object.Spec}}, nil)
	w.r.registry.Ready()
}

// ifUp returns the rule with a condition: the attribute link of the feature test.attr is up.
func ifUp(rule nfdv1alpha1.Rule) nfdv1alpha1.Rule {
	rule.MatchFeatures = nfdv1alpha1.FeatureMatcher{{Feature: "test.attr", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{
		"link": {Op: nfdv1alpha1.MatchIn, Value: []string{"up"}},
	}}}
	return rule
}

func link(value string) *nodefeature.NodeFeature {
	return published("n", attributes("test.attr", M{"link": value}))
}

// pass reconciles the node once, and returns when to do so again.
func (w *passes) pass() time.Duration {
	w.Helper()
	again, err := w.try()
	if err != nil {
		w.Fatal(err)
	}
	return again
}

func (w *passes) try() (time.Duration, error) {
	w.Helper()
	result, err := w.reconcile(w.Context())
	return result.RequeueAfter, err
}

func (w *passes) reconcile(ctx context.Context) (ctrl.Result, error) {
	var node corev1.Node
	if err := w.Get(w.Context(), client.ObjectKey{Name: "n"}, &node); err == nil {
		w.cache.Put(&node)
	}
	return w.r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: "n"}})
}

// informers has an informer of all Nodes of an API server.
type informers struct {
	cache.Cache
	client client.Reader
}

func (i informers) GetInformer(ctx context.Context, _ client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	var list corev1.NodeList
	if err := i.client.List(ctx, &list); err != nil {
		return nil, err
	}
	out := informer{indexer: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, nil)}
	for n := range list.Items {
		if err := out.indexer.Add(&list.Items[n]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

type informer struct {
	cache.Informer
	indexer toolscache.Indexer
}

func (i informer) GetIndexer() toolscache.Indexer { return i.indexer }

// node returns the Node.
func (w *passes) node() *corev1.Node {
	w.Helper()
	var node corev1.Node
	if err := w.Get(w.Context(), client.ObjectKey{Name: "n"}, &node); err != nil {
		w.Fatal(err)
	}
	return &node
}

// says returns the Events since the last call with this reason; empty: all.
func (w *passes) says(reason string) (out []string) {
	for {
		select {
		case e := <-w.events.Events:
			e, _, _ = strings.Cut(e, " map[") // its annotations
			if reason == "" || strings.Contains(e, " "+reason+" ") {
				out = append(out, e)
			}
		default:
			return out
		}
	}
}

// hasLabels checks labels of the Node in the default namespace; an empty value means that the label does not exist.
func (w *passes) hasLabels(when string, want M) {
	w.Helper()
	labels := w.node().Labels
	for name, value := range want {
		if got := labels[prefix+name]; got != value {
			w.Errorf("%s: label %s is %q, want %q", when, name, got, value)
		}
	}
}

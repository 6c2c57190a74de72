//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/faults/proxy"
	"github.com/assay-project/assay/test/scale/fleet"
	"github.com/assay-project/assay/test/stage"
	"github.com/assay-project/assay/webhook"
)

const (
	namespace = stage.Namespace
	// parallelWorkers is the number of workers that publish for the first time at once.
	parallelWorkers = 16
)

var programNames = []string{stage.Controller, stage.Webhook, stage.Extender}

// vendorNamespaces are those of third parties. Whether the last one is trusted changes.
var vendorNamespaces = []string{"vendor-a", "vendor-b", "vendor-c"}

// world is a control plane with the programs of Assay, workers and third parties.
type world struct {
	*cluster.Cluster
	options
	draw   *drawer
	client client.Client
	reader *reader
	link   *proxy.Proxy // between the programs and the API server
	fleets map[form]*fleet.Fleet
	nodes  []*node
	by     map[string]*node           // by name
	at     map[string]stage.Addresses // of the programs

	nodeStore    *stored[corev1.Node]
	nsStore      *stored[corev1.Namespace]
	featureStore *stored[nfdv1alpha1.NodeFeature]
	ruleStore    *stored[nfdv1alpha1.NodeFeatureRule]
	setStore     *stored[assayv1alpha1.NodeFeatureSet]

	first    state // before anything was created
	warnings warnings
	edits    map[string][]time.Time // of nodes and rules, see calm
	rules    map[string]ruleForm    // that exist
	created  int                    // rules so far, for their names
	limit    int                    // of the NodeBaseline
	kubelets map[string]string
	restarts map[string]int
	served   time.Time // when webhook and extender were started; they do not know what was deleted before
	// controlled is when the present controller was ready.
	controlled time.Time
	cleanup    []func()
}

// warnings collects warnings of the API server.
type warnings struct {
	mu  sync.Mutex
	all []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = nil
	return all
}

// newWorld starts everything on a control plane with Assay's CRDs and without Nodes.
func newWorld(ctx context.Context, c *cluster.Cluster, o options) (*world, error) {
	w := &world{
		Cluster: c, options: o, draw: &drawer{Rand: rand.New(rand.NewPCG(o.seed, 1))}, //nolint:gosec // not a secret
		by: map[string]*node{}, at: map[string]stage.Addresses{}, edits: map[string][]time.Time{}, rules: map[string]ruleForm{},
		kubelets: map[string]string{}, restarts: map[string]int{},
		nodeStore:    newStored(nodesPath, func(o *corev1.Node) *metav1.ObjectMeta { return &o.ObjectMeta }),
		nsStore:      newStored(namespacesPath, func(o *corev1.Namespace) *metav1.ObjectMeta { return &o.ObjectMeta }),
		featureStore: newStored(featuresPath, func(o *nfdv1alpha1.NodeFeature) *metav1.ObjectMeta { return &o.ObjectMeta }),
		ruleStore:    newStored(rulesPath, func(o *nfdv1alpha1.NodeFeatureRule) *metav1.ObjectMeta { return &o.ObjectMeta }),
		setStore:     newStored(setsPath, func(o *assayv1alpha1.NodeFeatureSet) *metav1.ObjectMeta { return &o.ObjectMeta }),
	}
	ctx, stop := context.WithCancel(ctx)
	w.cleanup = append(w.cleanup, stop)
	for _, step := range []func(context.Context) error{w.connect, w.follow, w.createObjects, w.startPrograms, w.startWorkers} {
		if err := step(ctx); err != nil {
			w.close()
			return nil, err
		}
	}
	return w, nil
}

// close stops what the control plane does not stop.
func (w *world) close() {
	for _, f := range slices.Backward(w.cleanup) {
		f()
	}
}

// say prints a line.
func (w *world) say(format string, args ...any) { stage.Say(w.out, format, args...) }

// connect connects to the API server.
func (w *world) connect(ctx context.Context) error {
	var err error
	if w.client, err = stage.Client(w.User, &w.warnings); err != nil {
		return err
	}
	if w.reader, err = newReader(w.RESTConfig()); err != nil {
		return err
	}
	w.link, err = proxy.New(ctx, proxy.Options{
		Backends: []*rest.Config{w.RESTConfig()}, CertFile: w.File("apiserver.crt"), KeyFile: w.File("apiserver.key"), Seed: w.seed,
	})
	if err == nil {
		w.cleanup = append(w.cleanup, func() { _ = w.link.Close() })
	}
	return err
}

// createObjects creates what exists before the programs start: Nodes, the objects of third parties and rules.
func (w *world) createObjects(ctx context.Context) error {
	objects := stage.WebhookObjects(namespace, stage.CertSecret, webhook.ConfigurationName)
	for _, name := range vendorNamespaces {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{trustLabel: "true"}}})
	}
	if err := stage.CreateAll(ctx, w.client, append([]client.Object{stage.NamespaceObject(namespace)}, objects...)...); err != nil {
		return err
	}
	for i := range w.nodeCount {
		n := &node{number: i, name: w.draw.name(i), form: forms[w.draw.IntN(len(forms))], vendors: map[string]int{}}
		w.nodes, w.by[n.name] = append(w.nodes, n), n
		if err := w.createNode(ctx, n); err != nil {
			return err
		}
		if err := w.furnish(ctx, n); err != nil {
			return err
		}
	}
	b, err := w.baseline(8)
	if err != nil {
		return err
	}
	if err := w.client.Create(ctx, b); err != nil {
		return err
	}
	order := w.draw.Perm(len(ruleForms))
	for i := range w.ruleCount {
		if err := w.createRule(ctx, ruleForms[order[i%len(order)]]); err != nil {
			return err
		}
	}
	return nil
}

// createNode creates the Node, with new metadata.
func (w *world) createNode(ctx context.Context, n *node) error {
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{"pool": w.draw.one("red", "green", "blue")}},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: w.kubelet()}},
	}
	if err := w.client.Create(ctx, object); err != nil {
		return err
	}
	n.uid = string(object.UID)
	return nil
}

func (w *world) kubelet() string { return fmt.Sprintf("v1.%d.%d", 30+w.draw.IntN(6), w.draw.IntN(10)) }

// furnish draws who publishes features of a new node, and creates what third parties publish.
func (w *world) furnish(ctx context.Context, n *node) error {
	n.employed = n.form == whole || n.form == sharing
	if n.employed {
		n.content = w.draw.content(n.number)
	}
	count := 0
	switch {
	case n.form == foreign:
		count = 1 + w.draw.IntN(3)
	case n.form == labels:
		count = 1
	case n.employed && w.draw.IntN(2) == 0:
		count = 1 + w.draw.IntN(2)
	case n.form == none && w.draw.IntN(2) == 0:
		return w.createStale(ctx, n)
	}
	for range count {
		if err := w.createVendor(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// createStale creates an object in the place of the worker's that must not count: the pod that wrote it outlived another Node of this name.
func (w *world) createStale(ctx context.Context, n *node) error {
	f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: n.name, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: n.name},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.name, UID: "00000000-0000-0000-0000-000000000000"}},
	}}
	c := w.draw.content(n.number)
	f.Spec.Features, f.Spec.Labels = c.Features, c.Labels
	return w.client.Create(ctx, f)
}

// createVendor creates an object of a third party.
func (w *world) createVendor(ctx context.Context, n *node) error {
	where := append([]string{namespace}, vendorNamespaces...)[w.draw.IntN(1+len(vendorNamespaces))]
	name := fmt.Sprintf("%s-%d-%s", w.draw.one("a", "m", "z", "driver"), n.number, w.draw.text(2))
	f := &nfdv1alpha1.NodeFeature{
		ObjectMeta: metav1.ObjectMeta{Namespace: where, Name: name, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: n.name}},
		Spec:       w.draw.vendor(n),
	}
	n.vendors[where+"/"+name] = 0
	return w.client.Create(ctx, f)
}

// createRule creates a rule of a form.
func (w *world) createRule(ctx context.Context, f ruleForm) error {
	name := fmt.Sprintf("r%d", w.created)
	w.created++
	rule, err := w.draw.rule(name, f, w.serials())
	if err != nil {
		return err
	}
	w.rules[name] = f
	return w.client.Create(ctx, rule)
}

// serials returns the present serial numbers of hosts, in the order of nodes.
func (w *world) serials() (out []string) {
	for _, n := range w.nodes {
		if serial := n.content.Features.Attributes["twin.attr"].Elements["serial"]; serial != "" {
			out = append(out, serial)
		}
	}
	return out
}

// settings returns the options of the programs.
func (w *world) settings() string {
	more := ""
	if w.form == "A" {
		more = `, "removalGracePeriod": "1s", "removalBudget": {"nodes": 1000000}`
	}
	return `--options={"enableTaints": true, "restrictions": {"nodeFeatureNamespaceSelector": {"matchLabels": {"` + trustLabel + `": "true"}}}` + more + `}`
}

// startPrograms starts the controller, the webhook and the extender.
func (w *world) startPrograms(ctx context.Context) error {
	admin, err := w.At(w.link.URL())
	if err != nil {
		return err
	}
	for _, name := range programNames {
		args := []string{w.settings()}
		if name == stage.Controller {
			args = append(args, "-v=1")
		}
		w.at[name], err = stage.Manager{Part: name, Path: w.manager, Kubeconfig: admin.Kubeconfig, Args: args}.Start(ctx, w.Cluster)
		if err != nil {
			return err
		}
	}
	return nil
}

// startWorkers starts the publishers of workers. It follows the start of the controller, which announces that it reads feature sets.
func (w *world) startWorkers(ctx context.Context) error {
	marker := &corev1.ConfigMap{}
	err := cluster.WaitFor(ctx, "announcement of feature sets", func(ctx context.Context) error {
		return w.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: assayv1alpha1.FeatureSetMarker}, marker)
	})
	if err != nil {
		return err
	}
	config, err := publish.FromKubeconfig(w.Kubeconfig)
	if err != nil {
		return err
	}
	w.fleets = map[form]*fleet.Fleet{}
	for _, f := range []form{whole, sharing} {
		w.fleets[f] = &fleet.Fleet{
			Config: config, Namespace: namespace, Share: f == sharing, Parallel: parallelWorkers, FirstValue: "0",
			Content: func(n fleet.Node, _ string) publish.Content { return w.by[n.Name].content },
		}
		var workers []fleet.Node
		for _, n := range w.nodes {
			if n.form == f {
				workers = append(workers, n.worker())
			}
		}
		if err := w.fleets[f].Start(ctx, workers, 0, func(int) {}); err != nil {
			return err
		}
		w.cleanup = append(w.cleanup, func() {
			for _, n := range w.nodes {
				w.fleets[f].End([]fleet.Node{n.worker()})
			}
		})
	}
	return nil
}

func (n *node) worker() fleet.Node { return fleet.Node{Number: n.number, Name: n.name, UID: n.uid} }

// follow begins to read what the API server stores.
func (w *world) follow(ctx context.Context) (err error) {
	if w.first, err = w.state(ctx); err != nil {
		return err
	}
	return errors.Join(w.nodeStore.follow(ctx, w.reader), w.nsStore.follow(ctx, w.reader), w.featureStore.follow(ctx, w.reader),
		w.ruleStore.follow(ctx, w.reader), w.setStore.follow(ctx, w.reader))
}

// state returns what the API server stores now.
func (w *world) state(ctx context.Context) (s state, err error) {
	var errs [5]error
	s.nodes, errs[0] = w.nodeStore.list(ctx, w.reader)
	s.namespaces, errs[1] = w.nsStore.list(ctx, w.reader)
	s.features, errs[2] = w.featureStore.list(ctx, w.reader)
	s.rules, errs[3] = w.ruleStore.list(ctx, w.reader)
	s.sets, errs[4] = w.setStore.list(ctx, w.reader)
	return s, errors.Join(errs[:]...)
}

//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
	"github.com/assay-project/assay/test/faults/proxy"
	"github.com/assay-project/assay/test/scale/fleet"
	"github.com/assay-project/assay/test/stage"
	"github.com/assay-project/assay/webhook"
)

const (
	namespace = stage.Namespace
	// secondServer is the name of the second API server.
	secondServer = "second-apiserver"
	// workersLink is the name of the proxy of the workers. Programs have proxies of their own names.
	workersLink = "workers"
)

// Names of the programs.
const (
	controllerA = "controller-a"
	controllerB = "controller-b"
	webhookName = stage.Webhook
	extender    = stage.Extender
)

var (
	controllers  = []string{controllerA, controllerB}
	programNames = []string{controllerA, controllerB, webhookName, extender}
	// servers are the parts of the control plane.
	servers = []string{kube.APIServer, secondServer, kube.Etcd}
)

// world is a control plane with two API servers, all programs of Assay with a proxy for each, and a fleet of workers.
type world struct {
	*cluster.Cluster
	options
	model    *model
	checker  *checker
	client   client.WithWatch // undisturbed
	etcd     *proxy.Relay     // between etcd and the second API server
	clean    *proxy.Proxy     // the way of client
	links    map[string]*proxy.Proxy
	programs map[string]*program
	fleet    *fleet.Fleet
	nodes    []fleet.Node
	turn     int // of nextNode
	// changing are the nodes whose facts change in this round, once for each change.
	changing []fleet.Node
	// changed holds by node when the last changes were on the Node.
	changed map[string][]time.Time
	// deletions counts the deleted NodeFeatures by node.
	deletions map[string]int
	// featureFile is that of the worker of a steady soak.
	featureFile string
	cleanup     []func()
}

// newWorld starts everything on a control plane with Assay's CRDs and without Nodes, and returns once all nodes are labeled.
func newWorld(ctx context.Context, c *cluster.Cluster, o options) (*world, error) {
	w := &world{Cluster: c, options: o, model: newModel(), links: map[string]*proxy.Proxy{}, programs: map[string]*program{}, deletions: map[string]int{}, changed: map[string][]time.Time{}}
	ctx, stop := context.WithCancel(ctx)
	w.cleanup = append(w.cleanup, stop)
	for _, step := range []func(context.Context) error{w.startServers, w.createObjects, w.startWorkers, w.startPrograms, w.settle} {
		if err := step(ctx); err != nil {
			w.close()
			return nil, err
		}
	}
	w.say("%d nodes are labeled", len(w.nodes))
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

// startServers starts the second API server, the proxies and the checker.
func (w *world) startServers(ctx context.Context) error {
	var err error
	if w.etcd, err = proxy.NewRelay(ctx, w.EtcdAddress()); err != nil {
		return err
	}
	w.cleanup = append(w.cleanup, func() { _ = w.etcd.Close() })
	second, err := w.RunAPIServer(ctx, secondServer, w.etcd.Address())
	if err != nil {
		return err
	}
	servers := []*rest.Config{w.RESTConfig(), second.RESTConfig()}
	w.checker = newChecker(w.model.isRemoved)
	for _, config := range servers {
		if err := w.checker.watch(ctx, config); err != nil {
			return err
		}
	}
	link := func(seed int) (*proxy.Proxy, error) {
		p, err := proxy.New(ctx, proxy.Options{
			Backends: servers, CertFile: w.File("apiserver.crt"), KeyFile: w.File("apiserver.key"), Seed: w.seed + uint64(seed), //nolint:gosec // small
		})
		if err == nil {
			w.cleanup = append(w.cleanup, func() { _ = p.Close() })
		}
		return p, err
	}
	if w.clean, err = link(0); err != nil {
		return err
	}
	for i, name := range append([]string{workersLink}, programNames...) {
		if w.links[name], err = link(i + 1); err != nil {
			return err
		}
	}
	admin, err := w.At(w.clean.URL())
	if err != nil {
		return err
	}
	w.client, err = stage.Client(admin, rest.NoWarnings{})
	return err
}

// createObjects creates what exists before the first worker starts.
func (w *world) createObjects(ctx context.Context) error {
	objects := append([]client.Object{stage.NamespaceObject(namespace), factRule(), w.model.editRule()},
		stage.WebhookObjects(namespace, stage.CertSecret, webhook.ConfigurationName)...)
	if err := stage.CreateAll(ctx, w.client, objects...); err != nil {
		return err
	}
	for i := range w.nodeCount {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i)}}
		if err := w.client.Create(ctx, n); err != nil {
			return err
		}
		w.nodes = append(w.nodes, fleet.Node{Number: i, Name: n.Name, UID: string(n.UID)})
		w.model.facts[n.Name] = 0
	}
	return nil
}

// parallelWorkers is the number of workers that publish for the first time at once.
const parallelWorkers = 16

func (w *world) startWorkers(ctx context.Context) error {
	admin, err := w.At(w.links[workersLink].URL())
	if err != nil {
		return err
	}
	config, err := publish.FromKubeconfig(admin.Kubeconfig)
	if err != nil {
		return err
	}
	w.fleet = &fleet.Fleet{Config: config, Namespace: namespace, Content: content, FirstValue: "0", Parallel: parallelWorkers}
	w.cleanup = append(w.cleanup, func() { w.fleet.End(w.nodes) })
	return w.fleet.Start(ctx, w.nodes, 0, func(int) {})
}

// startPrograms starts the controllers, the webhook and the extender, and waits until they are ready.
func (w *world) startPrograms(ctx context.Context) error {
	const settings = `--options={"enableTaints": true, "removalBudget": {"nodes": 1000000}}` // a wrong removal is not held
	for _, name := range programNames {
		admin, err := w.At(w.links[name].URL())
		if err != nil {
			return err
		}
		m := stage.Manager{Name: name, Part: name, Path: w.manager, Kubeconfig: admin.Kubeconfig, Args: []string{settings}, NoWait: true}
		switch name {
		case webhookName:
			m.Args = append(m.Args, w.webhookArgs...)
		case controllerA, controllerB:
			m.Part, m.Args = stage.Controller, append(m.Args, "--enable-leader-election", "-v=1")
		}
		p := &program{world: w, name: name}
		if p.Addresses, err = m.Start(ctx, w.Cluster); err != nil {
			return err
		}
		w.programs[name] = p
		go p.supervise(ctx)
	}
	return nil
}

// settle waits until the Nodes are as wanted and all programs are ready.
func (w *world) settle(ctx context.Context) error {
	if err := w.converge(ctx); err != nil {
		return err
	}
	for _, name := range programNames {
		if err := w.programs[name].ready(ctx); err != nil {
			return fmt.Errorf("%w\n%s", err, w.Log(name))
		}
	}
	return nil
}

// touch changes a fact of each node.
func (w *world) touch(nodes []fleet.Node) {
	for _, n := range nodes {
		w.fleet.Set(n, w.model.fact(n.Name))
	}
}

// calm returns the nodes whose facts can change a number of times more without flapping: the controller would leave the label alone
// for a minute.
func (w *world) calm(changes int) []fleet.Node {
	return slices.DeleteFunc(slices.Clone(w.nodes), func(n fleet.Node) bool {
		past := slices.DeleteFunc(w.changed[n.Name], func(at time.Time) bool { return time.Since(at) > flap.Window })
		w.changed[n.Name] = past
		now := 0
		for _, c := range w.changing {
			if c.Name == n.Name {
				now++
			}
		}
		return len(past)+now+changes >= flap.Limit
	})
}

// seen waits until the checker has seen the present version of each Node.
func (w *world) seen(ctx context.Context) error {
	list := &corev1.NodeList{}
	if err := w.client.List(ctx, list); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.patience, fmt.Errorf("waited %s", w.patience))
	defer cancel()
	return w.checker.reach(ctx, list.Items)
}

// converge waits until the Nodes are as wanted.
func (w *world) converge(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.patience, fmt.Errorf("waited %s", w.patience))
	defer cancel()
	return w.checker.wait(ctx, w.model.want())
}

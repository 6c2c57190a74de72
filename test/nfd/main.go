//go:build linux

// Command nfd compares Assay with Node Feature Discovery, which hack/nfd pins.
//
// Both masters label the nodes of one control plane, one after the other, by the same random features and rules; both workers discover this
// machine. A difference that no row of docs/nfd-differences.md describes is an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

// options are the flags.
type options struct {
	bin                 string
	nodes, rules, group int
	seed                uint64
	form, dir           string
}

// The default sizes. Each form of rule is drawn that many times.
const defaultNodes, defaultRules, defaultGroups = 200, 3, 12

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "`directory` of nfd-master, nfd-worker, assay-manager and assay")
	flag.IntVar(&o.nodes, "nodes", defaultNodes, "`number` of nodes")
	flag.IntVar(&o.rules, "rules", defaultRules, "`number` of rules of each form")
	flag.IntVar(&o.group, "groups", defaultGroups, "`number` of NodeFeatureGroups")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of features and rules")
	flag.StringVar(&o.form, "form", "", "only rules of this `form`")
	flag.StringVar(&o.dir, "dir", "", "new `directory` of the control plane with the logs of the programs; by default a temporary one, which is removed")
	flag.Parse()
	cluster.Main("nfd", o.run)
}

func (o options) run(ctx context.Context) error {
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return err
	}
	o.bin = bin
	return stage.Run(ctx, o.dir, stage.Core, func(c *cluster.Cluster) error { return o.compare(ctx, c) })
}

// compare compares on a control plane with the definitions of both.
func (o options) compare(ctx context.Context, c *cluster.Cluster) error {
	began := time.Now()
	api, err := stage.Client(c.User, nil)
	if err != nil {
		return err
	}
	w := &world{Cluster: c, options: o, api: api, rules: map[string]*nfdv1alpha1.NodeFeatureRule{}, employed: map[string]bool{}, draw: drawer{rand.New(rand.NewPCG(o.seed, 1))}} //nolint:gosec // not a secret
	if err := w.create(ctx); err != nil {
		return err
	}
	failures := 0
	for _, configuration := range slices.Sorted(maps.Keys(configurations)) {
		n, err := w.compareMasters(ctx, configuration)
		if err != nil {
			return err
		}
		failures += n
	}
	n, err := w.compareWorkers(ctx)
	if err != nil {
		return err
	}
	if failures += n; failures > 0 {
		return fmt.Errorf("%d differences that no row describes", failures)
	}
	fmt.Printf("Seed %d: no difference without a row. The comparison took %s.\n", o.seed, time.Since(began).Round(time.Second))
	return nil
}

// world is a control plane and what was created on it.
type world struct {
	*cluster.Cluster
	options
	api    client.Client
	draw   drawer
	nodes  []*corev1.Node
	groups []*nfdv1alpha1.NodeFeatureGroup
	rules  map[string]*nfdv1alpha1.NodeFeatureRule // by name
	// employed are the nodes with a NodeFeature of the worker.
	employed map[string]bool
}

// configurations are files that both masters read.
var configurations = map[string]string{
	"plain": "enableTaints: true\ndenyLabelNs: [denied.example.com, '*.denied.example.net']\nextraLabelNs: [extra.kubernetes.io]\n",
	"restricted": "enableTaints: true\nlabelWhiteList: '[0-9]'\n" +
		"restrictions: {denyNodeFeatureLabels: true, disableAnnotations: true, nodeFeatureNamespaceSelector: {matchExpressions: [{key: team, operator: Exists}]}}\n",
	"resources": "restrictions: {disableExtendedResources: true}\n",
}

// create creates namespaces, NodeFeatures, rules and groups.
func (w *world) create(ctx context.Context) error {
	for name, labels := range map[string]map[string]string{own: {"team": "own"}, trusted: {"team": "a"}, untrusted: nil} {
		if err := w.api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}); err != nil {
			return err
		}
	}
	for i := range w.options.nodes {
		node, features := w.draw.nodeObjects(i)
		w.nodes = append(w.nodes, node)
		for _, f := range features {
			if f.Namespace == own && f.Name == node.Name {
				w.employed[node.Name] = true
			}
			if err := w.api.Create(ctx, f); err != nil {
				return err
			}
		}
	}
	for index := range forms {
		for n := range w.options.rules {
			rule, err := w.draw.rule(index, n)
			if err != nil {
				return err
			}
			if w.form != "" && w.form != forms[index].name {
				continue
			}
			w.rules[rule.Name] = rule
			if err := w.api.Create(ctx, rule.DeepCopy()); err != nil && !apierrors.IsInvalid(err) { // the definition rejects some invalid rules
				return err
			}
		}
	}
	done := &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: "z-done"}}
	done.Spec.Rules = []nfdv1alpha1.Rule{{
		Name: "done", Labels: map[string]string{doneKey: "1"}, ExtendedResources: map[string]string{doneKey: "1"}, Annotations: map[string]string{doneKey: "1"},
	}}
	if err := w.api.Create(ctx, done); err != nil {
		return err
	}
	for n := range w.group {
		group, err := w.draw.group(n)
		if err != nil {
			return err
		}
		w.groups = append(w.groups, group)
	}
	return nil
}

// doneKey is what the last rule gives each node.
const doneKey = "example.com/f99-done1"

// reset creates Nodes and groups again, as they are before a master has run.
func (w *world) reset(ctx context.Context) error {
	if err := w.api.DeleteAllOf(ctx, &corev1.Node{}); err != nil {
		return err
	}
	if err := w.api.DeleteAllOf(ctx, &nfdv1alpha1.NodeFeatureGroup{}, client.InNamespace(own)); err != nil {
		return err
	}
	for _, n := range w.nodes {
		node := n.DeepCopy()
		if err := w.api.Create(ctx, node); err != nil {
			return err
		}
		node.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: *quantity(4)}
		node.Status.Allocatable = node.Status.Capacity
		if err := w.api.Status().Update(ctx, node); err != nil {
			return err
		}
	}
	for _, g := range w.groups {
		if err := w.api.Create(ctx, g.DeepCopy()); err != nil {
			return err
		}
	}
	return nil
}

// master is a program that labels nodes.
type master struct {
	name, path string
	args, env  []string
}

func (w *world) masters(config, port string) (nfd, strict, normal master) {
	nfd = master{
		"NFD", "nfd-master",
		[]string{"-config=" + config, "-kubeconfig=" + w.Kubeconfig, "-port=" + port, "-feature-gates=NodeFeatureGroupAPI=true"},
		[]string{"NODE_NAME=" + w.nodes[0].Name, "KUBERNETES_NAMESPACE=" + own},
	}
	args := []string{"controller", "--config=" + config, "--kubeconfig=" + w.Kubeconfig, "--port=" + port, "--metrics-port=0", "--namespace=" + own}
	return nfd, master{"strict", "assay-manager", append(slices.Clip(args), "--nfd-strict"), nil}, master{"default", "assay-manager", args, nil}
}

// compareMasters runs the three masters with a configuration, and returns the number of differences without a row.
func (w *world) compareMasters(ctx context.Context, configuration string) (int, error) {
	config := filepath.Join(w.Dir(), configuration+".yaml")
	if err := os.WriteFile(config, []byte(configurations[configuration]), 0o600); err != nil {
		return 0, err
	}
	health, err := cluster.FreeAddress()
	if err != nil {
		return 0, err
	}
	_, port, _ := net.SplitHostPort(health)
	nfd, strict, normal := w.masters(config, port)
	want, err := w.result(ctx, nfd, configuration, health)
	if err != nil {
		return 0, err
	}
	failures := 0
	for _, m := range []master{strict, normal} {
		got, err := w.result(ctx, m, configuration, health)
		if err != nil {
			return 0, err
		}
		failures += w.report(configuration+", "+m.name, want, got, m.name == strict.name)
	}
	return failures, nil
}

// result runs a master until the nodes do not change any more, and returns what it gave them.
func (w *world) result(ctx context.Context, m master, configuration, health string) (outputs, error) {
	if err := w.reset(ctx); err != nil {
		return nil, err
	}
	name := configuration + "-" + m.name
	if err := w.Run(ctx, cluster.Program{
		Name: name, Path: filepath.Join(w.bin, m.path), Args: m.args, Env: m.env, Ready: cluster.Answers("http://" + health + "/healthz"),
	}); err != nil {
		return nil, err
	}
	out, err := w.rest(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", name, err, w.Log(name))
	}
	return out, w.Terminate(ctx, name)
}

// calm is how long nothing may have changed for a master to be done: both write a node within a second of its first output.
const calm = 5 * time.Second

// rest waits until all nodes have an output of the last rule and nothing changes.
func (w *world) rest(ctx context.Context) (outputs, error) {
	var last outputs
	var since time.Time
	err := cluster.WaitFor(ctx, "the nodes at rest", func(ctx context.Context) error {
		now, done, err := w.outputs(ctx)
		if err != nil {
			return err
		}
		if !maps.EqualFunc(now, last, maps.Equal[map[string]string]) {
			last, since = now, time.Now()
		}
		switch {
		case done < len(w.nodes):
			return fmt.Errorf("%d of %d nodes have outputs", done, len(w.nodes))
		case time.Since(since) < calm:
			return errors.New("they still change")
		}
		return nil
	})
	return last, err
}

// formOf returns the form of the rule that gives a key; nil if no rule of a form does.
func formOf(key string) *form {
	m := inKey.FindStringSubmatch(key)
	if m == nil {
		return nil
	}
	index, err := strconv.Atoi(m[1])
	if err != nil {
		return nil
	}
	if index >= len(forms) {
		return nil
	}
	return &forms[index]
}

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

const (
	namespace  = stage.Namespace
	controller = stage.Controller
	domain     = "example.com/"
	// stepLabel has the number of the last step whose worker has published and whose controller has labeled the node.
	stepLabel = nfdv1alpha1.FeatureLabelNamespace + "/step"
)

// world is a control plane with an installation.
type world struct {
	*cluster.Cluster
	options
	client  client.WithWatch
	dir     string // of the workers' configurations
	nodes   []string
	step    int
	sharing bool
	running map[string]bool // workers
	history *history
}

// run goes back and forth.
func (o options) run(ctx context.Context, c *cluster.Cluster, dir string) error {
	w := &world{Cluster: c, options: o, dir: dir, sharing: true, running: map[string]bool{}}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := w.prepare(ctx); err != nil {
		return err
	}
	older, newer := release{"the older version", o.from}, release{"the newer version", o.to}
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"install the older version", w.all(w.control(older), w.workers(older), w.rest(&w.history.older))},
		{"upgrade the controller, then the workers", w.all(w.control(newer), w.workers(newer), w.shared, w.rest(&w.history.newer))},
		{"roll back the workers, then the controller", w.all(w.workers(older), w.control(older), w.rest(nil))},
		{"upgrade the workers, then the controller", w.all(w.workers(newer), w.control(newer), w.rest(nil))},
		{"let the workers publish whole objects, roll back the controller, then the workers", w.all(w.share(false), w.whole, w.control(older), w.workers(older), w.rest(nil))},
		{"upgrade both, and share features again", w.all(w.control(newer), w.workers(newer), w.share(true), w.rest(nil))},
	}
	for _, s := range steps {
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
		_, _ = fmt.Fprintf(o.out, "%s: done; %d versions of Nodes so far\n", s.what, w.history.versions())
	}
	return w.history.judge(o.out)
}

// all returns a function that calls others until one fails.
func (w *world) all(do ...func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, f := range do {
			if err := f(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// release is a version of the programs.
type release struct{ name, dir string }

func (r release) program(name string) (string, error) {
	return filepath.Abs(filepath.Join(r.dir, name))
}

// prepare creates the Nodes and rules, and begins to watch.
func (w *world) prepare(ctx context.Context) error {
	var err error
	if w.client, err = stage.Client(w.User, nil); err != nil {
		return err
	}
	objects := []client.Object{stage.NamespaceObject(namespace)}
	for i := range w.options.nodes {
		w.nodes = append(w.nodes, fmt.Sprintf("node-%d", i))
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.nodes[i]}})
	}
	for _, r := range ruleSet() {
		objects = append(objects, r)
	}
	if err := stage.CreateAll(ctx, w.client, objects...); err != nil {
		return err
	}
	w.history, err = follow(ctx, w.client)
	return err
}

// ruleSet returns rules that read features of the machine that all workers share, and those of files that no two nodes have in common.
func ruleSet() []*nfdv1alpha1.NodeFeatureRule {
	rule := func(name, feature string, change func(*nfdv1alpha1.Rule)) *nfdv1alpha1.NodeFeatureRule {
		r := nfdv1alpha1.Rule{Name: name, MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: feature, MatchName: &nfdv1alpha1.MatchExpression{Op: nfdv1alpha1.MatchExists}}}}
		change(&r)
		return &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{r}}}
	}
	return []*nfdv1alpha1.NodeFeatureRule{
		rule("flags", "cpu.cpuid", func(r *nfdv1alpha1.Rule) {
			r.LabelsTemplate = "{{range .cpu.cpuid}}" + domain + "cpuid-{{.Name}}=true\n{{end}}"
		}),
		rule("kernel", "kernel.version", func(r *nfdv1alpha1.Rule) {
			r.Labels = map[string]string{domain + "kernel": "@kernel.version.major"}
			r.Annotations = map[string]string{domain + "kernel": "present"}
		}),
		rule("files", "local.label", func(r *nfdv1alpha1.Rule) {
			r.LabelsTemplate = "{{range .local.label}}" + domain + "file-{{.Name}}={{.Value}}\n{{end}}"
			r.ExtendedResources = map[string]string{domain + "slots": "4"}
		}),
	}
}

// control replaces the controller.
func (w *world) control(r release) func(context.Context) error {
	return func(ctx context.Context) error {
		path, err := r.program("assay-manager")
		if err != nil {
			return err
		}
		if err := w.end(ctx, controller); err != nil {
			return err
		}
		_, err = stage.Manager{Part: stage.Controller, Path: path}.Start(ctx, w.Cluster)
		return err
	}
}

func (w *world) end(ctx context.Context, name string) error {
	if !w.running[name] {
		w.running[name] = true
		return nil
	}
	return w.Terminate(ctx, name)
}

// workers replaces the workers one after another, as the update of a DaemonSet does. Each publishes the number of the step.
func (w *world) workers(r release) func(context.Context) error {
	return func(ctx context.Context) error {
		path, err := r.program("assay-worker")
		if err != nil {
			return err
		}
		w.step++
		for _, node := range w.nodes {
			if err := w.configure(node); err != nil {
				return err
			}
			name, dir := "worker-"+node, filepath.Join(w.dir, node)
			if err := w.end(ctx, name); err != nil {
				return err
			}
			err := w.Run(ctx, cluster.Program{
				Name: name, Path: path, Env: []string{"NODE_NAME=" + node},
				Args: []string{"-kubeconfig=" + w.Kubeconfig, "-namespace=" + namespace, "-config=" + filepath.Join(dir, "worker.conf"), "-config-dir=" + dir, "-port=0"},
			})
			if err != nil {
				return err
			}
			if err := w.published(ctx, node); err != nil {
				return err
			}
		}
		return nil
	}
}

// configure writes the files of a worker: its configuration, and features that no other node has.
func (w *world) configure(node string) error {
	dir := filepath.Join(w.dir, node)
	if err := os.MkdirAll(filepath.Join(dir, "features.d"), 0o755); err != nil {
		return err
	}
	replace := func(name, text string) error {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(dir, "new"), []byte(text), 0o644); err != nil {
			return err
		}
		return os.Rename(filepath.Join(dir, "new"), path)
	}
	return errors.Join(
		replace("worker.conf", fmt.Sprintf("core: {sleepInterval: 1s, shareFeatures: %t}\n", w.sharing)),
		replace("features.d/features", fmt.Sprintf("step=%d\nserial=%s\n", w.step, node)),
	)
}

// share has the running workers share their features, or publish whole objects.
func (w *world) share(share bool) func(context.Context) error {
	return func(ctx context.Context) error {
		w.sharing = share
		w.step++
		for _, node := range w.nodes {
			if err := errors.Join(w.configure(node), w.published(ctx, node)); err != nil {
				return err
			}
		}
		return nil
	}
}

func (w *world) feature(ctx context.Context, node string) (*nfdv1alpha1.NodeFeature, error) {
	f := &nfdv1alpha1.NodeFeature{}
	return f, w.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: node}, f)
}

// published waits until the NodeFeature of a node is of the step.
func (w *world) published(ctx context.Context, node string) error {
	return cluster.WaitFor(ctx, fmt.Sprintf("the NodeFeature of %s of step %d", node, w.step), func(ctx context.Context) error {
		f, err := w.feature(ctx, node)
		if err == nil && f.Spec.Labels["step"] != fmt.Sprint(w.step) {
			err = fmt.Errorf("it is of step %q", f.Spec.Labels["step"])
		}
		return err
	})
}

// shared waits until NodeFeatures name sets: otherwise nothing would be compared.
func (w *world) shared(ctx context.Context) error { return w.names(ctx, "sets", true) }

// whole waits until no NodeFeature names sets, as docs/install.md says.
func (w *world) whole(ctx context.Context) error { return w.names(ctx, "whole objects", false) }

func (w *world) names(ctx context.Context, what string, want bool) error {
	return cluster.WaitFor(ctx, what, func(ctx context.Context) error {
		for _, node := range w.nodes {
			f, err := w.feature(ctx, node)
			if err != nil {
				return err
			}
			if names := len(f.Spec.FeatureSets) > 0; names != want {
				return fmt.Errorf("NodeFeature %s names sets: %t", node, names)
			}
		}
		return nil
	})
}

// rest waits until the Nodes have the labels of the step, and keeps their keys.
func (w *world) rest(into *map[string]map[string]string) func(context.Context) error {
	return func(ctx context.Context) error {
		w.step++ // a change that this controller must have seen
		for _, node := range w.nodes {
			if err := errors.Join(w.configure(node), w.published(ctx, node)); err != nil {
				return err
			}
		}
		return w.history.wait(ctx, w.nodes, fmt.Sprint(w.step), into)
	}
}

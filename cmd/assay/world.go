package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/cluster"
	"github.com/assay-project/assay/cmd/assay/input"
	"github.com/assay-project/assay/internal/feed"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/nodefacts"
)

// worldFlags say where a command looks: at a cluster, or at files that were taken from one.
type worldFlags struct {
	cluster.Flags
	policyFlags
	from []string
}

func (f *worldFlags) register(cmd *cobra.Command) {
	f.Register(cmd.Flags())
	f.policyFlags.register(cmd.Flags())
	cmd.Flags().StringSliceVar(&f.from, "from", nil,
		"look at files instead of a cluster: Nodes, NodeFeatures and NodeFeatureRules as kubectl get -o yaml prints them")
}

// world is what a cluster holds: all that outcomes depend on.
type world struct {
	opt       rules.Options
	own       string
	interner  *facts.Interner
	nodes     map[string]*corev1.Node
	published map[string][]manifest.Published
	rules     []nfdv1alpha1.NodeFeatureRule
	builtIn   []nfdv1alpha1.NodeFeatureRule
	templates map[string]*nfdv1alpha1.NodeFeatureRuleSpec
}

// want says what of the world a command needs, so that it does not read a fleet to look at one node.
type want struct {
	node                   string // empty: all
	selector               string // of Nodes
	nodes, features, rules bool
}

func (f *worldFlags) load(ctx context.Context, w want) (*world, error) {
	opt, err := f.options()
	if err != nil {
		return nil, err
	}
	out := &world{
		opt: opt, own: f.Namespace, interner: feed.Interner(),
		nodes: map[string]*corev1.Node{}, published: map[string][]manifest.Published{},
		templates: map[string]*nfdv1alpha1.NodeFeatureRuleSpec{},
	}
	if len(f.from) > 0 {
		return out, out.readFiles(f.from, w)
	}
	c, err := f.Connect()
	if err != nil {
		return nil, err
	}
	return out, out.readCluster(ctx, c, w)
}

func (w *world) readFiles(names []string, want want) error {
	paths, err := input.Paths(names)
	if err != nil {
		return err
	}
	selector, err := labels.Parse(want.selector)
	if err != nil {
		return fmt.Errorf("the label selector %q: %w", want.selector, err)
	}
	type content struct {
		file      *manifest.File
		published []manifest.Published // of a file with features only
		err       error
	}
	all := make([]content, len(paths))
	input.Each(len(paths), func(i int) {
		c := &all[i]
		var data []byte
		if data, c.err = input.Read(paths[i], nil); c.err != nil {
			return
		}
		if c.published, _ = manifest.FeaturesJSON(data, w.interner); c.published == nil {
			c.file = manifest.Parse(paths[i], data)
		}
	})
	for _, c := range all {
		if c.err != nil {
			return c.err
		}
		w.publish(c.published)
		if c.file == nil {
			continue
		}
		if len(c.file.Problems) > 0 {
			return fmt.Errorf("%s:%s", c.file.Name, c.file.Problems[0])
		}
		for _, d := range c.file.Documents {
			if err := w.document(d, selector); err != nil {
				return fmt.Errorf("%s: %w", c.file.Name, err)
			}
		}
	}
	if want.node != "" {
		for name := range w.nodes {
			if name != want.node {
				delete(w.nodes, name)
			}
		}
		if w.nodes[want.node] == nil && w.published[want.node] == nil {
			return fmt.Errorf("there is no node %s in these files", want.node)
		}
	}
	return nil
}

func (w *world) publish(list []manifest.Published) {
	for _, p := range list {
		w.published[p.Node] = append(w.published[p.Node], p)
	}
}

func (w *world) document(d *manifest.Document, selector labels.Selector) error {
	switch d.Kind {
	case "Node":
		node, err := manifest.DecodeNode(d)
		if err == nil && selector.Matches(labels.Set(node.Labels)) {
			w.nodes[node.Name] = node
		}
		return err
	case manifest.KindFeature:
		list, err := manifest.Publish(d, w.interner)
		w.publish(list)
		return err
	case manifest.KindRule, manifest.KindTemplate:
		var object nfdv1alpha1.NodeFeatureRule
		d.Decode(&object)
		if d.Kind == manifest.KindTemplate {
			w.templates[object.Name] = &object.Spec
		} else {
			w.rules = append(w.rules, object)
		}
	}
	return nil
}

func (w *world) readCluster(ctx context.Context, c *cluster.Client, want want) error {
	if want.nodes {
		if err := w.readNodes(ctx, c, want); err != nil {
			return err
		}
	}
	if want.features {
		list, err := c.Features(ctx, want.node)
		if err != nil {
			return err
		}
		for i := range list {
			f := &list[i]
			name := f.NodeName()
			w.published[name] = append(w.published[name], manifest.Published{
				Node: name, Namespace: f.Namespace, Name: f.Name, Facts: f.Spec.Features.Facts, Labels: f.Spec.Labels,
			})
		}
		delete(w.published, "")
	}
	if !want.rules {
		return nil
	}
	var err error
	if w.rules, err = c.Rules(ctx); err != nil {
		return err
	}
	w.builtIn = c.BuiltIn(ctx, w.own)
	templates, err := c.Templates(ctx)
	for i := range templates {
		w.templates[templates[i].Name] = &templates[i].Spec
	}
	return err
}

func (w *world) readNodes(ctx context.Context, c *cluster.Client, want want) error {
	if want.node != "" {
		node, err := c.Node(ctx, want.node)
		if cluster.IsNotFound(err) {
			return noSuchNode(ctx, c, want.node)
		}
		if err != nil {
			return err
		}
		w.nodes[node.Name] = node
		return nil
	}
	list, err := c.Nodes(ctx, want.selector)
	for i := range list {
		w.nodes[list[i].Name] = &list[i]
	}
	return err
}

func noSuchNode(ctx context.Context, c *cluster.Client, name string) error {
	names, _ := c.Names(ctx, "nodes")
	if near := manifest.Nearest(name, names); near != "" {
		return fmt.Errorf("there is no node %s; did you mean %s?", name, near)
	}
	return fmt.Errorf("there is no node %s", name)
}

// names returns the nodes, sorted: those that exist, and those that something is published about.
func (w *world) names() []string {
	all := map[string]bool{}
	for name := range w.nodes {
		all[name] = true
	}
	if len(w.nodes) == 0 { // files without Nodes
		for name := range w.published {
			all[name] = true
		}
	}
	return sortedKeys(all)
}

// input is everything that rules are given of a node.
func (w *world) input(name string) rules.Input {
	node, known := rules.Node{Name: name}, (*facts.Facts)(nil)
	if object := w.nodes[name]; object != nil {
		node, known = nodeOf(object), nodefacts.Of(object, w.interner)
	}
	return rules.Gather{Namespace: w.own, Keys: &w.opt.Keys, Interner: w.interner}.Input(node, known, w.published[name])
}

// program compiles rules together with what they are based on. Rules that are wrong are left out, as in the cluster; the
// error names them, for a note.
func (w *world) program(list []nfdv1alpha1.NodeFeatureRule) (*rules.Program, error) {
	lookup := func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) { return w.templates[name], nil }
	var sets []*rules.RuleSet
	var errs []error
	for i := range list {
		spec, opt := &list[i].Spec, w.opt
		if len(spec.BasedOn) > 0 {
			whole, err := compose.Assemble(compose.Document{Name: list[i].Name, Spec: spec}, lookup)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", list[i].Name, err))
				continue
			}
			spec, opt.Bases = whole.Spec, whole.RuleBases()
		}
		set, report := rules.CompileSpec(list[i].Name, spec, opt)
		sets = append(sets, set)
		for _, e := range report.Errors {
			errs = append(errs, fmt.Errorf("%s: %s", list[i].Name, e.Error()))
		}
	}
	for i := range w.builtIn {
		opt := w.opt
		opt.BuiltIn = true
		set, _ := rules.Compile(&w.builtIn[i], opt)
		sets = append(sets, set)
	}
	return rules.Link(w.opt, sets...), errors.Join(errs...)
}

// note prints what was left out.
func note(cmd *cobra.Command, err error) {
	if err == nil {
		return
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		fmt.Fprintln(cmd.ErrOrStderr(), "note: left out:", printable(line))
	}
}

// chooseNodes returns the nodes of an expression: names, ranges such as n[1-20], with commas between them.
func chooseNodes(expression string, all []string) ([]string, error) {
	var out []string
	for _, part := range splitOutside(expression) {
		names, err := expandRange(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		found := false
		for _, name := range names {
			if slices.Contains(all, name) {
				out, found = append(out, name), true
			}
		}
		if !found {
			return nil, fmt.Errorf("there is no node %s", part)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	topologyv1alpha2 "github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/cmd/assay/cluster"
	"github.com/assay-project/assay/cmd/assay/input"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/fleet/offline"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/settings"
)

// worldFlags select the input of a command: a cluster, or files from a cluster.
type worldFlags struct {
	cluster.Flags
	settings settingFlags
	from     []string
	notes    func() io.Writer
}

func (f *worldFlags) register(cmd *cobra.Command) {
	f.notes = cmd.ErrOrStderr
	f.Register(cmd.Flags())
	f.settings.register(cmd.Flags())
	cmd.Flags().StringSliceVar(&f.from, "from", nil,
		"read files instead of a cluster: Nodes, NodeFeatures, NodeFeatureRules and the objects that these refer to, as kubectl get -o yaml prints them")
}

// world holds everything in a cluster that outcomes depend on.
type world struct {
	where     string // the cluster or the files, for messages
	settings  *settings.Settings
	installed bool          // the settings are those of the controller in the cluster, or the webhook
	opt       rules.Options // of the settings
	own       string
	nodes     map[string]*corev1.Node // nil: Nodes are not read, or no file has one
	objects   offline.Objects
	fleet     *offline.Fleet // of the objects, once all are read
	rules     []nfdv1alpha1.NodeFeatureRule
	// definition is the status of the definition of NodeFeatureRules; whole if it was not read.
	definition definition.Status
	builtIn    []nfdv1alpha1.NodeFeatureRule
	templates  map[string]*nfdv1alpha1.NodeFeatureRuleSpec
	kept       store  // Secrets and ConfigMaps in Assay's own namespace
	noDevices  string // why no node can have devices of DRA drivers; empty: they can, or nothing needs to know
	// unread says what the user may not read, by resource, for a command that goes on without it.
	unread map[string]error

	scheduling filedScheduling              // of files
	filed      filedObjects                 // of files
	baselines  []assayv1alpha1.NodeBaseline // of files

	sharing int // number of NodeFeatures that name feature sets
}

// filedScheduling are the objects in files that only the scheduling of pods depends on.
type filedScheduling struct {
	pods      []corev1.Pod
	workloads []filedWorkload
	requests  []assayv1alpha1.NodeFeatureRequest
	policies  []assayv1alpha1.NodeFeatureSchedulingPolicy
}

// filedObjects are the objects in files that outcomes do not depend on, which assay ui shows.
type filedObjects struct {
	groups     []nfdv1alpha1.NodeFeatureGroup
	shapes     []assayv1alpha1.NodeShape
	sets       []assayv1alpha1.NodeFeatureSet
	topologies []topologyv1alpha2.NodeResourceTopology
	events     []corev1.Event
}

// want selects the parts of the world that a command needs, so that it does not read all nodes to show one.
type want struct {
	node                   string // empty: all nodes
	selector               string // label selector of Nodes
	nodes, features, rules bool
	// devices reads the devices of DRA drivers although no rule of the cluster reads them.
	devices bool
	// partial goes on without what the user may not read; world.unread has it.
	partial bool
}

// withoutForbidden returns an error, unless the user may not read a resource and the command goes on without it.
func (w *world) withoutForbidden(want want, resource string, err error) error {
	if !want.partial || !cluster.IsForbidden(err) {
		return err
	}
	w.unread[resource] = err
	return nil
}

// newWorld returns a world without objects. Own is Assay's namespace.
func newWorld(s *settings.Settings, own string) *world {
	return &world{
		definition: definition.Status{State: definition.Whole},
		settings:   s, opt: s.Rules(), own: own, unread: map[string]error{},
		templates: map[string]*nfdv1alpha1.NodeFeatureRuleSpec{},
	}
}

// empty returns a world with the settings of the flags only.
func (f *worldFlags) empty() (*world, error) {
	s, err := f.settings.over(f.notes(), unknownInstallation())
	return newWorld(s, cmp.Or(f.AssayNamespace, cluster.DefaultNamespace)), err
}

// settle decides which NodeFeatures count, once all objects are read, and prints which do not.
func (w *world) settle(notes io.Writer) {
	w.objects.Nodes = w.nodes
	w.fleet = offline.New(w.policy(), w.objects)
	for _, text := range w.fleet.Notes() {
		fmt.Fprintln(notes, "note:", printable(text))
	}
}

// policy returns the settings that inputs depend on.
func (w *world) policy() offline.Policy { return w.settings.Gather(w.own) }

func (f *worldFlags) load(ctx context.Context, w want) (*world, error) {
	if len(f.from) > 0 {
		out, err := f.empty()
		if err != nil {
			return nil, err
		}
		out.where = strings.Join(f.from, " ")
		if err := out.readFiles(f.from, w); err != nil {
			return nil, err
		}
		out.settle(f.notes())
		return out, out.selected(w)
	}
	c, err := f.Connect()
	if err != nil {
		return nil, err
	}
	own := f.Installation(ctx, c)
	s, known, err := f.controller(ctx, c, own)
	if err != nil {
		return nil, err
	}
	if s, err = f.settings.over(f.notes(), s); err != nil {
		return nil, err
	}
	out := newWorld(s, own)
	out.where, out.kept, out.installed = c.Server(), c, known
	if err := out.readCluster(ctx, c, w, f.notes()); err != nil {
		return nil, err
	}
	out.settle(f.notes())
	return out, out.selected(w)
}

// selected returns an error if a label selector selects no Node.
func (w *world) selected(want want) error {
	switch {
	case want.selector == "" || len(w.nodes) > 0:
		return nil
	case w.nodes == nil:
		return noNodes(fmt.Sprintf("the label selector %s: %s has no Nodes, only what is published for them", want.selector, w.where))
	}
	return noNodes("the label selector " + want.selector)
}

// controller returns the settings of the controller in the cluster, and whether they are known: the user may not be allowed to read them.
func (f *worldFlags) controller(ctx context.Context, c *cluster.Client, own string) (s *settings.Settings, known bool, err error) {
	given := settings.Default()
	_, _ = f.settings.Change(given) // for its instance name
	found, err := readInstalled(ctx, c, own, "controller", given.Instance)
	switch {
	case cluster.IsForbidden(err):
		hint := ""
		if f.AssayNamespace == "" {
			hint = "; pass --assay-namespace if Assay is not in " + own
		}
		fmt.Fprintf(f.notes(), "note: the settings of the controller are unknown: %s; those of the flags apply%s\n", printable(err.Error()), hint)
		return unknownInstallation(), false, nil
	case err != nil:
		return nil, false, err
	case found == nil:
		return unknownInstallation(), false, nil
	}
	return found.Settings, true, nil
}

func (w *world) readFiles(names []string, want want) error {
	kept := &filed{secrets: map[string]*corev1.Secret{}, configMaps: map[string]*corev1.ConfigMap{}}
	w.kept = kept
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
		published []manifest.Published // of files in JSON
		sets      []assayv1alpha1.NodeFeatureSet
		err       error
	}
	all := make([]content, len(paths))
	input.Each(len(paths), func(i int) {
		c := &all[i]
		var data []byte
		if data, c.err = input.Read(paths[i], nil); c.err != nil {
			return
		}
		if c.published, _ = manifest.FeaturesJSON(data, nodefeature.Interner()); c.published == nil {
			c.file = manifest.Parse(paths[i], data)
		} else if c.file, c.err = manifest.OthersJSON(paths[i], data); c.err != nil {
			return
		}
		c.sets, c.err = featureSets(c.file)
	})
	sets := &w.filed.sets
	for i, c := range all {
		if c.err != nil {
			return c.err
		}
		w.publish(paths[i], c.published)
		*sets = append(*sets, c.sets...)
		if len(c.file.Problems) > 0 {
			return fmt.Errorf("%s:%w", c.file.Name, c.file.Problems[0])
		}
		for _, d := range c.file.Documents {
			if d.Kind == "" { // features without an object
				if list, err := manifest.Publish(d, nodefeature.Interner()); err == nil {
					w.publish(c.file.Name, list)
				}
				continue
			}
			if err := w.document(d, kept, selector); err != nil {
				return fmt.Errorf("%s: %w", c.file.Name, err)
			}
		}
	}
	if want.node != "" {
		known := slices.Sorted(maps.Keys(w.nodes)) // the suggestion is the first of equally close names
		for _, p := range w.objects.Published {
			known = append(known, p.Node)
		}
		for name := range w.nodes {
			if name != want.node {
				delete(w.nodes, name)
			}
		}
		w.objects.Published = slices.DeleteFunc(w.objects.Published, func(p offline.Published) bool { return p.Node != want.node })
		if w.nodes[want.node] == nil && (w.nodes != nil || len(w.objects.Published) == 0) {
			return notFound(corev1.Resource("nodes"), want.node, didYouMean(want.node, known))
		}
	}
	return resolve(w.objects.Published, *sets)
}

// hasNodes notes that Nodes are read, although there may be none.
func (w *world) hasNodes() {
	if w.nodes == nil {
		w.nodes = map[string]*corev1.Node{}
	}
}

// publish adds features from a file. Features without a node are assigned to a node with the name of the file.
func (w *world) publish(file string, list []manifest.Published) {
	for _, p := range list {
		if p.Node == "" {
			p.Node = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		}
		w.objects.Published = append(w.objects.Published, p)
	}
}

func (w *world) document(d *manifest.Document, kept *filed, selector labels.Selector) error {
	switch d.Kind {
	case "Secret":
		return kept.addSecret(d)
	case "ConfigMap":
		m, err := kept.addConfigMap(d)
		if err == nil && m.Name == cluster.BuiltInName && m.Namespace == w.own {
			w.builtIn = cluster.BuiltIn(m)
		}
		return err
	case "Namespace":
		var ns corev1.Namespace
		err := manifest.DecodeObject(d, &ns)
		w.namespace(&ns)
		return err
	case "Pod":
		err := collect(d, &w.scheduling.pods)
		inNamespace(&w.scheduling.pods[len(w.scheduling.pods)-1].ObjectMeta)
		return err
	case manifest.KindRequest:
		err := collect(d, &w.scheduling.requests)
		inNamespace(&w.scheduling.requests[len(w.scheduling.requests)-1].ObjectMeta)
		return err
	case manifest.KindPolicy:
		return collect(d, &w.scheduling.policies)
	case manifest.KindBaseline:
		return collect(d, &w.baselines)
	case manifest.KindGroup:
		return collect(d, &w.filed.groups)
	case manifest.KindShape:
		return collect(d, &w.filed.shapes)
	case topologyv1alpha2.NodeResourceTopologyGVK.Kind:
		return collect(d, &w.filed.topologies)
	case "Event":
		return collect(d, &w.filed.events)
	case "ResourceSlice":
		return collect(d, &w.objects.Slices)
	case "DeviceTaintRule":
		return collect(d, &w.objects.Taints)
	case "Node":
		node, err := manifest.DecodeNode(d)
		if err != nil {
			return err
		}
		w.hasNodes()
		if selector.Matches(labels.Set(node.Labels)) {
			w.nodes[node.Name] = node
		}
		return nil
	case manifest.KindFeature:
		list, err := manifest.Publish(d, nodefeature.Interner())
		w.publish(d.File().Name, list)
		return err
	case manifest.KindRule, manifest.KindTemplate:
		var object nfdv1alpha1.NodeFeatureRule
		d.Decode(&object)
		if d.Kind == manifest.KindTemplate {
			w.templates[object.Name] = &object.Spec
		} else {
			w.rules = append(w.rules, object)
		}
	default:
		return w.scheduling.workload(d)
	}
	return nil
}

// inNamespace gives an object without a namespace the one that kubectl would apply it in.
func inNamespace(m *metav1.ObjectMeta) { m.Namespace = cmp.Or(m.Namespace, metav1.NamespaceDefault) }

// collect decodes a document and appends its object to a list.
func collect[T any](d *manifest.Document, list *[]T) error {
	var object T
	err := manifest.DecodeObject(d, &object)
	*list = append(*list, object)
	return err
}

// publishes returns a function that reports whether a node publishes a feature, or a rule derives it, as in the webhook.
func (w *world) publishes(program *rules.Program) func(feature string) (published, known bool) {
	features := map[string]bool{}
	for _, p := range w.fleet.All() {
		for _, name := range p.Facts.Names() {
			features[strings.ToLower(name)] = true
		}
	}
	if len(features) == 0 { // the workers may not have published yet
		return func(string) (bool, bool) { return false, false }
	}
	for _, set := range program.Sets() {
		for _, name := range set.Derives() {
			features[name] = true
		}
	}
	return func(feature string) (bool, bool) { return features[feature] || facts.FromCluster(feature), true }
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

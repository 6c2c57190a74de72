// Package world has what outcomes depend on: the objects of a cluster or of files, with the settings of the controller.
package world

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
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/input"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/fleet/offline"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/settings"
)

// Options select the input of a command: a cluster, or files from a cluster.
type Options struct {
	cluster.Flags
	Settings SettingFlags
	From     []string
	Notes    func() io.Writer
}

// AddFlags adds the flags that choose a cluster or files, and the settings of the controller.
func (f *Options) AddFlags(cmd *cobra.Command) {
	f.Notes = cmd.ErrOrStderr
	f.Register(cmd.Flags())
	f.Settings.AddFlags(cmd.Flags())
	cmd.Flags().StringSliceVar(&f.From, "from", nil,
		"read files instead of a cluster: Nodes, NodeFeatures, NodeFeatureRules and the objects that these refer to, as kubectl get -o yaml prints them")
}

// World holds everything in a cluster that outcomes depend on.
type World struct {
	Where     string // the cluster or the files, for messages
	Settings  *settings.Settings
	Installed bool          // the settings are those of the controller in the cluster, or the webhook
	Limits    rules.Options // of the settings
	Own       string
	Nodes     map[string]*corev1.Node // nil: Nodes are not read, or no file has one
	Objects   offline.Objects
	Fleet     *offline.Fleet // of the objects, once all are read
	Rules     []nfdv1alpha1.NodeFeatureRule
	// definition is the status of the definition of NodeFeatureRules; whole if it was not read.
	definition definition.Status
	BuiltIn    []nfdv1alpha1.NodeFeatureRule
	Templates  map[string]*nfdv1alpha1.NodeFeatureRuleSpec
	Kept       store  // Secrets and ConfigMaps in Assay's own namespace
	NoDevices  string // why no node can have devices of DRA drivers; empty: they can, or nothing needs to know
	// Unread says what the user may not read, by resource, for a command that goes on without it.
	Unread map[string]error

	Scheduling FiledScheduling              // of files
	Filed      FiledObjects                 // of files
	Baselines  []assayv1alpha1.NodeBaseline // of files

	Sharing int // number of NodeFeatures that name feature sets
}

// FiledScheduling are the objects in files that only the scheduling of pods depends on.
type FiledScheduling struct {
	Pods      []corev1.Pod
	Workloads []FiledWorkload
	Requests  []assayv1alpha1.NodeFeatureRequest
	Policies  []assayv1alpha1.NodeFeatureSchedulingPolicy
}

// FiledObjects are the objects in files that outcomes do not depend on, which assay ui shows.
type FiledObjects struct {
	Groups     []nfdv1alpha1.NodeFeatureGroup
	Shapes     []assayv1alpha1.NodeShape
	Sets       []assayv1alpha1.NodeFeatureSet
	Topologies []topologyv1alpha2.NodeResourceTopology
	Events     []corev1.Event
}

// Want selects the parts of the world that a command needs, so that it does not read all nodes to show one.
type Want struct {
	Node                   string // empty: all nodes
	Selector               string // label selector of Nodes
	Nodes, Features, Rules bool
	// Devices reads the devices of DRA drivers although no rule of the cluster reads them.
	Devices bool
	// Partial goes on without what the user may not read; World.Unread has it.
	Partial bool
}

// withoutForbidden returns an error, unless the user may not read a resource and the command goes on without it.
func (w *World) withoutForbidden(want Want, resource string, err error) error {
	if !want.Partial || !cluster.IsForbidden(err) {
		return err
	}
	w.Unread[resource] = err
	return nil
}

// New returns a world without objects. Own is Assay's namespace.
func New(s *settings.Settings, own string) *World {
	return &World{
		definition: definition.Status{State: definition.Whole},
		Settings:   s, Limits: s.Rules(), Own: own, Unread: map[string]error{},
		Templates: map[string]*nfdv1alpha1.NodeFeatureRuleSpec{},
	}
}

// Empty returns a world with the settings of the flags only.
func (f *Options) Empty() (*World, error) {
	s, err := f.Settings.Over(f.Notes(), UnknownInstallation())
	return New(s, cmp.Or(f.AssayNamespace, cluster.DefaultNamespace)), err
}

// Settle decides which NodeFeatures count, once all objects are read, and prints which do not.
func (w *World) Settle(notes io.Writer) {
	w.Objects.Nodes = w.Nodes
	w.Fleet = offline.New(w.Policy(), w.Objects)
	for _, text := range w.Fleet.Notes() {
		fmt.Fprintln(notes, "note:", clip.Printable(text))
	}
}

// Policy returns the settings that inputs depend on.
func (w *World) Policy() offline.Policy { return w.Settings.Gather(w.Own) }

// Load reads what a command needs.
func (f *Options) Load(ctx context.Context, w Want) (*World, error) {
	if len(f.From) > 0 {
		out, err := f.Empty()
		if err != nil {
			return nil, err
		}
		out.Where = strings.Join(f.From, " ")
		if err := out.ReadFiles(f.From, w); err != nil {
			return nil, err
		}
		out.Settle(f.Notes())
		return out, out.selected(w)
	}
	c, err := f.Connect()
	if err != nil {
		return nil, err
	}
	own := f.Installation(ctx, c)
	s, known, err := f.Controller(ctx, c, own)
	if err != nil {
		return nil, err
	}
	if s, err = f.Settings.Over(f.Notes(), s); err != nil {
		return nil, err
	}
	out := New(s, own)
	out.Where, out.Kept, out.Installed = c.Server(), c, known
	if err := out.ReadCluster(ctx, c, w, f.Notes()); err != nil {
		return nil, err
	}
	out.Settle(f.Notes())
	return out, out.selected(w)
}

// selected returns an error if a label selector selects no Node.
func (w *World) selected(want Want) error {
	switch {
	case want.Selector == "" || len(w.Nodes) > 0:
		return nil
	case w.Nodes == nil:
		return cli.NoNodes(fmt.Sprintf("the label selector %s: %s has no Nodes, only what is published for them", want.Selector, w.Where))
	}
	return cli.NoNodes("the label selector " + want.Selector)
}

// Controller returns the settings of the controller in the cluster, and whether they are known: the user may not be allowed to read them.
func (f *Options) Controller(ctx context.Context, c *cluster.Client, own string) (s *settings.Settings, known bool, err error) {
	given := settings.Default()
	_, _ = f.Settings.Change(given) // for its instance name
	found, err := ReadInstalled(ctx, c, own, "controller", given.Instance)
	switch {
	case cluster.IsForbidden(err):
		hint := ""
		if f.AssayNamespace == "" {
			hint = "; pass --assay-namespace if Assay is not in " + own
		}
		fmt.Fprintf(f.Notes(), "note: the settings of the controller are unknown: %s; those of the flags apply%s\n", clip.Printable(err.Error()), hint)
		return UnknownInstallation(), false, nil
	case err != nil:
		return nil, false, err
	case found == nil:
		return UnknownInstallation(), false, nil
	}
	return found.Settings, true, nil
}

// ReadFiles adds the objects of files.
func (w *World) ReadFiles(names []string, want Want) error {
	kept := &filed{secrets: map[string]*corev1.Secret{}, configMaps: map[string]*corev1.ConfigMap{}}
	w.Kept = kept
	paths, err := input.Paths(names)
	if err != nil {
		return err
	}
	selector, err := labels.Parse(want.Selector)
	if err != nil {
		return fmt.Errorf("the label selector %q: %w", want.Selector, err)
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
	sets := &w.Filed.Sets
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
	if want.Node != "" {
		known := slices.Sorted(maps.Keys(w.Nodes)) // the suggestion is the first of equally close names
		for _, p := range w.Objects.Published {
			known = append(known, p.Node)
		}
		for name := range w.Nodes {
			if name != want.Node {
				delete(w.Nodes, name)
			}
		}
		w.Objects.Published = slices.DeleteFunc(w.Objects.Published, func(p offline.Published) bool { return p.Node != want.Node })
		if w.Nodes[want.Node] == nil && (w.Nodes != nil || len(w.Objects.Published) == 0) {
			return cli.NotFound(corev1.Resource("nodes"), want.Node, cli.DidYouMean(want.Node, known))
		}
	}
	return resolve(w.Objects.Published, *sets)
}

// hasNodes notes that Nodes are read, although there may be none.
func (w *World) hasNodes() {
	if w.Nodes == nil {
		w.Nodes = map[string]*corev1.Node{}
	}
}

// publish adds features from a file. Features without a node are assigned to a node with the name of the file.
func (w *World) publish(file string, list []manifest.Published) {
	for _, p := range list {
		if p.Node == "" {
			p.Node = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		}
		w.Objects.Published = append(w.Objects.Published, p)
	}
}

func (w *World) document(d *manifest.Document, kept *filed, selector labels.Selector) error {
	switch d.Kind {
	case "Secret":
		return kept.addSecret(d)
	case "ConfigMap":
		m, err := kept.addConfigMap(d)
		if err == nil && m.Name == cluster.BuiltInName && m.Namespace == w.Own {
			w.BuiltIn = cluster.BuiltIn(m)
		}
		return err
	case "Namespace":
		var ns corev1.Namespace
		err := manifest.DecodeObject(d, &ns)
		w.namespace(&ns)
		return err
	case "Pod":
		err := collect(d, &w.Scheduling.Pods)
		inNamespace(&w.Scheduling.Pods[len(w.Scheduling.Pods)-1].ObjectMeta)
		return err
	case manifest.KindRequest:
		err := collect(d, &w.Scheduling.Requests)
		inNamespace(&w.Scheduling.Requests[len(w.Scheduling.Requests)-1].ObjectMeta)
		return err
	case manifest.KindPolicy:
		return collect(d, &w.Scheduling.Policies)
	case manifest.KindBaseline:
		return collect(d, &w.Baselines)
	case manifest.KindGroup:
		return collect(d, &w.Filed.Groups)
	case manifest.KindShape:
		return collect(d, &w.Filed.Shapes)
	case topologyv1alpha2.NodeResourceTopologyGVK.Kind:
		return collect(d, &w.Filed.Topologies)
	case "Event":
		return collect(d, &w.Filed.Events)
	case "ResourceSlice":
		return collect(d, &w.Objects.Slices)
	case "DeviceTaintRule":
		return collect(d, &w.Objects.Taints)
	case "Node":
		node, err := manifest.DecodeNode(d)
		if err != nil {
			return err
		}
		w.hasNodes()
		if selector.Matches(labels.Set(node.Labels)) {
			w.Nodes[node.Name] = node
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
			w.Templates[object.Name] = &object.Spec
		} else {
			w.Rules = append(w.Rules, object)
		}
	default:
		return w.Scheduling.workload(d)
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

// Publishes returns a function that reports whether a node publishes a feature, or a rule derives it, as in the webhook.
func (w *World) Publishes(program *rules.Program) func(feature string) (published, known bool) {
	features := map[string]bool{}
	for _, p := range w.Fleet.All() {
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

// Labels returns the keys of the labels that a Node has or that a rule names.
func (w *World) Labels(program *rules.Program) []string {
	found := map[string]bool{}
	for _, node := range w.Nodes {
		for key := range node.Labels {
			found[key] = true
		}
	}
	for _, key := range program.KeyNames() {
		found[key] = true
	}
	return facts.SortedKeys(found)
}

// Note prints what was left out.
func Note(cmd *cobra.Command, err error) {
	if err == nil {
		return
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		fmt.Fprintln(cmd.ErrOrStderr(), "note: left out:", clip.Printable(line))
	}
}

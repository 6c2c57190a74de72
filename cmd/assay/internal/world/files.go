package world

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/input"
	"github.com/assay-project/assay/cmd/assay/internal/workload"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/fleet/offline"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/manifest"
)

// ReadInput returns the input of rules for a node from files of features and the file of its Node, which may be empty.
func ReadInput(cmd *cobra.Command, policy offline.Policy, features []string, metadata, node string) (rules.Input, error) {
	list, err := readFeatures(features, cmd.InOrStdin())
	if err != nil {
		return rules.Input{}, err
	}
	name, list, err := chooseNode(node, list)
	if err != nil {
		return rules.Input{}, err
	}
	objects := offline.Objects{}
	if metadata != "" {
		data, err := input.Read(metadata, cmd.InOrStdin())
		if err != nil {
			return rules.Input{}, err
		}
		object, err := manifest.Node(metadata, data)
		if err != nil {
			return rules.Input{}, err
		}
		if node == "" {
			name = object.Name
		}
		object.Name = name
		objects.Nodes = map[string]*corev1.Node{name: object}
	}
	for _, p := range list {
		p.Node = name
		objects.Published = append(objects.Published, p)
	}
	return evaluated(cmd, policy, objects, name), nil
}

// evaluated returns the input of rules for a node, and prints which NodeFeatures do not count for it.
func evaluated(cmd *cobra.Command, policy offline.Policy, objects offline.Objects, node string) rules.Input {
	fleet := offline.New(policy, objects)
	for _, text := range fleet.Notes() {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", clip.Printable(text))
	}
	return fleet.Input(node)
}

func readFeatures(files []string, stdin io.Reader) ([]manifest.Published, error) {
	in := nodefeature.Interner()
	paths, err := input.Paths(files)
	if err != nil {
		return nil, err
	}
	var list []manifest.Published
	var sets []assayv1alpha1.NodeFeatureSet
	for _, path := range paths {
		data, err := input.Read(path, stdin)
		if err != nil {
			return nil, err
		}
		more, err := manifest.Features(path, data, in)
		if err == nil && !shares(more) {
			list = append(list, more...)
			continue
		}
		found, wrong := featureSets(manifest.Parse(path, data))
		if wrong != nil || err != nil && len(found) == 0 {
			return nil, cmp.Or(wrong, err)
		}
		list, sets = append(list, more...), append(sets, found...)
	}
	return list, resolve(list, sets)
}

// shares reports whether one of the NodeFeatures names feature sets.
func shares(list []manifest.Published) bool {
	return slices.ContainsFunc(list, func(p manifest.Published) bool { return len(p.FeatureSets) > 0 })
}

// featureSets returns the NodeFeatureSets of a file.
func featureSets(file *manifest.File) (out []assayv1alpha1.NodeFeatureSet, err error) {
	for _, d := range file.Documents {
		if d.Kind != assayv1alpha1.NodeFeatureSetGVK.Kind {
			continue
		}
		var set assayv1alpha1.NodeFeatureSet
		if err := manifest.DecodeObject(d, &set); err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name, err)
		}
		out = append(out, set)
	}
	return out, nil
}

// resolve adds the features of sets to what NodeFeatures of their namespace publish.
func resolve(list []manifest.Published, sets []assayv1alpha1.NodeFeatureSet) error {
	stores := map[string]*featuresets.Store{}
	in := func(namespace string) *featuresets.Store {
		if stores[namespace] == nil {
			stores[namespace] = featuresets.New(namespace)
		}
		return stores[namespace]
	}
	for i := range sets {
		in(sets[i].Namespace).Put(&sets[i])
	}
	for i := range list {
		p := &list[i]
		f := &nodefeature.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace}}
		f.Spec.Features.Facts, f.Spec.FeatureSets = p.Facts, p.FeatureSets
		all, missing := in(p.Namespace).Resolve(f)
		if len(missing) > 0 {
			return fmt.Errorf("NodeFeature %s/%s names NodeFeatureSets that are not in the files: %s; add the output of kubectl get nodefeaturesets -n %[1]s -o yaml",
				cmp.Or(p.Namespace, cluster.DefaultNamespace), p.Name, strings.Join(missing, ", "))
		}
		p.Facts, p.FeatureSets = all.Spec.Features.Facts, nil
	}
	return nil
}

// unnamed is the default name of a node.
const unnamed = "node"

// chooseNode selects what is published about a node. The name may be empty only if there is a single node. If nothing is published
// about the named node, chooseNode returns everything, so that users can evaluate features as if they were on another node.
func chooseNode(name string, list []manifest.Published) (string, []manifest.Published, error) {
	about := map[string]bool{}
	var mine []manifest.Published
	for _, p := range list {
		if p.Node != "" {
			about[p.Node] = true
		}
		if p.Node == name || p.Node == "" {
			mine = append(mine, p)
		}
	}
	switch {
	case name != "" && about[name]:
		return name, mine, nil
	case len(about) > 1:
		return "", nil, fmt.Errorf("the features are about %d nodes; choose one: --node %s", len(about), facts.SortedKeys(about)[0])
	case name != "":
		for i := range list {
			list[i].Owners = nil // they belong to the other node
		}
		return name, list, nil
	case len(about) == 1:
		return facts.SortedKeys(about)[0], list, nil
	}
	return unnamed, list, nil
}

// FiledWorkload is an object with a template in a file.
type FiledWorkload struct {
	workload.Target
	Pod corev1.Pod
}

// workload keeps an object with a template, if the document is one.
func (s *FiledScheduling) workload(d *manifest.Document) error {
	for i := range workload.Kinds {
		k := &workload.Kinds[i]
		if k.Name != d.Kind || d.APIVersion != k.Resource.GroupVersion().String() || k.Template == nil {
			continue
		}
		var object map[string]any
		if err := manifest.DecodeObject(d, &object); err != nil {
			return err
		}
		pod, err := k.Pod(object)
		if err != nil {
			return err
		}
		inNamespace(&pod.ObjectMeta)
		s.Workloads = append(s.Workloads, FiledWorkload{workload.Target{Of: k, Namespace: pod.Namespace, Name: pod.Name}, *pod})
	}
	return nil
}

//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/test/stage"
)

// state is what the API server stores, by namespace/name.
type state struct {
	nodes      map[string]*corev1.Node
	namespaces map[string]*corev1.Namespace
	features   map[string]*nfdv1alpha1.NodeFeature
	rules      map[string]*nfdv1alpha1.NodeFeatureRule
	sets       map[string]*assayv1alpha1.NodeFeatureSet
}

// trustLabel selects the namespaces whose NodeFeatures count.
const trustLabel = "twin.example.com/trusted"

// counting returns the NodeFeatures that count for a node, in the order in which they are merged.
func (s state) counting(n *corev1.Node) (out []*nfdv1alpha1.NodeFeature) {
	for _, f := range s.features {
		if f.Labels[nfdv1alpha1.NodeNameLabel] != n.Name || f.DeletionTimestamp != nil {
			continue
		}
		if f.Namespace == namespace && f.Name == n.Name && slices.ContainsFunc(f.OwnerReferences, ownedByAnother(n)) {
			continue // of a deleted Node of this name
		}
		if ns := s.namespaces["/"+f.Namespace]; f.Namespace == namespace || ns != nil && ns.Labels[trustLabel] == "true" {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b *nfdv1alpha1.NodeFeature) int {
		return cmp.Or(last(a.Namespace != namespace)-last(b.Namespace != namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
	})
	return out
}

func last(is bool) int {
	if is {
		return 1
	}
	return 0
}

// content returns the features of a NodeFeature with those of its sets and its encoded instances.
func (s state) content(f *nfdv1alpha1.NodeFeature) nfdv1alpha1.Features {
	out := empty()
	merge(&out, f.Spec.Features)
	var encoded map[string][]map[string]string
	if f.Spec.EncodedInstances != "" {
		if err := json.Unmarshal([]byte(f.Spec.EncodedInstances), &encoded); err != nil {
			panic(err) // this test wrote it
		}
	}
	for name, list := range encoded {
		if _, is := f.Spec.Features.Instances[name]; is {
			continue
		}
		for _, attributes := range list {
			out.Instances[name] = nfdv1alpha1.InstanceFeatureSet{Elements: append(out.Instances[name].Elements, nfdv1alpha1.InstanceFeature{Attributes: attributes})}
		}
	}
	if f.Namespace == namespace {
		for _, name := range f.Spec.FeatureSets {
			if set := s.sets[namespace+"/"+name]; set != nil {
				merge(&out, set.Spec.Features) // a worker repeats no feature of a set
			}
		}
	}
	return out
}

func empty() nfdv1alpha1.Features {
	return nfdv1alpha1.Features{
		Flags: map[string]nfdv1alpha1.FlagFeatureSet{}, Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{}, Instances: map[string]nfdv1alpha1.InstanceFeatureSet{},
	}
}

// merge adds features: flags are united, attributes replaced one by one, instances appended.
func merge(into *nfdv1alpha1.Features, from nfdv1alpha1.Features) {
	for name, set := range from.Flags {
		all := map[string]nfdv1alpha1.Nil{}
		maps.Copy(all, into.Flags[name].Elements)
		maps.Copy(all, set.Elements)
		into.Flags[name] = nfdv1alpha1.FlagFeatureSet{Elements: all}
	}
	for name, set := range from.Attributes {
		all := map[string]string{}
		maps.Copy(all, into.Attributes[name].Elements)
		maps.Copy(all, set.Elements)
		into.Attributes[name] = nfdv1alpha1.AttributeFeatureSet{Elements: all}
	}
	for name, set := range from.Instances {
		into.Instances[name] = nfdv1alpha1.InstanceFeatureSet{Elements: slices.Concat(into.Instances[name].Elements, set.Elements)}
	}
}

// node returns the features that a Node object has itself.
func nodeFeatures(n *corev1.Node) nfdv1alpha1.Features {
	out := empty()
	if version := n.Status.NodeInfo.KubeletVersion; version != "" {
		out.Attributes["kubernetes.node"] = nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{"kubelet_version": version}}
	}
	return out
}

// input is the input of rules for a node.
type input struct {
	rules.Input
	id string // its content
}

// input merges what counts for a node. held are NodeFeatures of a worker that were deleted, and count nevertheless.
func (s state) input(n *corev1.Node, held *nfdv1alpha1.NodeFeature) input {
	list := s.counting(n)
	if held != nil {
		list = slices.Insert(slices.DeleteFunc(list, func(f *nfdv1alpha1.NodeFeature) bool { return f.Namespace == namespace && f.Name == n.Name }), 0, held)
		slices.SortStableFunc(list, func(a, b *nfdv1alpha1.NodeFeature) int {
			return cmp.Or(last(a.Namespace != namespace)-last(b.Namespace != namespace), cmp.Compare(a.Name, b.Name))
		})
	}
	all, requested, parts := empty(), map[string]string{}, []any{}
	in := rules.Input{Node: rules.Node{Name: n.Name, Labels: map[string]string{}}}
	for _, f := range list {
		content := s.content(f)
		merge(&all, content)
		for key, value := range f.Spec.Labels {
			if !strings.Contains(key, "/") {
				key = nfdv1alpha1.FeatureLabelNamespace + "/" + key
			}
			requested[key] = value
		}
		in.Publishers = append(in.Publishers, rules.Publisher{Name: f.Namespace + "/" + f.Name, Facts: facts.New(&content, nil)})
		parts = append(parts, f.Namespace+"/"+f.Name, content)
	}
	merge(&all, nodeFeatures(n))
	for key, value := range n.Labels {
		if !ours(key) {
			in.Node.Labels[key] = value
		}
	}
	in.Facts, in.Labels = facts.New(&all, nil), requested
	id, err := json.Marshal([]any{n.Name, in.Node.Labels, requested, nodeFeatures(n), parts})
	if err != nil {
		panic(err) // maps and strings
	}
	return input{in, string(id)}
}

// ours reports whether a key is one of Assay's, or its record of them.
func ours(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	return prefix+"/" == domain || prefix == nfdv1alpha1.FeatureLabelNamespace || strings.HasSuffix(prefix, nfdv1alpha1.BookkeepingNamespace) ||
		prefix == assayv1alpha1.GroupName
}

// program compiles rules.
func program(all map[string]*nfdv1alpha1.NodeFeatureRule) *rules.Program {
	options := rules.Options{Mask: rules.Masking{Mode: rules.MaskAlways}}
	var sets []*rules.RuleSet
	for _, key := range slices.Sorted(maps.Keys(all)) {
		set, _ := rules.Compile(all[key], options)
		sets = append(sets, set)
	}
	return rules.Link(options, sets...)
}

// evaluate returns the keys that rules give a node, such as "label twin.example.com/a", with their values, and the rule of each.
func evaluate(p *rules.Program, in input) (values, owners map[string]string) {
	values, owners = map[string]string{}, map[string]string{}
	o := p.Eval(in.Input)
	add := func(kind keys.Kind, key, value string) {
		id := string(kind) + " " + key
		values[id] = value
		origin, _ := o.Origin(kind, key)
		owners[id] = origin.Object
	}
	for kind, all := range map[keys.Kind]map[string]string{
		keys.Label: o.Labels(), keys.Annotation: o.Annotations(), keys.Resource: o.ExtendedResources(), keys.Condition: o.NodeConditions(),
	} {
		for key, value := range all {
			add(kind, key, value)
		}
	}
	for _, t := range o.Taints() {
		add(keys.Taint, t.Key+":"+string(t.Effect), t.Value)
	}
	return values, owners
}

// keysOf returns the keys of this test on a Node.
func keysOf(n *corev1.Node) map[string]string {
	out := stage.Keys(n, func(key string) bool {
		prefix, _, _ := strings.Cut(key, "/")
		return prefix+"/" == domain || prefix == nfdv1alpha1.FeatureLabelNamespace
	})
	for key, amount := range n.Status.Capacity {
		id := string(keys.Resource) + " " + string(key)
		if other := n.Status.Allocatable[key]; out[id] != "" && other.Cmp(amount) != 0 {
			out[id] += ", of which " + other.String() + " is allocatable"
		}
	}
	return out
}

package inputs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/devices"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/gather"
)

// Prove reads the NodeFeatures and ResourceSlices of a State from the API server and returns the input of rules that they give.
// NodeFeatures are decoded with encoding/json, and nothing is shared, so the result does not depend on what the caches, the decoder of
// watches and the interner hold. It costs a request for each NodeFeature, and one for ResourceSlices if rules read them; the content of a
// feature set proves itself, because its name is its digest. The error is ErrStale if the API server has other versions than the State.
func (n *Nodes) Prove(ctx context.Context, s State) (*Proof, error) {
	published, err := gather.Reread(s.Features, func(f *nodefeature.NodeFeature) (gather.Published, error) { return n.read(ctx, s, f) })
	if err != nil {
		return nil, err
	}
	node := s.node()
	switch node.Devices, err = n.opt.Devices.Prove(ctx, s.Node.Name, s.Devices); {
	case errors.Is(err, devices.ErrStale):
		return nil, ErrStale
	case err != nil:
		return nil, err
	}
	return &Proof{Input: published.Input(node, nil), state: s, published: published.All()}, nil
}

// Proof is what the API server has of the NodeFeatures of a State.
type Proof struct {
	// Input is the input of rules that they give.
	Input     rules.Input
	state     State
	published []gather.Published // in the order of State.Features
}

// read returns the content of a NodeFeature according to the API server.
func (n *Nodes) read(ctx context.Context, s State, f *nodefeature.NodeFeature) (gather.Published, error) {
	if n.opt.Live == nil {
		return f.Published(), nil
	}
	var live unstructured.Unstructured
	live.SetGroupVersionKind(nfdv1alpha1.GroupVersion.WithKind("NodeFeature"))
	err := n.opt.Live.Get(ctx, client.ObjectKeyFromObject(f), &live)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return gather.Published{}, err
	case f == s.Own && (err != nil && s.Held() || err == nil && n.unreadable(s, live.GetResourceVersion())):
		return f.Published(), nil // it was deleted or cannot be read, and counts as it was last seen
	case err != nil || live.GetResourceVersion() != f.ResourceVersion:
		return gather.Published{}, ErrStale
	}
	text, err := json.Marshal(live.Object)
	if err != nil {
		return gather.Published{}, err
	}
	var object nfdv1alpha1.NodeFeature
	if err := json.Unmarshal(text, &object); err != nil {
		return gather.Published{}, fmt.Errorf("decode NodeFeature %s: %w", f.Publisher(), err)
	}
	if err := n.complete(ctx, &object); err != nil {
		return gather.Published{}, err
	}
	p := gather.Describe(&object)
	p.Facts, p.Labels = facts.New(&object.Spec.Features, nil), object.Spec.Labels
	return p, nil
}

// unreadable reports whether this version of the worker's object is left out.
func (n *Nodes) unreadable(s State, version string) bool {
	return slices.ContainsFunc(s.LeftOut, func(l LeftOut) bool { return n.own(l.Object) && l.Object.ResourceVersion == version })
}

// complete adds the encoded instances and the feature sets of a NodeFeature to its features. What it has itself wins.
func (n *Nodes) complete(ctx context.Context, object *nfdv1alpha1.NodeFeature) error {
	features := &object.Spec.Features
	add := func(more *nfdv1alpha1.Features) {
		features.Flags = under(features.Flags, more.Flags)
		features.Attributes = under(features.Attributes, more.Attributes)
		features.Instances = under(features.Instances, more.Instances)
	}
	if object.Spec.EncodedInstances != "" {
		var encoded map[string][]map[string]string
		if err := json.Unmarshal([]byte(object.Spec.EncodedInstances), &encoded); err != nil {
			return fmt.Errorf("decode encodedInstances of NodeFeature %s/%s: %w", object.Namespace, object.Name, err)
		}
		lists := map[string]nfdv1alpha1.InstanceFeatureSet{}
		for name, list := range encoded {
			set := nfdv1alpha1.InstanceFeatureSet{}
			for _, attributes := range list {
				set.Elements = append(set.Elements, nfdv1alpha1.InstanceFeature{Attributes: attributes})
			}
			lists[name] = set
		}
		add(&nfdv1alpha1.Features{Instances: lists})
	}
	if object.Namespace != n.opt.Policy.Namespace {
		return nil // only workers' objects name sets
	}
	for _, name := range object.Spec.FeatureSets {
		set, err := n.featureSet(ctx, name)
		if err != nil {
			return err
		}
		add(set)
	}
	return nil
}

// under returns the entries of two maps; those of the first one win.
func under[V any](first, second map[string]V) map[string]V {
	if len(second) == 0 {
		return first
	}
	out := maps.Clone(second)
	maps.Copy(out, first)
	return out
}

// featureSet returns the features of a set: those in memory if their digest is its name, otherwise those of the API server.
func (n *Nodes) featureSet(ctx context.Context, name string) (*nfdv1alpha1.Features, error) {
	if n.opt.Sets != nil {
		if features := n.opt.Sets.Features(name); features != nil && featureset.Verify(name, features) == nil {
			return features, nil
		}
	}
	set := &assayv1alpha1.NodeFeatureSet{}
	if err := n.opt.Live.Get(ctx, client.ObjectKey{Namespace: n.opt.Policy.Namespace, Name: name}, set); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, ErrStale
		}
		return nil, err
	}
	if err := featureset.Verify(name, &set.Spec.Features); err != nil {
		return nil, fmt.Errorf("NodeFeatureSet %s: %w", name, err)
	}
	return &set.Spec.Features, nil
}

// proven is the content of a NodeFeature that Prove read because what the cache holds of it was wrong.
type proven struct {
	version string
	facts   *facts.Facts
	labels  map[string]string
}

// Replace makes the NodeFeatures of a node count as the API server has them, until other versions of them arrive.
func (n *Nodes) Replace(p *Proof) {
	n.mu.Lock()
	for i, f := range p.state.Features.All() {
		n.proven[client.ObjectKeyFromObject(f)] = proven{f.ResourceVersion, p.published[i].Facts, p.published[i].Labels}
	}
	n.mu.Unlock()
	n.mark(p.state.Node.Name)
}

// replaced returns a NodeFeature with its proven content, or as it is in the cache.
func (n *Nodes) replaced(f *nodefeature.NodeFeature) *nodefeature.NodeFeature {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.proven) == 0 {
		return f
	}
	key := client.ObjectKeyFromObject(f)
	p, ok := n.proven[key]
	if !ok {
		return f
	}
	if p.version != f.ResourceVersion {
		delete(n.proven, key)
		return f
	}
	out := *f
	out.Spec.Features.Facts, out.Spec.Labels = p.facts, p.labels
	return &out
}

// Difference is one element that two facts do not have in common.
type Difference struct {
	// Feature is its feature. Element is its name, or that of an attribute; Instance is the number of the instance, or -1.
	Feature, Element string
	Instance         int
	// First and Second are the values, in the first and the second facts; nil: they do not have it.
	First, Second *string
}

// Differ returns the first difference by feature, instance and element, or nil if the facts are equal.
func Differ(first, second *facts.Facts) *Difference {
	a, b := flatten(first), flatten(second)
	var out *Difference
	for _, side := range []map[element]string{a, b} {
		for at := range side {
			x, inA := a[at]
			y, inB := b[at]
			if x == y && inA == inB || out != nil && compareElements(element{out.Feature, out.Instance, out.Element}, at) <= 0 {
				continue
			}
			out = &Difference{Feature: at.feature, Instance: at.instance, Element: at.name}
			if inA {
				out.First = &x
			}
			if inB {
				out.Second = &y
			}
		}
	}
	return out
}

type element struct {
	feature  string
	instance int
	name     string
}

func compareElements(a, b element) int {
	return cmp.Or(cmp.Compare(a.feature, b.feature), cmp.Compare(a.instance, b.instance), cmp.Compare(a.name, b.name))
}

// flatten returns all elements of facts with their values.
func flatten(f *facts.Facts) map[element]string {
	out, all := map[element]string{}, f.Features()
	for feature, set := range all.Flags {
		for name := range set.Elements {
			out[element{feature, -1, name}] = ""
		}
	}
	for feature, set := range all.Attributes {
		for name, value := range set.Elements {
			out[element{feature, -1, name}] = value
		}
	}
	for feature, set := range all.Instances {
		for i, instance := range set.Elements {
			out[element{feature, i, ""}] = "" // also of an instance without attributes
			for name, value := range instance.Attributes {
				out[element{feature, i, name}] = value
			}
		}
	}
	return out
}

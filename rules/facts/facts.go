// Package facts stores the features of nodes compactly and with fast lookups, for thousands of nodes.
package facts

import (
	"maps"
	"slices"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// Facts are the features of a node. They are immutable and safe for concurrent use. A nil *Facts has no features.
type Facts struct {
	// shared by all nodes with the same feature names
	names    *names
	features []*Feature // by index of the name
}

// Source provides the features of a node. Feature returns nil if the node does not have the feature; names are case-sensitive.
type Source interface {
	Feature(name string) *Feature
}

// Feature is the content of one feature of a node. It may have several types at once. A nil pointer means that the feature does not
// have this type, which differs from an empty set.
type Feature struct {
	Flags      *Flags
	Attributes *Attributes
	Instances  *Instances
}

// FeatureID identifies the content of a feature: two features of one Interner have equal IDs if and only if they are equal. Caches
// use it as a key that does not keep the feature in memory.
type FeatureID [3]uint64

// ID returns the ID of the feature. The ID of nil is zero.
func (f *Feature) ID() FeatureID {
	if f == nil {
		return FeatureID{}
	}
	return FeatureID{f.Flags.ID(), f.Attributes.ID(), f.Instances.ID()}
}

// New converts the features of a NodeFeature to Facts. It shares sets with other Facts of the same Interner; a nil Interner shares
// none. It drops the synthetic feature rule.matched, so that publishers cannot forge back-references.
func New(features *nfdv1alpha1.Features, in *Interner) *Facts {
	b := builder{}
	if features == nil {
		return b.build(in)
	}
	for name, set := range features.Flags {
		b.at(name).Flags = newFlags(slices.Sorted(maps.Keys(set.Elements)), in)
	}
	for name, set := range features.Attributes {
		b.at(name).Attributes = attributesFromMap(set.Elements, in)
	}
	for name, set := range features.Instances {
		list := make([]map[string]string, len(set.Elements))
		for i := range set.Elements {
			list[i] = set.Elements[i].Attributes
		}
		b.at(name).Instances = instancesFromMaps(list, in)
	}
	return b.build(in)
}

// FromMap creates Facts from features by name. It drops rule.matched, as New does.
func FromMap(features map[string]Feature, in *Interner) *Facts {
	b := builder{}
	for name, f := range features {
		*b.at(name) = Feature{Flags: in.Flags(f.Flags), Attributes: in.Attributes(f.Attributes), Instances: in.Instances(f.Instances)}
	}
	return b.build(in)
}

// Same reports whether both have the same content, if they were created with the same Interner. It only compares pointers.
func (f *Facts) Same(other *Facts) bool {
	if f == nil || other == nil {
		return f == other
	}
	return f == other || f.names == other.names && slices.Equal(f.features, other.features)
}

// Feature returns a feature by its exact name, or nil.
func (f *Facts) Feature(name string) *Feature {
	if f == nil {
		return nil
	}
	i, ok := f.names.lookup(name)
	if !ok {
		return nil
	}
	return f.features[i]
}

// Names returns the sorted names of the features. The slice is shared: do not modify it.
func (f *Facts) Names() []string {
	if f == nil {
		return nil
	}
	return f.names.list
}

// Features returns the facts in the form of the API. The result shares no memory with f.
func (f *Facts) Features() *nfdv1alpha1.Features {
	out := &nfdv1alpha1.Features{
		Flags:      map[string]nfdv1alpha1.FlagFeatureSet{},
		Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{},
		Instances:  map[string]nfdv1alpha1.InstanceFeatureSet{},
	}
	for i, name := range f.Names() {
		feature := f.features[i]
		if feature.Flags != nil {
			set := nfdv1alpha1.FlagFeatureSet{Elements: make(map[string]nfdv1alpha1.Nil, feature.Flags.Len())}
			for _, element := range feature.Flags.Names() {
				set.Elements[element] = nfdv1alpha1.Nil{}
			}
			out.Flags[name] = set
		}
		if feature.Attributes != nil {
			out.Attributes[name] = nfdv1alpha1.AttributeFeatureSet{Elements: feature.Attributes.Map()}
		}
		if feature.Instances != nil {
			set := nfdv1alpha1.InstanceFeatureSet{Elements: make([]nfdv1alpha1.InstanceFeature, 0, feature.Instances.Len())}
			for _, m := range feature.Instances.Select(nil) {
				set.Elements = append(set.Elements, nfdv1alpha1.InstanceFeature{Attributes: m})
			}
			out.Instances[name] = set
		}
	}
	return out
}

// builder collects features by name.
type builder map[string]*Feature

func (b builder) at(name string) *Feature {
	f := b[name]
	if f == nil {
		f = &Feature{}
		b[name] = f
	}
	return f
}

func (b builder) build(in *Interner) *Facts {
	delete(b, nfdv1alpha1.RuleMatchedFeature)
	list := slices.Sorted(maps.Keys(b))
	f := &Facts{names: in.internNames(list), features: make([]*Feature, len(list))}
	for i, name := range list {
		f.features[i] = in.Feature(*b[name])
	}
	return f
}

package flap

import (
	"maps"
	"slices"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// editor modifies a spec whose maps are shared: it copies the outer maps, and each set, before writing.
type editor struct {
	spec   nfdv1alpha1.NodeFeatureSpec
	copied map[element]bool // sets, as elements without a name
	outer  bool
}

// keep sets an element to its value in another spec.
func (e *editor) keep(what element, from *nfdv1alpha1.NodeFeatureSpec) {
	if !e.outer {
		e.outer = true
		e.copied = map[element]bool{}
		e.spec.Labels = maps.Clone(e.spec.Labels)
		f := &e.spec.Features
		f.Flags, f.Attributes, f.Instances = maps.Clone(f.Flags), maps.Clone(f.Attributes), maps.Clone(f.Instances)
	}
	set := element{kind: what.kind, feature: what.feature}
	first := !e.copied[set]
	e.copied[set] = true
	switch f, old := e.spec.Features, from.Features; what.kind {
	case label:
		if e.spec.Labels == nil {
			e.spec.Labels = map[string]string{}
		}
		put(e.spec.Labels, from.Labels, what.name)
	case flag:
		if now, was, ok := both(f.Flags, old.Flags, what.feature); ok {
			if first {
				now.Elements = copyOf(now.Elements)
				f.Flags[what.feature] = now
			}
			put(now.Elements, was.Elements, what.name)
		}
	case attribute:
		if now, was, ok := both(f.Attributes, old.Attributes, what.feature); ok {
			if first {
				now.Elements = copyOf(now.Elements)
				f.Attributes[what.feature] = now
			}
			put(now.Elements, was.Elements, what.name)
		}
	case instance:
		if now, was, ok := both(f.Instances, old.Instances, what.feature); ok {
			now.Elements = keepInstance(slices.Clone(now.Elements), was.Elements, what)
			f.Instances[what.feature] = now
		}
	}
}

func both[V any](a, b map[string]V, name string) (now, was V, ok bool) {
	now, inA := a[name]
	was, inB := b[name]
	return now, was, inA && inB
}

func copyOf[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return maps.Clone(m)
}

// put copies an entry from one map to another, or deletes it.
func put[V any](into, from map[string]V, name string) {
	if v, ok := from[name]; ok {
		into[name] = v
	} else {
		delete(into, name)
	}
}

// keepInstance sets a device, or one attribute of it, to its value in another list. It restores a missing device at its old
// position, so that lists with the same devices are equal.
func keepInstance(list, old []nfdv1alpha1.InstanceFeature, what element) []nfdv1alpha1.InstanceFeature {
	is := func(i nfdv1alpha1.InstanceFeature) bool { return identity(i.Attributes) == what.name }
	if what.attribute == "" {
		list = slices.DeleteFunc(list, is)
		for at, i := range old {
			if is(i) {
				list = slices.Insert(list, min(at, len(list)), i)
			}
		}
		return list
	}
	at, was := slices.IndexFunc(list, is), slices.IndexFunc(old, is)
	if at >= 0 && was >= 0 {
		list[at].Attributes = copyOf(list[at].Attributes)
		put(list[at].Attributes, old[was].Attributes, what.attribute)
	}
	return list
}

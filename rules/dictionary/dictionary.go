// Package dictionary declares the features of Assay's sources: their elements, and what the values of each look like.
//
// What the program knows of names and values follows from it: warnings of lint, the tables of docs/features.md, the suggestions of
// editors and of the command line, and which attributes rules compare with quantities. A test compares it with whole machines.
package dictionary

import (
	"slices"
	"strings"
	"sync"
)

// Type is how rules read a feature. A feature may have several types.
type Type uint8

// The types of features.
const (
	Flags Type = 1 << iota
	Attributes
	Instances
)

// Feature is a feature that a source publishes.
type Feature struct {
	Name string
	Type Type
	// Most is the maximum number of instances. Zero means that there is no fixed limit. A node has each attribute at most once.
	Most int
	// Open is set if other publishers use the name too, with elements that are not listed.
	Open bool
	// Elements are the elements in the order of the documentation.
	Elements []Element
	// Names are known names of flags. There may be others.
	Names []string
	// Versions are the elements of a version and of its parts. It may be nil.
	Versions *Versions
	// Wrong are names that users write instead of an element, in the form wrong=right.
	Wrong []string

	names []string // sorted, without patterns
}

// Versions are the names of the element with a version, and of those with its first two numbers.
type Versions struct{ Whole, Major, Minor string }

// Element is a flag, an attribute, or an attribute of instances.
type Element struct {
	// Name is the name; it may contain one *, which matches any string.
	Name string
	Kind Kind
	// Always is set if the element exists wherever its feature has elements and could be read.
	Always bool
	// Values are all values of an Enum, unless More is set. Of other kinds, they are values of different machines: the n-th values of
	// the elements of a feature belong together.
	Values []string
	// More is set if there are other values too.
	More bool
	// Unit is the unit of an Integer.
	Unit string
	// Wrong are values that users write instead of another one, in the form wrong=right.
	Wrong []string
	// Means describes the element in the documentation. It is empty for an element that is one of many of its kind.
	Means string
}

var all = sync.OnceValue(func() []Feature {
	list := slices.Concat(cpuFeatures, deviceFeatures, systemFeatures, clusterFeatures, otherFeatures)
	slices.SortFunc(list, func(a, b Feature) int { return strings.Compare(a.Name, b.Name) })
	for i := range list {
		f := &list[i]
		f.names = slices.Clone(f.Names)
		for j := range f.Elements {
			if !f.Elements[j].Pattern() {
				f.names = append(f.names, f.Elements[j].Name)
			}
		}
		slices.Sort(f.names)
	}
	return list
})

var byName = sync.OnceValue(func() map[string]*Feature {
	out := map[string]*Feature{}
	for i := range all() {
		out[all()[i].Name] = &all()[i]
	}
	return out
})

// All returns all features, sorted by name. The slice is shared: do not modify it.
func All() []Feature { return all() }

// Find returns a feature by its name in lower case, or nil.
func Find(name string) *Feature { return byName()[name] }

// Names returns the sorted names of all features. The slice is shared: do not modify it.
var Names = sync.OnceValue(func() []string {
	var out []string
	for i := range all() {
		out = append(out, all()[i].Name)
	}
	return out
})

// Is reports whether the feature has a type. A nil feature has none.
func (f *Feature) Is(t Type) bool { return f != nil && f.Type&t != 0 }

// Element returns an element by its name, or nil if the feature cannot have it. An element that only the pattern of others matches
// has their name.
func (f *Feature) Element(name string) *Element {
	if f == nil {
		return nil
	}
	for i := range f.Elements {
		if f.Elements[i].Name == name {
			return &f.Elements[i]
		}
	}
	for i := range f.Elements {
		if f.Elements[i].matches(name) {
			return &f.Elements[i]
		}
	}
	return nil
}

// FindElement returns an element of a feature by their names, or nil.
func FindElement(feature, element string) *Element { return Find(feature).Element(element) }

// ElementNames returns the sorted names of the known elements, without patterns. The slice is shared: do not modify it.
func (f *Feature) ElementNames() []string {
	if f == nil {
		return nil
	}
	return f.names
}

// Knows reports whether an element has the name, or belongs to a pattern that does not match all names.
func (f *Feature) Knows(name string) bool {
	if _, ok := slices.BinarySearch(f.names, name); ok {
		return true
	}
	return slices.ContainsFunc(f.Elements, func(e Element) bool { return e.Name != "*" && e.matches(name) })
}

// Any reports whether the feature may have elements of any name.
func (f *Feature) Any() bool {
	return f != nil && (f.Open || slices.ContainsFunc(f.Elements, func(e Element) bool { return e.Name == "*" }))
}

// Pattern reports whether the element is a pattern of names.
func (e *Element) Pattern() bool { return strings.Contains(e.Name, "*") }

func (e *Element) matches(name string) bool {
	prefix, suffix, ok := strings.Cut(e.Name, "*")
	return ok && len(name) >= len(prefix)+len(suffix) && strings.HasPrefix(name, prefix) && strings.HasSuffix(name, suffix)
}

// Instead returns the right name or value for a wrong one of a list, or "".
func Instead(list []string, wrong string) string {
	for _, pair := range list {
		if from, to, _ := strings.Cut(pair, "="); strings.EqualFold(from, wrong) {
			return to
		}
	}
	return ""
}

// Package column formats facts of nodes as table cells.
package column

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/assay-project/assay/rules/dictionary"
	"github.com/assay-project/assay/rules/facts"
)

// Split returns the feature and the element of a column such as cpu.model.name. ok is false if the column has no element.
func Split(column string) (feature, element string, ok bool) {
	parts := strings.SplitN(column, ".", 3)
	if len(parts) < 3 {
		return strings.ToLower(column), "", false
	}
	return strings.ToLower(parts[0] + "." + parts[1]), parts[2], true
}

// Match reports whether a pattern selects a feature or an element by its name: * matches any characters, and kernel selects all features
// of the domain.
func Match(pattern, name string) bool {
	pattern, name = strings.ToLower(pattern), strings.ToLower(name)
	ok, _ := path.Match(pattern, name)
	return ok || strings.HasPrefix(name, pattern+".")
}

// Known reports whether Assay's sources may publish the element of a column, such as a flag that no node has.
func Known(column string) bool {
	feature, element, ok := Split(column)
	f := dictionary.Find(feature)
	return ok && f != nil && f.Knows(element)
}

// Cell returns the short form of a feature or element: the value of an attribute, yes or no for a flag, the distinct values of
// instances, and the number of elements of a feature. It is empty if the node does not have the feature or element.
func Cell(f *facts.Facts, column string) string {
	if feature := f.Feature(strings.ToLower(column)); feature != nil {
		return fmt.Sprint(feature.Instances.Len() + feature.Attributes.Len() + feature.Flags.Len())
	}
	name, element, ok := Split(column)
	if !ok {
		return ""
	}
	feature := f.Feature(name)
	if feature == nil {
		return ""
	}
	if v, ok := feature.Attributes.Get(element); ok {
		return v
	}
	if feature.Flags.Len() > 0 {
		if feature.Flags.Has(element) {
			return "yes"
		}
		return "no"
	}
	seen := map[string]bool{}
	for i := range feature.Instances.Len() {
		if v, ok := feature.Instances.Get(i, element); ok {
			seen[v] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), ",")
}

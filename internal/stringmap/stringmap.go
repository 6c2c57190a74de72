// Package stringmap stores maps of strings that have most entries in common, such as the labels of Nodes.
package stringmap

import (
	"slices"
	"strings"
	"unique"
)

// Map is an immutable map of strings, sorted by key. Each entry is a pointer, and equal entries exist once in the process: the 120
// labels of a Node take 1 kB, and 10 kB as a Go map. The zero value is empty. It is safe for concurrent use.
type Map struct{ entries []unique.Handle[entry] }

type entry struct{ key, value string }

// Of returns a Map with the entries of a Go map, which can be modified afterwards.
func Of(m map[string]string) Map {
	if len(m) == 0 {
		return Map{}
	}
	entries := make([]unique.Handle[entry], 0, len(m))
	for key, value := range m {
		entries = append(entries, unique.Make(entry{key, value}))
	}
	slices.SortFunc(entries, func(a, b unique.Handle[entry]) int { return strings.Compare(a.Value().key, b.Value().key) })
	return Map{entries}
}

// Strings returns a new Go map with the entries; nil if there are none.
func (m Map) Strings() map[string]string {
	if len(m.entries) == 0 {
		return nil
	}
	out := make(map[string]string, len(m.entries))
	for _, e := range m.entries {
		out[e.Value().key] = e.Value().value
	}
	return out
}

// Equal reports whether two Maps have the same entries.
func (m Map) Equal(other Map) bool { return slices.Equal(m.entries, other.entries) }

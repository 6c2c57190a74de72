package facts

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync/atomic"
)

// lastID is the last ID of a set. IDs are never reused, so that an ID in a cache may outlive its set.
var lastID atomic.Uint64

func nextID() uint64 { return lastID.Add(1) }

// Flags is an immutable set of names. It is safe for concurrent use. A nil *Flags is empty.
type Flags struct {
	id    uint64
	names *names
}

// NewFlags creates a set of the given names, in any order and with duplicates.
func NewFlags(list ...string) *Flags {
	return newFlags(sortedSet(slices.Clone(list)), nil)
}

// newFlags creates a set from a sorted list without duplicates. It does not keep the list.
func newFlags(sorted []string, in *Interner) *Flags {
	n := in.internNames(sorted)
	return in.internFlags(n)
}

// Has reports whether the set contains a name.
func (f *Flags) Has(name string) bool {
	if f == nil {
		return false
	}
	_, ok := f.names.lookup(name)
	return ok
}

// HasKey is like Has, for a prepared name.
func (f *Flags) HasKey(k Key) bool {
	if f == nil {
		return false
	}
	_, ok := f.names.find(k)
	return ok
}

// Names returns the sorted names. The slice is shared: do not modify it.
func (f *Flags) Names() []string {
	if f == nil {
		return nil
	}
	return f.names.list
}

// Len returns the number of names in the set.
func (f *Flags) Len() int { return len(f.Names()) }

// ID returns a number that is unique to the set. Equal sets of one Interner have equal IDs; the ID of nil is 0.
func (f *Flags) ID() uint64 {
	if f == nil {
		return 0
	}
	return f.id
}

// Attributes is an immutable set of names with a value each. It is safe for concurrent use. A nil *Attributes is empty.
type Attributes struct {
	id     uint64
	names  *names
	values []string // by index of the name
}

// NewAttributes creates a set from a map. It does not keep the map.
func NewAttributes(m map[string]string) *Attributes {
	return attributesFromMap(m, nil)
}

func attributesFromMap(m map[string]string, in *Interner) *Attributes {
	list := slices.Sorted(maps.Keys(m))
	values := make([]string, len(list))
	for i, name := range list {
		values[i] = m[name]
	}
	return newAttributes(list, values, in)
}

// newAttributes creates a set from a sorted list without duplicates and the list of values. It keeps neither list.
func newAttributes(sorted, values []string, in *Interner) *Attributes {
	return in.internAttributes(in.internNames(sorted), values)
}

// Get returns the value of a name.
func (a *Attributes) Get(name string) (string, bool) {
	if a == nil {
		return "", false
	}
	i, ok := a.names.lookup(name)
	if !ok {
		return "", false
	}
	return a.values[i], true
}

// GetKey is like Get, for a prepared name.
func (a *Attributes) GetKey(k Key) (string, bool) {
	if a == nil {
		return "", false
	}
	i, ok := a.names.find(k)
	if !ok {
		return "", false
	}
	return a.values[i], true
}

// Names returns the sorted names. The slice is shared: do not modify it.
func (a *Attributes) Names() []string {
	if a == nil {
		return nil
	}
	return a.names.list
}

// Value returns the value of the i-th name.
func (a *Attributes) Value(i int) string { return a.values[i] }

// Len returns the number of names in the set.
func (a *Attributes) Len() int { return len(a.Names()) }

// Map returns a copy of the set as a map.
func (a *Attributes) Map() map[string]string {
	m := make(map[string]string, a.Len())
	for i, name := range a.Names() {
		m[name] = a.values[i]
	}
	return m
}

// ID returns a number that is unique to the set. Equal sets of one Interner have equal IDs; the ID of nil is 0.
func (a *Attributes) ID() uint64 {
	if a == nil {
		return 0
	}
	return a.id
}

// attributesHash returns a hash of the content.
func attributesHash(n *names, values []string) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	hashInt(&h, int(n.id))
	hashStrings(&h, values)
	return h.Sum64()
}

// sortedSet sorts a list and removes duplicates, in place. Lists from the API server are usually sorted.
func sortedSet(list []string) []string {
	if !slices.IsSorted(list) {
		slices.Sort(list)
	}
	return slices.Compact(list)
}

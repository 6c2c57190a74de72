package facts

import (
	"hash/maphash"
	"slices"
	"sync"
	"weak"
)

const (
	// firstSweep is the number of entries at which a table is first searched for collected values.
	firstSweep = 256

	// maxKnownTexts is the maximum number of JSON strings in the table. One set can be written in any number of ways (spaces,
	// escapes, order), so the number of sets in use does not limit the number of strings. The limit allows for two unique sets on
	// each of 100,000 nodes and takes at most about 15 MB.
	maxKnownTexts = 1 << 18
)

// Interner deduplicates sets: pointers to two sets of one Interner are equal if and only if their content is equal. A fleet of
// servers has tens of different CPUs, kernels and PCI layouts; each is stored once.
//
// It holds sets by weak pointers: unused sets are garbage collected, and their entries are removed at a table's next sweep. It is
// safe for concurrent use. A nil *Interner shares nothing.
type Interner struct {
	names      table[uint64, names]
	flags      table[uint64, Flags]
	attributes table[uint64, Attributes]
	instances  table[uint64, Instances]
	columns    table[uint64, Column]
	features   table[FeatureID, Feature]

	// The same sets by the JSON text from which they were decoded.
	flagTexts      table[digest, Flags]
	attributeTexts table[digest, Attributes]
	instanceTexts  table[digest, Instances]

	seeds [2]maphash.Seed
}

// NewInterner returns an empty Interner.
func NewInterner() *Interner {
	in := &Interner{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	in.flagTexts.limit = maxKnownTexts
	in.attributeTexts.limit = maxKnownTexts
	in.instanceTexts.limit = maxKnownTexts
	return in
}

// Feature returns the shared Feature with these sets. Sets are compared by pointer.
func (in *Interner) Feature(f Feature) *Feature {
	if in == nil {
		return &f
	}
	id := f.ID()
	if known := in.features.get(id); known != nil {
		return known
	}
	// The key consists of IDs, not pointers, so that the table keeps no set alive. IDs are never reused.
	return in.features.intern(id, func(*Feature) bool { return true }, nil, func() *Feature { return &f })
}

// owns reports whether f is the shared Feature with these sets, so that its content need not be hashed again.
func (in *Interner) owns(f *Feature) bool { return in != nil && in.features.get(f.ID()) == f }

// Flags returns the first set that is equal to f.
func (in *Interner) Flags(f *Flags) *Flags {
	if in == nil || f == nil {
		return f
	}
	return newFlags(f.names.list, in)
}

// Attributes returns the first set that is equal to a.
func (in *Interner) Attributes(a *Attributes) *Attributes {
	if in == nil || a == nil {
		return a
	}
	return newAttributes(a.names.list, a.values, in)
}

// Instances returns the first list that is equal to s.
func (in *Interner) Instances(s *Instances) *Instances {
	if in == nil || s == nil {
		return s
	}
	out := &Instances{rows: s.rows, names: in.internNames(s.names.list), columns: make([]*Column, len(s.columns))}
	for i, c := range s.columns {
		out.columns[i] = in.column(*c)
	}
	return in.internInstances(out)
}

func (in *Interner) internNames(sorted []string) *names {
	if in == nil {
		return newNames(sorted)
	}
	var h maphash.Hash
	h.SetSeed(seed)
	hashStrings(&h, sorted)
	return in.names.intern(h.Sum64(),
		func(n *names) bool { return slices.Equal(n.list, sorted) }, nextHash,
		func() *names { return newNames(sorted) })
}

func (in *Interner) internFlags(n *names) *Flags {
	create := func() *Flags { return &Flags{id: nextID(), names: n} }
	if in == nil {
		return create()
	}
	return in.flags.intern(n.id, func(f *Flags) bool { return f.names == n }, nextHash, create)
}

func (in *Interner) internAttributes(n *names, values []string) *Attributes {
	create := func() *Attributes { return &Attributes{id: nextID(), names: n, values: pack(values)} }
	if in == nil {
		return create()
	}
	return in.attributes.intern(attributesHash(n, values),
		func(a *Attributes) bool { return a.names == n && slices.Equal(a.values, values) }, nextHash, create)
}

func (in *Interner) internInstances(s *Instances) *Instances {
	create := func() *Instances { s.id = nextID(); return s }
	if in == nil {
		return create()
	}
	return in.instances.intern(s.hash(), s.equal, nextHash, create)
}

// column returns the first column that is equal to c.
func (in *Interner) column(c Column) *Column {
	if in == nil {
		return &c
	}
	var h maphash.Hash
	h.SetSeed(seed)
	c.hash(&h)
	return in.columns.intern(h.Sum64(), c.equal, nextHash, func() *Column { return &c })
}

// digest identifies a JSON string. It consists of two 64-bit hashes with secret seeds: two strings have equal digests with a
// probability of 2⁻¹²⁸, and a client that does not know the seeds cannot search for collisions.
type digest [2]uint64

func (in *Interner) digest(text string) digest {
	return digest{maphash.String(in.seeds[0], text), maphash.String(in.seeds[1], text)}
}

// table maps keys to values without keeping the values alive.
type table[K comparable, T any] struct {
	mu      sync.RWMutex
	entries map[K]weak.Pointer[T]
	sweepAt int
	limit   int // 0 means unlimited
}

// get returns the value of a key, or nil.
func (t *table[K, T]) get(key K) *T {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.entries[key].Value()
}

// put sets the value of a key.
func (t *table[K, T]) put(key K, v *T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.store(key, v)
}

// intern returns the value of a key if same accepts it, otherwise it stores and returns the result of create. If the key has
// another value, next returns the next key to try.
func (t *table[K, T]) intern(key K, same func(*T) bool, next func(K) K, create func() *T) *T {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		known := t.entries[key].Value()
		if known == nil {
			v := create()
			t.store(key, v)
			return v
		}
		if same(known) {
			return known
		}
		key = next(key)
	}
}

// store sets the value of a key. The caller must hold the lock.
func (t *table[K, T]) store(key K, v *T) {
	if t.entries == nil {
		t.entries, t.sweepAt = map[K]weak.Pointer[T]{}, firstSweep
	}
	if len(t.entries) >= t.sweepAt {
		t.sweep()
	}
	t.entries[key] = weak.Make(v)
}

// sweep removes entries whose value was collected. Tables double in size between sweeps, so that the amortized cost of an insertion
// is small.
func (t *table[K, T]) sweep() {
	for key, p := range t.entries {
		if p.Value() == nil {
			delete(t.entries, key)
		}
	}
	if t.limit > 0 && len(t.entries) >= t.limit {
		// All entries are in use. Remove random entries, in map order; restoring one costs a parse.
		for key := range t.entries {
			if len(t.entries) <= t.limit/2 {
				break
			}
			delete(t.entries, key)
		}
	}
	t.sweepAt = max(firstSweep, 2*len(t.entries))
	if t.limit > 0 {
		t.sweepAt = min(t.sweepAt, t.limit)
	}
}

func nextHash(h uint64) uint64 { return h + 1 }

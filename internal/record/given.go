package record

import (
	"cmp"
	"hash/maphash"
	"slices"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
)

// IDOf returns the ID of an object; nil means the labels that NodeFeatures request.
func IDOf(set *rules.RuleSet) string {
	if set == nil {
		return Requested
	}
	return set.ID()
}

// Objects returns the objects of a program, and the one for labels that NodeFeatures request, with their fingerprints under the
// given settings.
func Objects(p *rules.Program, settings string) map[string]Owner {
	prints := p.Fingerprints(settings)
	out := make(map[string]Owner, len(prints)+1)
	for _, s := range p.Sets() {
		out[s.ID()] = Owner{ID: s.ID(), Name: s.Name, Print: prints[s.ID()]}
	}
	out[Requested] = Owner{ID: Requested, Name: "NodeFeature", Print: settings}
	return out
}

// Gave is a key that an object gives to a node.
type Gave struct {
	Owner
	Key Key
}

// Edition holds the objects of one program. It is immutable.
type Edition struct {
	owners  []Owner // sorted by ID
	numbers map[string]int
}

// NewEdition returns the edition with these objects, by ID; see Objects.
func NewEdition(objects map[string]Owner) *Edition {
	e := &Edition{owners: make([]Owner, 0, len(objects)), numbers: make(map[string]int, len(objects))}
	for _, g := range objects {
		e.owners = append(e.owners, g)
	}
	slices.SortFunc(e.owners, func(a, b Owner) int { return cmp.Compare(a.ID, b.ID) })
	for i, g := range e.owners {
		e.numbers[g.ID] = i
	}
	return e
}

// Owner returns an object by ID; ok is false if the edition does not have it.
func (e *Edition) Owner(id string) (g Owner, ok bool) {
	i, ok := e.numbers[id]
	if !ok {
		return Owner{}, false
	}
	return e.owners[i], true
}

// Given lists the keys that the rules gave a Node, with the objects that gave them. It takes 16 bytes a key, where an outcome takes 45 kB
// with 100 rules. It is immutable; nil: there was no pass over the node.
type Given struct {
	Edition *Edition
	keys    []wideKey // sorted
	owners  []uint32  // numbers in the edition, by index of the key
	values  []uint32  // hashes, by index of the key
}

// wideKey is a Key in the upper half, and another hash in the lower one, so that two keys of a Node are never taken for one.
type wideKey uint64

func wideKeyOf(kind keys.Kind, key string) wideKey {
	return wideKey(KeyOf(kind, key))<<32 | wideKey(hash(string(kind)+" "+key))
}

var seed = maphash.MakeSeed()

func hash(text string) uint32 { return uint32(maphash.String(seed, text)) } //nolint:gosec // the lower half

// GivenBy returns what an outcome gives, whose program has the objects of the edition.
func GivenBy(o *rules.Outcome, e *Edition) *Given {
	type entry struct {
		key          wideKey
		owner, value uint32
	}
	var list []entry
	for g := range o.Given() {
		if i, ok := e.numbers[IDOf(g.Set)]; ok {
			list = append(list, entry{wideKeyOf(g.Kind, g.Key), uint32(i), hash(g.Value)}) //nolint:gosec // a cluster has fewer than four billion objects
		}
	}
	slices.SortFunc(list, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	out := &Given{Edition: e, keys: make([]wideKey, len(list)), owners: make([]uint32, len(list)), values: make([]uint32, len(list))}
	for i, p := range list {
		out.keys[i], out.owners[i], out.values[i] = p.key, p.owner, p.value
	}
	return out
}

// Owner returns the object that gave a key; ok is false if none did.
func (g *Given) Owner(kind keys.Kind, key string) (by Owner, ok bool) {
	i, ok := g.find(kind, key)
	if !ok {
		return Owner{}, false
	}
	return g.Edition.owners[g.owners[i]], true
}

// Has reports whether a key was given with a value.
func (g *Given) Has(kind keys.Kind, key, value string) bool {
	i, ok := g.find(kind, key)
	return ok && g.values[i] == hash(value)
}

func (g *Given) find(kind keys.Kind, key string) (int, bool) {
	if g == nil {
		return 0, false
	}
	return slices.BinarySearch(g.keys, wideKeyOf(kind, key))
}

// Fill adds the keys to the entries of their objects.
func (g *Given) Fill(r *Record) {
	if g == nil {
		return
	}
	for i, key := range g.keys {
		if e := r.Objects[g.Edition.owners[g.owners[i]].ID]; e != nil {
			e.Add(Key(key >> 32))
		}
	}
}

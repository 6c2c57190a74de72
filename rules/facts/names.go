package facts

import (
	"hash/maphash"
	"slices"
	"strings"
)

// SortedKeys returns the keys of a map in order.
func SortedKeys[M ~map[string]V, V any](m M) []string {
	out := make([]string, 0, len(m))
	for key := range m {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}

const (
	// smallSet is the maximum size of sets that are searched without an index: a scan of such a set is as fast as a hash, and most
	// features (memory.numa, kernel.selinux …) are that small.
	smallSet = 8

	// An index entry stores the position of a name plus one in its lower bits and a part of the name's hash in the upper bits. Most
	// missing names are therefore recognized without comparing strings.
	positionBits = 20
	positionMask = 1<<positionBits - 1
)

// seed makes the order of hash tables unpredictable to publishers that choose names.
var seed = maphash.MakeSeed()

// Key is a name prepared for fast lookups: a caller that looks up one name in many sets hashes it once.
type Key struct {
	hash uint32 // first, so that comparisons of different keys usually end after one word
	name string
}

// MakeKey prepares a name.
func MakeKey(name string) Key {
	h := maphash.String(seed, name)
	return Key{name: name, hash: uint32(h ^ h>>32)}
}

// String returns the name.
func (k Key) String() string { return k.name }

// names is an immutable, sorted set of names with lookups in constant time. Sets of attributes that differ only in their values
// share it.
type names struct {
	id    uint64
	list  []string
	index []uint32 // open addressing, with a power of two as size; nil for small sets
}

// newNames copies a sorted list without duplicates to a set.
func newNames(sorted []string) *names {
	n := &names{id: nextID(), list: pack(sorted)}
	if len(sorted) <= smallSet || len(sorted) >= positionMask {
		return n
	}
	size := 1
	for size*3 < len(sorted)*4 {
		size *= 2
	}
	n.index = make([]uint32, size)
	mask := uint32(size - 1)
	for i, name := range n.list {
		h := MakeKey(name).hash
		slot := h & mask
		for n.index[slot] != 0 {
			slot = (slot + 1) & mask
		}
		n.index[slot] = h&^positionMask | uint32(i+1)
	}
	return n
}

// find returns the position of a name.
func (n *names) find(k Key) (int, bool) {
	if n.index == nil {
		return n.search(k.name)
	}
	mask := uint32(len(n.index) - 1)
	for slot := k.hash & mask; ; slot = (slot + 1) & mask {
		e := n.index[slot]
		if e == 0 {
			return 0, false
		}
		if (e^k.hash)&^positionMask == 0 {
			if i := int(e&positionMask) - 1; n.list[i] == k.name {
				return i, true
			}
		}
	}
}

// lookup is like find, for a name that is looked up only once.
func (n *names) lookup(name string) (int, bool) {
	if n.index == nil {
		return n.search(name)
	}
	return n.find(MakeKey(name))
}

// search searches without the index.
func (n *names) search(name string) (int, bool) {
	if len(n.list) > smallSet {
		return slices.BinarySearch(n.list, name)
	}
	for i, s := range n.list {
		if s == name {
			return i, true
		}
	}
	return 0, false
}

// pack copies strings into one block of memory: a set needs two allocations instead of thousands and does not keep its source
// document alive.
func pack(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	size := 0
	for _, s := range list {
		size += len(s)
	}
	var b strings.Builder
	b.Grow(size)
	for _, s := range list {
		b.WriteString(s)
	}
	text := b.String()
	out := make([]string, len(list))
	for i, s := range list {
		out[i], text = text[:len(s)], text[len(s):]
	}
	return out
}

// hashStrings hashes a list such that different lists have different inputs.
func hashStrings(h *maphash.Hash, list []string) {
	hashInt(h, len(list))
	for _, s := range list {
		hashInt(h, len(s))
		_, _ = h.WriteString(s)
	}
}

// hashInt adds a number to a hash.
func hashInt(h *maphash.Hash, n int) {
	v := uint64(n)
	_, _ = h.Write([]byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24), byte(v >> 32)})
}

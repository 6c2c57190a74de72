package nodefeature

import (
	"hash/maphash"
	"maps"
	"sync"
)

// maxLabelSets bounds how many sets of labels are remembered to be shared: some ten MB of sets that nobody uses any more. A fleet
// has tens of different ones; where each node has its own, there is nothing to share.
const maxLabelSets = 1024

// labelSets turns equal labels of NodeFeatures, and of nodes, into one map: a server's are 9 kB, and the same on all of a kind.
var labelSets = &sharing{seed: maphash.MakeSeed(), sets: map[uint64]map[string]string{}}

// sharing is safe for concurrent use.
type sharing struct {
	seed maphash.Seed

	mu   sync.Mutex
	sets map[uint64]map[string]string
}

// share returns a map that equals m, which nobody may change any more.
func (s *sharing) share(m map[string]string) map[string]string {
	if len(m) == 0 {
		return m
	}
	hash := s.hash(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.sets[hash]; maps.Equal(known, m) {
		return known
	}
	if len(s.sets) >= maxLabelSets {
		clear(s.sets)
	}
	s.sets[hash] = m
	return m
}

// hash does not depend on the order of the map.
func (s *sharing) hash(m map[string]string) (sum uint64) {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for name, value := range m {
		h.Reset()
		_, _ = h.WriteString(name)
		_ = h.WriteByte(0)
		_, _ = h.WriteString(value)
		sum += h.Sum64()
	}
	return sum
}

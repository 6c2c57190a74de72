package nodefeature

import (
	"hash/maphash"
	"maps"
	"sync"
)

// maxLabelSets is the maximum number of label sets that are kept for sharing: about 10 MB of unused sets. A fleet has tens of
// different ones; where each node has its own, sharing has no effect.
const maxLabelSets = 1024

// labelSets deduplicates label maps of NodeFeatures and nodes: those of a server have 9 KB and are the same on all servers of a
// kind.
var labelSets = &sharing{seed: maphash.MakeSeed(), sets: map[uint64]map[string]string{}}

type sharing struct {
	seed maphash.Seed

	mu   sync.Mutex
	sets map[uint64]map[string]string
}

// ShareLabels returns a map that equals m and that other nodes have too. It must no longer be modified.
func ShareLabels(m map[string]string) map[string]string { return labelSets.share(m) }

// share returns a map that equals m. It must no longer be modified.
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

// hash is independent of the map's order.
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

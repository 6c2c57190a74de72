package nodefeature

import (
	"slices"
	"strings"
	"sync"
)

// nameLists deduplicates lists of names of feature sets, which have 1 kB and are the same on all nodes of a kind.
var nameLists = &lists{known: map[string][]string{}}

type lists struct {
	mu    sync.Mutex
	known map[string][]string // by the names, joined
}

// ShareNames returns a list that equals a list of names of feature sets, and must no longer be modified.
func ShareNames(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	key := strings.Join(list, ",") // no name contains a comma
	nameLists.mu.Lock()
	defer nameLists.mu.Unlock()
	if known := nameLists.known[key]; slices.Equal(known, list) {
		return known
	}
	if len(nameLists.known) >= maxLabelSets {
		clear(nameLists.known)
	}
	nameLists.known[key] = slices.Clone(list)
	return nameLists.known[key]
}

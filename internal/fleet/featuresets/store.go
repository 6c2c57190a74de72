// Package featuresets resolves the NodeFeatureSets that NodeFeatures name.
//
// A set counts only if its features have the digest that its name contains: whoever may create sets could otherwise give a name that
// many nodes use other features.
package featuresets

import (
	"slices"
	"sync"

	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/facts"
)

// Store holds the sets of one namespace. It is safe for concurrent use.
type Store struct {
	namespace string

	mu      sync.RWMutex
	sets    map[string]*facts.Facts // those that are what their names say
	changed []func(name string)
}

// New returns a Store without sets. Namespace is Assay's own.
func New(namespace string) *Store {
	return &Store{namespace: namespace, sets: map[string]*facts.Facts{}}
}

// OnChange has a function called when a set has appeared or disappeared, without a lock held. It must be called before the first
// Put, and the function must be quick.
func (s *Store) OnChange(f func(name string)) { s.changed = append(s.changed, f) }

// Put adds a set, unless its content is not what its name says: then it is as if it did not exist.
func (s *Store) Put(set *Set) {
	if set.Namespace != s.namespace {
		return
	}
	if set.Verify() != nil {
		s.Remove(set)
		return
	}
	s.mu.Lock()
	_, known := s.sets[set.Name]
	s.sets[set.Name] = set.Spec.Features.Facts // equal content has equal facts
	s.mu.Unlock()
	if !known {
		s.notify(set.Name)
	}
}

// Remove deletes a set.
func (s *Store) Remove(set *Set) {
	if set.Namespace != s.namespace {
		return
	}
	s.mu.Lock()
	_, known := s.sets[set.Name]
	delete(s.sets, set.Name)
	s.mu.Unlock()
	if known {
		s.notify(set.Name)
	}
}

func (s *Store) notify(name string) {
	for _, f := range s.changed {
		f(name)
	}
}

// Len returns the number of sets that count.
func (s *Store) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.sets)
}

// Resolve returns the features of a NodeFeature together with those of the sets that it names, and the names of sets that are
// missing, sorted. If any is missing, the facts are incomplete. A feature of the NodeFeature itself wins over a set of the same
// name. NodeFeatures of other namespaces cannot name sets: their facts are returned as they are.
func (s *Store) Resolve(f *nodefeature.NodeFeature) (resolved *facts.Facts, missing []string) {
	inline := f.Spec.Features.Facts
	if len(f.Spec.FeatureSets) == 0 || f.Namespace != s.namespace {
		return inline, nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := []*facts.Facts{inline}
	for _, name := range f.Spec.FeatureSets {
		switch set, ok := s.sets[name]; {
		case !ok:
			missing = append(missing, name)
		case !overridden(inline, set):
			list = append(list, set)
		}
	}
	slices.Sort(missing)
	return facts.Merge(nodefeature.Interner(), list...), slices.Compact(missing)
}

// overridden reports whether a NodeFeature has the feature of a set itself.
func overridden(inline, set *facts.Facts) bool {
	for _, name := range set.Names() {
		have, feature := inline.Feature(name), set.Feature(name)
		if have != nil && (have.Flags != nil && feature.Flags != nil || have.Attributes != nil && feature.Attributes != nil ||
			have.Instances != nil && feature.Instances != nil) {
			return true
		}
	}
	return false
}

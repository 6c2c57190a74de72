// Package featuresets resolves the NodeFeatureSets that NodeFeatures name.
//
// A set only counts if the digest of its features matches its name: otherwise a client that can create sets could publish other
// features under a name that many nodes use.
package featuresets

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/facts"
)

// Store holds the sets of one namespace, and resolves NodeFeatures. It is safe for concurrent use.
type Store struct {
	namespace string
	synced    chan struct{} // closed once the existing sets are known
	wake      chan struct{} // holds an element if NodeFeatures may have become complete
	changed   chan struct{} // holds an element if Usage or Wrong may have changed

	mu        sync.Mutex
	start     func() // starts the informer of sets; nil: it was started, or Start has not been called
	started   bool   // whether the informer was started
	wanted    bool   // a NodeFeature names a set
	impatient bool   // the existing sets could not be read in time
	sets      map[string]*facts.Facts
	bytes     map[string]int
	wrong     map[string]*assayv1alpha1.NodeFeatureSet          // whose content is not what their names say
	complete  map[types.NamespacedName]*nodefeature.NodeFeature // NodeFeatures that name sets, as last sent with all sets
	waiting   map[types.NamespacedName]*nodefeature.NodeFeature // NodeFeatures whose sets are missing, as published
}

// New returns an empty Store. Namespace is Assay's own.
func New(namespace string) *Store {
	return &Store{
		namespace: namespace, synced: make(chan struct{}), wake: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		sets: map[string]*facts.Facts{}, bytes: map[string]int{}, wrong: map[string]*assayv1alpha1.NodeFeatureSet{},
		complete: map[types.NamespacedName]*nodefeature.NodeFeature{}, waiting: map[types.NamespacedName]*nodefeature.NodeFeature{},
	}
}

// want starts the informer if it is needed. It needs the lock.
func (s *Store) want(needed bool) {
	s.wanted = s.wanted || needed
	if s.wanted && s.start != nil {
		go s.start()
		s.start, s.started = nil, true
	}
}

// Put adds a set, unless its content does not match its name: then it is ignored.
func (s *Store) Put(set *assayv1alpha1.NodeFeatureSet) {
	if set.Namespace != s.namespace {
		return
	}
	err := featureset.Verify(set.Name, &set.Spec.Features)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer tell(s.changed)
	if err != nil {
		s.drop(set.Name)
		if !errors.Is(err, featureset.ErrVersion) {
			s.wrong[set.Name] = set
		}
		return
	}
	delete(s.wrong, set.Name)
	if _, known := s.sets[set.Name]; known {
		return // equal names have equal content
	}
	s.sets[set.Name] = facts.New(&set.Spec.Features, nodefeature.Interner())
	s.bytes[set.Name] = featureset.Size(&set.Spec.Features)
	if len(s.waiting) > 0 {
		tell(s.wake)
	}
}

// tell puts an element into a channel that holds at most one.
func tell(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // the receiver reads everything anyway
	}
}

// Remove removes a set. NodeFeatures that were complete with it keep its features.
func (s *Store) Remove(set *assayv1alpha1.NodeFeatureSet) {
	if set.Namespace != s.namespace {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(set.Name)
	tell(s.changed)
}

// drop deletes a set. It needs the lock.
func (s *Store) drop(name string) {
	delete(s.sets, name)
	delete(s.bytes, name)
	delete(s.wrong, name)
}

// Resolve returns a NodeFeature with the features of its sets, and the sorted names of missing sets. If any is missing, it adds
// none. A feature in the NodeFeature itself has precedence over a set with the same feature. NodeFeatures in other namespaces
// cannot name sets, and are returned unchanged.
func (s *Store) Resolve(f *nodefeature.NodeFeature) (resolved *nodefeature.NodeFeature, missing []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resolve(f)
}

// resolve implements Resolve. The caller holds the lock.
func (s *Store) resolve(f *nodefeature.NodeFeature) (*nodefeature.NodeFeature, []string) {
	if !s.concerns(f) {
		return f, nil
	}
	inline := f.Spec.Features.Facts
	list, bytes := []*facts.Facts{inline}, f.Spec.Features.Bytes
	var missing []string
	for _, name := range f.Spec.FeatureSets {
		set, ok := s.sets[name]
		if !ok {
			missing = append(missing, name)
		} else if !overridden(inline, set) {
			list, bytes = append(list, set), bytes+s.bytes[name]
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return f, slices.Compact(missing)
	}
	out := *f
	out.Spec.Features.Facts, out.Spec.Features.Bytes = facts.Merge(nodefeature.Interner(), list...), bytes
	return &out, nil
}

// concerns reports whether a NodeFeature includes features from sets.
func (s *Store) concerns(f *nodefeature.NodeFeature) bool {
	return len(f.Spec.FeatureSets) > 0 && f.Namespace == s.namespace && f.Spec.Features.Err == nil
}

// overridden reports whether a NodeFeature itself contains the feature of a set.
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

// MissingError means that a NodeFeature names sets that do not exist, or whose content does not match their names.
type MissingError struct{ Sets []string }

// Error implements error.
func (e *MissingError) Error() string {
	return fmt.Sprintf("NodeFeatureSets that it names are missing: %s; its worker creates them again", strings.Join(e.Sets, ", "))
}

// IsMissing reports whether an error says that sets are missing.
func IsMissing(err error) bool {
	var missing *MissingError
	return errors.As(err, &missing)
}

func keyOf(f *nodefeature.NodeFeature) types.NamespacedName {
	return types.NamespacedName{Namespace: f.Namespace, Name: f.Name}
}

// admit returns a NodeFeature for the informer: with the features of its sets or, while sets are missing, with the features of its
// last complete version, or with a MissingError if there is none.
func (s *Store) admit(f *nodefeature.NodeFeature) *nodefeature.NodeFeature {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(f)
	if !s.concerns(f) {
		s.lose(key)
		return f
	}
	s.want(true)
	if !slices.Equal(s.names(key), f.Spec.FeatureSets) {
		tell(s.changed)
	}
	out, missing := s.resolve(f)
	if len(missing) == 0 {
		s.complete[key] = out
		delete(s.waiting, key)
		return out
	}
	s.waiting[key] = f
	tell(s.changed)
	shown := *f
	if last := s.complete[key]; last != nil && last.UID == f.UID {
		shown.Spec = last.Spec
	} else {
		shown.Spec.Features = nodefeature.Features{Err: &MissingError{missing}}
	}
	return &shown
}

// names returns the sets that a NodeFeature is known to name. It needs the lock.
func (s *Store) names(key types.NamespacedName) []string {
	if f := s.waiting[key]; f != nil {
		return f.Spec.FeatureSets
	}
	if f := s.complete[key]; f != nil {
		return f.Spec.FeatureSets
	}
	return nil
}

// forget removes a deleted NodeFeature.
func (s *Store) forget(f *nodefeature.NodeFeature) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose(keyOf(f))
}

// lose is forget. It needs the lock.
func (s *Store) lose(key types.NamespacedName) {
	if s.names(key) != nil {
		tell(s.changed)
	}
	delete(s.complete, key)
	delete(s.waiting, key)
}

// arrived returns the NodeFeatures that have become complete, as published.
func (s *Store) arrived() []*nodefeature.NodeFeature {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*nodefeature.NodeFeature
	for _, f := range s.waiting {
		if _, missing := s.resolve(f); len(missing) == 0 {
			out = append(out, f)
		}
	}
	return out
}

// again marks a complete NodeFeature that could not be sent.
func (s *Store) again(f *nodefeature.NodeFeature) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[keyOf(f)] = f
	tell(s.wake)
}

// Changed returns a channel that holds an element if the results of Usage or Wrong may have changed. It is for one receiver.
func (s *Store) Changed() <-chan struct{} { return s.changed }

// Usage says which sets NodeFeatures name.
type Usage struct {
	// Nodes is the number of NodeFeatures by the set that they name.
	Nodes map[string]int
	// Missing has the NodeFeatures, in no order, by the set that they name and that does not exist or is wrong.
	Missing map[string][]types.NamespacedName
}

// Usage returns which sets NodeFeatures name. Sets of other format versions are never missing.
func (s *Store) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := Usage{Nodes: map[string]int{}, Missing: map[string][]types.NamespacedName{}}
	count := func(key types.NamespacedName, names []string) {
		for _, name := range names {
			u.Nodes[name]++
			if s.sets[name] == nil && featureset.Known(name) == nil {
				u.Missing[name] = append(u.Missing[name], key)
			}
		}
	}
	for key, f := range s.waiting {
		count(key, f.Spec.FeatureSets)
	}
	for key, f := range s.complete {
		if s.waiting[key] == nil {
			count(key, f.Spec.FeatureSets)
		}
	}
	return u
}

// Wrong returns the sets whose content is not what their names say. They must not be modified.
func (s *Store) Wrong() []*assayv1alpha1.NodeFeatureSet {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.wrong))
}

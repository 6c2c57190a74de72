// Package featuresets resolves the NodeFeatureSets that NodeFeatures name.
//
// A set only counts if the digest of its features matches its name: otherwise a client that can create sets could publish other
// features under a name that many nodes use.
package featuresets

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

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

	mu        sync.Mutex
	start     func() // starts the informer of sets; nil: it was started, or Start has not been called
	started   bool   // whether the informer was started
	wanted    bool   // a NodeFeature names a set
	impatient bool   // the existing sets could not be read in time
	sets      map[string]*facts.Facts
	bytes     map[string]int
	complete  map[types.NamespacedName]*nodefeature.NodeFeature // NodeFeatures that name sets, as last sent with all sets
	waiting   map[types.NamespacedName]*nodefeature.NodeFeature // NodeFeatures whose sets are missing, as published
}

// New returns an empty Store. Namespace is Assay's own.
func New(namespace string) *Store {
	return &Store{
		namespace: namespace, synced: make(chan struct{}), wake: make(chan struct{}, 1), sets: map[string]*facts.Facts{}, bytes: map[string]int{},
		complete: map[types.NamespacedName]*nodefeature.NodeFeature{}, waiting: map[types.NamespacedName]*nodefeature.NodeFeature{},
	}
}

// Start sets the cache for sets, which must construct its informers with Informers. The cache watches sets from the time at which
// the first NodeFeature names one: an installation without shared features needs no permission to read them.
func (s *Store) Start(ctx context.Context, c cache.Cache) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start = func() {
		if _, err := c.GetInformer(ctx, &assayv1alpha1.NodeFeatureSet{}, cache.BlockUntilSynced(false)); err != nil && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Cannot watch NodeFeatureSets")
		}
	}
	s.want(s.wanted)
}

// want starts the informer if necessary. The caller holds the lock.
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
	if featureset.Verify(set.Name, &set.Spec.Features) != nil {
		s.Remove(set)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.sets[set.Name]; known {
		return // equal names have equal content
	}
	s.sets[set.Name] = facts.New(&set.Spec.Features, nodefeature.Interner())
	s.bytes[set.Name] = featureset.Size(&set.Spec.Features)
	if len(s.waiting) > 0 {
		s.rouse()
	}
}

// rouse makes the watch of NodeFeatures check those that wait.
func (s *Store) rouse() {
	select {
	case s.wake <- struct{}{}:
	default: // everything that waits is checked anyway
	}
}

// Remove removes a set. NodeFeatures that were complete with it keep its features.
func (s *Store) Remove(set *assayv1alpha1.NodeFeatureSet) {
	if set.Namespace != s.namespace {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sets, set.Name)
	delete(s.bytes, set.Name)
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
		delete(s.complete, key)
		delete(s.waiting, key)
		return f
	}
	s.want(true)
	out, missing := s.resolve(f)
	if len(missing) == 0 {
		s.complete[key] = out
		delete(s.waiting, key)
		return out
	}
	s.waiting[key] = f
	shown := *f
	if last := s.complete[key]; last != nil && last.UID == f.UID {
		shown.Spec = last.Spec
	} else {
		shown.Spec.Features = nodefeature.Features{Err: &MissingError{missing}}
	}
	return &shown
}

// forget removes a deleted NodeFeature.
func (s *Store) forget(f *nodefeature.NodeFeature) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(f)
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
	s.rouse()
}

// Missing returns, by NodeFeature, the named sets that do not exist.
func (s *Store) Missing() map[types.NamespacedName][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[types.NamespacedName][]string{}
	for key, f := range s.waiting {
		if _, missing := s.resolve(f); len(missing) > 0 {
			out[key] = missing
		}
	}
	return out
}

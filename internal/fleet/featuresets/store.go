// Package featuresets resolves the NodeFeatureSets that NodeFeatures name.
//
// A set counts only if its features have the digest that its name contains: a client that may create sets could otherwise give a name
// that many nodes use other features.
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
	synced    chan struct{} // closed once the sets that exist are known
	wake      chan struct{} // holds an element if NodeFeatures may have become complete

	mu        sync.Mutex
	start     func() // starts the informer of sets; nil: it is started, or Start has not been called
	started   bool   // the informer
	wanted    bool   // a NodeFeature names a set
	impatient bool   // the sets that exist could not be had in time
	sets      map[string]*facts.Facts
	bytes     map[string]int
	complete  map[types.NamespacedName]*nodefeature.NodeFeature // as shown last with all of its sets; only those that name sets
	waiting   map[types.NamespacedName]*nodefeature.NodeFeature // as published; those that lack sets
}

// New returns a Store without sets. Namespace is Assay's own.
func New(namespace string) *Store {
	return &Store{
		namespace: namespace, synced: make(chan struct{}), wake: make(chan struct{}, 1), sets: map[string]*facts.Facts{}, bytes: map[string]int{},
		complete: map[types.NamespacedName]*nodefeature.NodeFeature{}, waiting: map[types.NamespacedName]*nodefeature.NodeFeature{},
	}
}

// Start says which cache has the sets. The cache must construct its informers with Informers. It watches sets from the time at
// which the first NodeFeature names one: an installation that does not share features needs no permission to read them.
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

// want starts the informer if it is needed. It needs the lock.
func (s *Store) want(needed bool) {
	s.wanted = s.wanted || needed
	if s.wanted && s.start != nil {
		go s.start()
		s.start, s.started = nil, true
	}
}

// Put adds a set, unless its content is not what its name says: then it is as if it did not exist.
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

// rouse has the watch of NodeFeatures check those that wait.
func (s *Store) rouse() {
	select {
	case s.wake <- struct{}{}:
	default: // everything that waits is checked anyway
	}
}

// Remove deletes a set. NodeFeatures that were complete with it stay as they are shown.
func (s *Store) Remove(set *assayv1alpha1.NodeFeatureSet) {
	if set.Namespace != s.namespace {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sets, set.Name)
	delete(s.bytes, set.Name)
}

// Resolve returns a NodeFeature with the features of the sets that it names, and the names of those that are missing, sorted. If any
// is missing, nothing is added. A feature of the NodeFeature itself wins over a set of the same name. NodeFeatures of other namespaces
// cannot name sets, and are returned as they are.
func (s *Store) Resolve(f *nodefeature.NodeFeature) (resolved *nodefeature.NodeFeature, missing []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resolve(f)
}

// resolve is Resolve. It needs the lock.
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

// concerns reports whether the features of a NodeFeature are those of sets too.
func (s *Store) concerns(f *nodefeature.NodeFeature) bool {
	return len(f.Spec.FeatureSets) > 0 && f.Namespace == s.namespace && f.Spec.Features.Err == nil
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

// MissingError says that a NodeFeature names sets that do not exist, or whose content is not what their names say.
type MissingError struct{ Sets []string }

// Error implements error.
func (e *MissingError) Error() string {
	return fmt.Sprintf("NodeFeatureSets that it names are missing: %s; its worker creates them again", strings.Join(e.Sets, ", "))
}

func keyOf(f *nodefeature.NodeFeature) types.NamespacedName {
	return types.NamespacedName{Namespace: f.Namespace, Name: f.Name}
}

// admit returns a NodeFeature as the informer is given it: with the features of its sets; or, while sets are missing, with the features
// of its last complete version, or with a MissingError if there is none.
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

// forget drops what is known of a NodeFeature that was deleted.
func (s *Store) forget(f *nodefeature.NodeFeature) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(f)
	delete(s.complete, key)
	delete(s.waiting, key)
}

// arrived returns the NodeFeatures that have become complete since they were shown, as they are published.
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

// again marks a NodeFeature that is complete and could not be shown.
func (s *Store) again(f *nodefeature.NodeFeature) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[keyOf(f)] = f
	s.rouse()
}

// Missing returns the sets that NodeFeatures name and that do not exist, by NodeFeature.
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

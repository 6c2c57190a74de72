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
	"time"

	"k8s.io/apimachinery/pkg/types"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
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
	read      Read   // reads a set again whose features were dropped; nil: none are dropped
	started   bool   // whether the informer was started
	wanted    bool   // a NodeFeature names a set
	impatient bool   // the existing sets could not be read in time
	sets      map[string]*held
	wrong     map[string]*assayv1alpha1.NodeFeatureSet          // whose content is not what their names say, without it
	nodes     map[types.NamespacedName]*entry                   // NodeFeatures that name sets
	waiting   map[types.NamespacedName]*nodefeature.NodeFeature // those of them whose sets are missing, as published
	refs      map[string]int                                    // number of NodeFeatures by the set that they name
	unused    int                                               // bytes of features in memory that no NodeFeature names
	dropped   int                                               // number of sets whose features were dropped
	reported  bool                                              // whether that was logged
}

// held is a set whose content matches its name.
type held struct {
	uid     types.UID
	created time.Time
	facts   *facts.Facts // nil: dropped, because no NodeFeature named the set
	content Content
}

// Content describes the features of a set.
type Content struct {
	Feature         string
	Elements, Bytes int
}

// entry is what is known of a NodeFeature that names sets.
type entry struct {
	names    []string          // the sets that it names, sorted; nil if it names too much
	uid      types.UID         // of the object that was last sent with all sets
	complete *nodefeature.Spec // its spec, a copy: the object itself belongs to the informer; nil: none was
}

// New returns an empty Store. Namespace is Assay's own.
func New(namespace string) *Store {
	return &Store{
		namespace: namespace, synced: make(chan struct{}), wake: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		sets: map[string]*held{}, wrong: map[string]*assayv1alpha1.NodeFeatureSet{}, nodes: map[types.NamespacedName]*entry{},
		waiting: map[types.NamespacedName]*nodefeature.NodeFeature{}, refs: map[string]int{},
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
			s.wrong[set.Name] = bare(set)
		}
		return
	}
	delete(s.wrong, set.Name)
	h := s.sets[set.Name]
	if h != nil && h.facts != nil {
		h.uid, h.created = set.UID, set.CreationTimestamp.Time // equal names have equal content
		return
	}
	s.drop(set.Name)
	s.sets[set.Name] = &held{
		uid: set.UID, created: set.CreationTimestamp.Time, facts: facts.New(&set.Spec.Features, nodefeature.Interner()), content: contentOf(&set.Spec.Features),
	}
	if s.refs[set.Name] == 0 {
		s.unused += s.sets[set.Name].content.Bytes
		s.trim()
	}
	if len(s.waiting) > 0 {
		tell(s.wake)
	}
}

func contentOf(f *nfdv1alpha1.Features) Content {
	name, _ := featureset.Feature(f) // verified
	return Content{
		Feature: name, Bytes: featureset.Size(f),
		Elements: len(f.Flags[name].Elements) + len(f.Attributes[name].Elements) + len(f.Instances[name].Elements),
	}
}

// bare returns a set without its features.
func bare(set *assayv1alpha1.NodeFeatureSet) *assayv1alpha1.NodeFeatureSet {
	out := *set
	out.Spec, out.ManagedFields = assayv1alpha1.NodeFeatureSetSpec{}, nil
	return &out
}

// Content returns what a set contains. It reports false if the set does not exist or is wrong.
func (s *Store) Content(name string) (Content, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.sets[name]; h != nil {
		return h.content, true
	}
	return Content{}, false
}

// Features returns a copy of the features of a set, or nil if they are not in memory.
func (s *Store) Features(name string) *nfdv1alpha1.Features {
	s.mu.Lock()
	var f *facts.Facts
	if h := s.sets[name]; h != nil {
		f = h.facts
	}
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f.Features() // does not need the lock: facts are immutable
}

// tell puts an element into a channel that holds at most one.
func tell(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // the receiver reads everything anyway
	}
}

// Remove removes a set. NodeFeatures that were complete with it keep its features. It ignores a set that another one of its name has
// replaced.
func (s *Store) Remove(set *assayv1alpha1.NodeFeatureSet) {
	if set.Namespace != s.namespace {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.sets[set.Name]; h != nil && h.uid != set.UID {
		return
	}
	if wrong := s.wrong[set.Name]; wrong != nil && wrong.UID != set.UID {
		return
	}
	s.drop(set.Name)
	tell(s.changed)
}

// drop deletes a set. It needs the lock.
func (s *Store) drop(name string) {
	if h := s.sets[name]; h != nil {
		switch {
		case h.facts == nil:
			s.dropped--
		case s.refs[name] == 0:
			s.unused -= h.content.Bytes
		}
	}
	delete(s.sets, name)
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
	if pruned(f) {
		return f, []string{assayv1alpha1.PrunedFeatureSets}
	}
	inline := f.Spec.Features.Facts
	list, bytes := []*facts.Facts{inline}, f.Spec.Features.Bytes
	var missing []string
	for _, name := range f.Spec.FeatureSets {
		h := s.sets[name]
		if h == nil || h.facts == nil {
			missing = append(missing, name)
		} else if !overridden(inline, h.facts) {
			list, bytes = append(list, h.facts), bytes+h.content.Bytes
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
	return (len(f.Spec.FeatureSets) > 0 || pruned(f)) && f.Namespace == s.namespace && f.Spec.Features.Err == nil
}

// pruned reports whether the API server dropped the names of sets that a worker wrote, because the CustomResourceDefinition of another
// installation does not have the field.
func pruned(f *nodefeature.NodeFeature) bool {
	return len(f.Spec.FeatureSets) == 0 && f.Annotations[assayv1alpha1.FeatureSetsAnnotation] != ""
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

// MissingError means that a NodeFeature names sets that do not exist, or whose content does not match their names, or too many.
type MissingError struct {
	Sets []string
	// Bytes is the size of the NodeFeature with its sets, if that is too large; otherwise 0.
	Bytes int
}

// Error implements error.
func (e *MissingError) Error() string {
	if e.Bytes > 0 {
		return fmt.Sprintf("it has %d bytes with the NodeFeatureSets that it names; at most %d are read: publish less", e.Bytes, MaxBytes)
	}
	if slices.Contains(e.Sets, assayv1alpha1.PrunedFeatureSets) {
		return "the API server dropped spec.featureSets: apply the CustomResourceDefinition nodefeatures." + nfdv1alpha1.GroupName +
			" of Assay, unless that was done and the worker has not published since"
	}
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
		s.lose(key)
		return f
	}
	s.want(true)
	f.ManagedFields = nil // the entry keeps it
	e, err := s.claim(f), s.oversized(f)
	if err == nil {
		out, missing := s.resolve(f)
		if len(missing) == 0 {
			spec := out.Spec
			e.uid, e.complete = out.UID, &spec
			delete(s.waiting, key)
			return out
		}
		err = &MissingError{Sets: missing}
	}
	s.waiting[key] = f
	tell(s.changed)
	return e.stale(f, err)
}

// stale returns a NodeFeature with the features of its last complete version, or with an error if there is none.
func (e *entry) stale(f *nodefeature.NodeFeature, err error) *nodefeature.NodeFeature {
	shown := *f
	if e != nil && e.complete != nil && e.uid == f.UID {
		shown.Spec = *e.complete
	} else {
		shown.Spec.Features = nodefeature.Features{Err: err}
	}
	return &shown
}

// claim records which sets a NodeFeature names, so that their features stay in memory. It needs the lock.
func (s *Store) claim(f *nodefeature.NodeFeature) *entry {
	key := keyOf(f)
	e := s.nodes[key]
	if e == nil {
		e = &entry{}
		s.nodes[key] = e
	}
	var names []string
	if s.oversized(f) == nil {
		if names = f.Spec.FeatureSets; !slices.IsSorted(names) {
			names = slices.Sorted(slices.Values(names))
		}
	}
	s.count(e, names)
	return e
}

// count replaces the names of an entry. It needs the lock.
func (s *Store) count(e *entry, names []string) {
	if slices.Equal(e.names, names) {
		return
	}
	for _, name := range names {
		if h := s.sets[name]; s.refs[name] == 0 && h != nil && h.facts != nil {
			s.unused -= h.content.Bytes
		}
		s.refs[name]++
	}
	for _, name := range e.names {
		if s.refs[name]--; s.refs[name] > 0 {
			continue
		}
		delete(s.refs, name)
		if h := s.sets[name]; h != nil && h.facts != nil {
			s.unused += h.content.Bytes
		}
	}
	e.names = names
	tell(s.changed)
	s.trim()
}

// forget removes a deleted NodeFeature, and returns it with the features that it had, because they count for the grace period.
func (s *Store) forget(f *nodefeature.NodeFeature) *nodefeature.NodeFeature {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(f)
	out, missing := s.resolve(f)
	if len(missing) > 0 {
		out = s.nodes[key].stale(f, &MissingError{Sets: missing})
	}
	s.lose(key)
	return out
}

// lose is forget. It needs the lock.
func (s *Store) lose(key types.NamespacedName) {
	if e := s.nodes[key]; e != nil {
		s.count(e, nil)
	}
	delete(s.nodes, key)
	delete(s.waiting, key)
}

// arrived returns the NodeFeatures that have become complete, or too large, as published.
func (s *Store) arrived() []*nodefeature.NodeFeature {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*nodefeature.NodeFeature
	for key, f := range s.waiting {
		if s.oversized(f) != nil {
			if s.nodes[key].names != nil {
				out = append(out, f)
			}
		} else if _, missing := s.resolve(f); len(missing) == 0 {
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
	// Pruned are the NodeFeatures, in no order, that named sets before the API server dropped the field.
	Pruned []types.NamespacedName
}

// Usage returns which sets NodeFeatures name. Sets of other format versions are never missing.
func (s *Store) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := Usage{Nodes: maps.Clone(s.refs), Missing: map[string][]types.NamespacedName{}}
	for name := range s.refs {
		if s.sets[name] == nil && featureset.Known(name) == nil {
			u.Missing[name] = []types.NamespacedName{}
		}
	}
	for key, f := range s.waiting {
		if pruned(f) {
			u.Pruned = append(u.Pruned, key)
		}
	}
	if len(u.Missing) == 0 {
		return u
	}
	for key, e := range s.nodes {
		for _, name := range e.names {
			if list, ok := u.Missing[name]; ok {
				u.Missing[name] = append(list, key)
			}
		}
	}
	return u
}

// Wrong returns the sets whose content is not what their names say, without it. They must not be modified.
func (s *Store) Wrong() []*assayv1alpha1.NodeFeatureSet {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.wrong), func(a, b *assayv1alpha1.NodeFeatureSet) int { return strings.Compare(a.Name, b.Name) })
}

package nodefeature

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/gather"
)

// Limits of the memory that a process uses for NodeFeatures other than the workers' own. A worker has one per Node, which always
// counts.
const (
	// MaxForeign is the maximum number of NodeFeatures of other publishers that count for a Node. Operators publish one each; a
	// node has about five.
	MaxForeign = 64
	// MaxForeignBytes is the maximum total size in bytes of the NodeFeatures of other publishers for a Node: two of the largest that the webhook accepts.
	MaxForeignBytes = 2 << 20
	// MaxMissing is the maximum number of NodeFeatures of other publishers in the cluster that are kept for Nodes that do not
	// exist: enough for objects that are published shortly before their Node is created. They are read again when it is created.
	MaxMissing = 256
	// MaxMissingBytes is the maximum total size in bytes of the NodeFeatures that are kept for Nodes that do not exist: 1/32 of the webhook's memory limit, the smallest of all
	// components that cache them.
	MaxMissingBytes = 8 << 20
)

// objectBytes is the number of bytes that an object counts in addition to its content.
const objectBytes = 1 << 10

// Budget decides of which NodeFeatures a process keeps the features. Older objects have precedence, and for the same second the
// namespace and name decide, independent of the order in which they arrive. An object that does not fit does not block smaller ones
// after it. It is safe for concurrent use.
type Budget struct {
	namespace string

	mu      sync.Mutex
	nodes   map[string]bool
	entries map[types.NamespacedName]*entry
	shares  map[string]*share // by existing Node
	missing *share
	due     map[*entry]bool // entries whose cached state differs from the decision
	wake    chan struct{}   // holds an element if something might be due
}

// share is a set of objects that share a limit.
type share struct {
	objects, bytes int
	node           string   // empty: Nodes that do not exist
	list           []*entry // in order of precedence
	kept           []*entry
}

// entry is a NodeFeature that is not a worker's own.
type entry struct {
	key     types.NamespacedName
	rest    *NodeFeature // without its features
	bytes   int
	share   *share
	counts  bool
	shown   bool // the informer has received the features
	settled bool // the informer has received the object
}

// NewBudget returns a Budget. Namespace is Assay's own.
func NewBudget(namespace string) *Budget {
	return &Budget{
		namespace: namespace, nodes: map[string]bool{}, entries: map[types.NamespacedName]*entry{}, shares: map[string]*share{},
		missing: &share{objects: MaxMissing, bytes: MaxMissingBytes}, due: map[*entry]bool{}, wake: make(chan struct{}, 1),
	}
}

// LeftOut returns the number of NodeFeatures over the budget.
func (b *Budget) LeftOut() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.entries)
	for _, e := range b.entries {
		if e.counts {
			n--
		}
	}
	return n
}

// Fits returns an error if an object of the given size exceeds the budget together with the objects that count now.
func (b *Budget) Fits(namespace, name, node string, bytes int) error {
	if named(namespace, name, node).ownOf(b.namespace) {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.missing
	if b.nodes[node] {
		if s = b.shares[node]; s == nil {
			return nil
		}
	}
	objects := 1
	for _, e := range s.kept {
		if e.key.Namespace != namespace || e.key.Name != name {
			objects, bytes = objects+1, bytes+e.bytes
		}
	}
	if objects > s.objects || bytes > s.bytes {
		return fmt.Errorf("with this object there would be %d objects of %d bytes: %w", objects, bytes, s.err())
	}
	return nil
}

func named(namespace, name, node string) *NodeFeature {
	return &NodeFeature{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: node},
	}}
}

var errOver = errors.New("NodeFeatures")

// Over reports whether an object is ignored because it exceeds the budget.
func (f *Features) Over() bool { return errors.Is(f.Err, errOver) }

// err returns why an object does not count.
func (s *share) err() error {
	if s.node == "" {
		return fmt.Errorf("%w of Nodes that do not exist are limited to %d objects and %d bytes in the cluster, oldest first; delete some of them",
			errOver, s.objects, s.bytes)
	}
	return fmt.Errorf("%w of node %q are limited to %d objects and %d bytes in addition to the worker's own, oldest first; delete some of them, or publish less",
		errOver, s.node, s.objects, s.bytes)
}

// admit returns the object for the informer: unchanged, or without its features.
func (b *Budget) admit(f *NodeFeature) *NodeFeature {
	key := types.NamespacedName{Namespace: f.Namespace, Name: f.Name}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(b.entries[key])
	if f.ownOf(b.namespace) {
		return f
	}
	e := &entry{key: key, rest: f.bare(), bytes: f.bytes()}
	b.entries[key] = e
	b.join(e)
	delete(b.due, e)
	e.settled, e.shown = true, e.counts
	if e.counts {
		return f
	}
	return e.without()
}

// forget releases the budget of an object.
func (b *Budget) forget(f *NodeFeature) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[types.NamespacedName{Namespace: f.Namespace, Name: f.Name}]; e != nil && e.rest.UID == f.UID {
		b.drop(e)
	}
}

// stale reports whether a newer version of the object was passed to the informer.
func (b *Budget) stale(f *NodeFeature) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[types.NamespacedName{Namespace: f.Namespace, Name: f.Name}]
	return e != nil && e.rest.UID == f.UID && older(f.ResourceVersion, e.rest.ResourceVersion)
}

// node records that a Node exists, or was deleted.
func (b *Budget) node(name string, exists bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.nodes[name] == exists {
		return
	}
	from := b.missing
	if exists {
		b.nodes[name] = true
	} else {
		delete(b.nodes, name)
		from = b.shares[name]
	}
	if from == nil {
		return
	}
	for _, e := range slices.Clone(from.list) {
		if e.rest.NodeName() == name {
			from.remove(e)
			b.join(e)
		}
	}
	b.settle(from)
	if !exists {
		delete(b.shares, name)
	}
}

// join adds an entry to its share.
func (b *Budget) join(e *entry) {
	s, node := b.missing, e.rest.NodeName()
	if b.nodes[node] {
		if s = b.shares[node]; s == nil {
			s = &share{objects: MaxForeign, bytes: MaxForeignBytes, node: node}
			b.shares[node] = s
		}
	}
	e.share, e.counts = s, false
	i, _ := slices.BinarySearchFunc(s.list, e, compare)
	s.list = slices.Insert(s.list, i, e)
	b.settle(s)
}

func (s *share) remove(e *entry) {
	if i, ok := slices.BinarySearchFunc(s.list, e, compare); ok {
		s.list = slices.Delete(s.list, i, i+1)
	}
}

func (b *Budget) drop(e *entry) {
	if e == nil {
		return
	}
	delete(b.entries, e.key)
	delete(b.due, e)
	e.share.remove(e)
	b.settle(e.share)
	if s := e.share; len(s.list) == 0 && s != b.missing {
		delete(b.shares, s.node)
	}
}

// settle decides which objects count, and marks those whose cached state differs.
func (b *Budget) settle(s *share) {
	before := s.kept
	for _, e := range before {
		if e.share == s {
			e.counts = false
		}
	}
	s.fill()
	for _, list := range [][]*entry{before, s.kept} {
		for _, e := range list {
			b.mark(e)
		}
	}
}

// fill decides which objects of a share count.
func (s *share) fill() {
	objects, bytes := s.objects, s.bytes
	s.kept = nil
	for _, e := range s.list {
		if objects == 0 || bytes < objectBytes {
			break
		}
		if e.bytes <= bytes {
			objects, bytes = objects-1, bytes-e.bytes
			e.counts, s.kept = true, append(s.kept, e)
		}
	}
}

// Limit sets the error of those NodeFeatures of one existing node that exceed the budget of a program with Assay's namespace.
func Limit(namespace, node string, all []gather.Published) {
	s := &share{objects: MaxForeign, bytes: MaxForeignBytes, node: node}
	entries := make([]*entry, len(all))
	for i, p := range all {
		if (gather.Policy{Namespace: namespace}).Own(p) {
			continue
		}
		f := named(p.Namespace, p.Name, node)
		f.CreationTimestamp, f.Spec.Labels, f.Spec.Features.Bytes = p.Created, p.Labels, p.Bytes
		entries[i] = &entry{key: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, rest: f, bytes: f.bytes()}
		s.list = append(s.list, entries[i])
	}
	slices.SortFunc(s.list, compare)
	s.fill()
	for i, e := range entries {
		if e != nil && !e.counts {
			all[i].Err = s.err()
		}
	}
}

func (b *Budget) mark(e *entry) {
	if b.entries[e.key] != e || e.counts == e.shown || !e.settled {
		delete(b.due, e)
		return
	}
	b.due[e] = true
	select {
	case b.wake <- struct{}{}:
	default: // everything that is due has been read
	}
}

// revise returns an object whose features must be dropped, or else one that must be read again; nil: nothing is due.
func (b *Budget) revise() (without, again *NodeFeature) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for e := range b.due {
		if !e.counts {
			delete(b.due, e)
			e.shown = false
			return e.without(), nil
		}
		again = e.rest
	}
	if again != nil {
		delete(b.due, b.entries[types.NamespacedName{Namespace: again.Namespace, Name: again.Name}])
	}
	return nil, again
}

// without returns the object without its features.
func (e *entry) without() *NodeFeature {
	f := *e.rest
	f.Spec.Features.Err = e.share.err()
	return &f
}

// retry marks an object that could not be read.
func (b *Budget) retry(f *NodeFeature) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[types.NamespacedName{Namespace: f.Namespace, Name: f.Name}]; e != nil {
		b.mark(e)
	}
}

// bare returns the object with the fields that are read even if it does not count.
func (f *NodeFeature) bare() *NodeFeature {
	out := &NodeFeature{TypeMeta: f.TypeMeta, ObjectMeta: f.ObjectMeta, Named: f.Named}
	out.slim()
	return out
}

// bytes returns the part of the budget that an object uses.
func (f *NodeFeature) bytes() int {
	n := objectBytes + f.Spec.Features.Bytes
	for _, m := range []map[string]string{f.Labels, f.Annotations, f.Spec.Labels} {
		for k, v := range m {
			n += len(k) + len(v)
		}
	}
	return n
}

func compare(a, b *entry) int {
	return cmp.Or(a.rest.CreationTimestamp.Compare(b.rest.CreationTimestamp.Time),
		cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name))
}

// older compares resourceVersions; invalid numbers count as not older.
func older(a, b string) bool {
	n, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && n < 0
}

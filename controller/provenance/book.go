package provenance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/internal/record"
)

// Pass is the state of a node after a pass.
type Pass struct {
	// Generation of the rules that were carried out.
	Generation int64
	// Given lists the keys that the rules gave the Node; nil if there are none.
	Given *Given
	// Held lists the objects that gave keys that the Node has and the rules do not give.
	Held []Gave
}

// Fleet holds the functions through which a Book reads the cluster.
type Fleet struct {
	// Nodes returns the number of Nodes; 0: there are none, or they cannot be counted.
	Nodes func(context.Context) int
	// Objects returns the active objects by ID, and the generation of the rules.
	Objects func() (generation int64, active map[string]Owner)
	// State returns the state of an object that is not active.
	State func(Owner) State
	// Definitions returns the UIDs of the definitions of the kinds of objects, by name.
	Definitions func() map[string]string
}

// Book maintains the record of which objects gave keys to nodes, in memory and in a Store. It is safe for concurrent use.
type Book struct {
	store *Store
	fleet Fleet

	flushing sync.Mutex             // held while the record is written
	past     atomic.Pointer[Record] // the record at the start of this process, which is never modified; read by State, too

	mu      sync.Mutex
	read    int // number of the last Read; 0: the record must be read
	record  *Record
	written string // the record in the store
	changes int    // number of changes of the record
	stored  int    // number of changes that the store has
	mute    bool   // writing to the store is forbidden

	passes     map[string]Pass
	pending    map[string][]Gave // by node: covered, not known to be written
	generation int64             // of the rules that nodes are evaluated with
	done       int               // nodes that were evaluated with it
	total      int               // number of Nodes when they were last counted; 0: they have to be counted
	complete   bool              // the record was rebuilt for the generation
}

// NewBook returns a book that has not read the record yet.
func NewBook(store *Store, fleet Fleet) *Book {
	return &Book{store: store, fleet: fleet, generation: -1, passes: map[string]Pass{}, pending: map[string][]Gave{}}
}

// Load reads the record if this process has not read it. The first time it returns the objects that have given keys and are not
// active: the caller must check with the API server whether they have been deleted.
func (b *Book) Load(ctx context.Context) (absent []Owner, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.read != 0 {
		return nil, nil
	}
	m, read, err := b.store.Read(ctx)
	if err != nil {
		return nil, err
	}
	text := m.Data[record.DataKey]
	stored, err := record.Decode(text)
	if err != nil {
		logf.FromContext(ctx).Error(err, "Cannot read which rules gave keys; holding removals that current rules do not explain", "key", record.DataKey)
		stored = &Record{}
	}
	b.read, b.written = read, text
	if b.past.Load() != nil { // another process has written the record and could have given keys too
		b.record.Merge(stored)
		b.changes++
		return nil, nil
	}
	b.past.Store(stored)
	b.record = stored.Clone()
	_, active := b.fleet.Objects()
	for _, id := range slices.Sorted(maps.Keys(stored.Objects)) {
		if _, ok := active[id]; !ok {
			e := stored.Objects[id]
			absent = append(absent, Owner{ID: id, Name: e.Name, Print: e.Rolled})
		}
	}
	return absent, nil
}

// Unload makes the next Load read the record again, as the first time.
func (b *Book) Unload() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read = 0
	b.past.Store(nil)
}

// Past returns the record at the start of this process. The caller must not modify it.
func (b *Book) Past() *Record { return b.past.Load() }

// Record returns after the store has recorded that objects give these keys to a node. It writes nothing if the store has them
// already.
func (b *Book) Record(ctx context.Context, node string, list []Gave) error {
	b.mu.Lock()
	for _, g := range list {
		if !b.record.Covers(g.Owner, g.Key) {
			b.record.Add(g.Owner, g.Key)
			b.changes++
		}
	}
	if before := b.pending[node]; before != nil {
		b.pending[node] = slices.Concat(before, list)
	} else if len(list) > 0 {
		b.pending[node] = list
	}
	want := b.changes
	b.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	return b.flush(ctx, want)
}

// Passed records the state of a node. Once all nodes have been evaluated with the current rules, the record is rebuilt, and written
// if it has changed.
func (b *Book) Passed(ctx context.Context, node string, p Pass) error {
	b.mu.Lock()
	last, known := b.passes[node]
	b.passes[node] = p
	delete(b.pending, node)
	if p.Generation > b.generation {
		b.generation, b.done, b.total, b.complete = p.Generation, 0, 0, false
	}
	if p.Generation == b.generation && (!known || last.Generation != p.Generation) {
		b.done++
	}
	finished := b.finish(ctx)
	want := b.changes
	b.mu.Unlock()
	if !finished {
		return nil
	}
	return b.flush(ctx, want)
}

// Forget deletes the state of a deleted node, which may be the one that Passed was waiting for.
func (b *Book) Forget(ctx context.Context, node string) error {
	b.mu.Lock()
	if p, ok := b.passes[node]; ok && p.Generation == b.generation {
		b.done--
	}
	delete(b.passes, node)
	delete(b.pending, node)
	b.total = 0
	finished := b.finish(ctx)
	want := b.changes
	b.mu.Unlock()
	if !finished {
		return nil
	}
	return b.flush(ctx, want)
}

// finish rebuilds the record from the state of the nodes if all nodes have been evaluated. The caller holds the lock.
func (b *Book) finish(ctx context.Context) bool {
	if b.complete || b.done < b.total {
		return false
	}
	if b.total = b.fleet.Nodes(ctx); b.total == 0 || b.done < b.total { // 0: they could not be counted
		return false
	}
	generation, active := b.fleet.Objects()
	if generation != b.generation {
		return false // which the nodes are about to be evaluated with
	}
	next := &Record{Whole: true}
	for id, g := range active {
		next.Put(id, &Entry{Name: g.Name, Rolled: g.Print, Keys: map[Key]bool{}})
	}
	var vanished []string
	next.Definitions = maps.Clone(b.record.Definitions) // one that is absent or unknown may be another one when it is there
	if now := b.fleet.Definitions(); next.Definitions == nil {
		next.Definitions = now
	} else {
		maps.Copy(next.Definitions, now)
	}
	for id, e := range b.record.Objects {
		if _, ok := active[id]; ok {
			continue
		}
		switch b.fleet.State(Owner{ID: id, Name: e.Name}) {
		case Unsettled:
			next.Put(id, e)
		case Waiting:
			next.Put(id, e)
			next.Definitions = b.record.Definitions // for the next process, it is not another one until what it took away is settled
		case Vanished:
			next.Put(id, &Entry{Name: e.Name, Rolled: e.Rolled, Keys: map[Key]bool{}})
			vanished = append(vanished, id)
		}
	}
	b.fill(next)
	for _, id := range vanished {
		if len(next.Objects[id].Keys) == 0 { // no node has what it gave
			delete(next.Objects, id)
			continue
		}
		next.Definitions = b.record.Definitions
	}
	b.record, b.complete = next, true
	b.changes++
	return true
}

// fill adds the keys that nodes have. The caller holds the lock.
func (b *Book) fill(next *Record) {
	for _, p := range b.passes {
		p.Given.Fill(next)
		for _, g := range p.Held {
			if e := next.Objects[g.ID]; e != nil {
				e.Add(g.Key)
			}
		}
	}
	for _, list := range b.pending {
		for _, g := range list {
			next.Add(g.Owner, g.Key)
		}
	}
}

// flush writes the record unless the store has this many of its changes.
func (b *Book) flush(ctx context.Context, want int) error {
	b.flushing.Lock()
	defer b.flushing.Unlock()
	b.mu.Lock()
	if b.stored >= want || b.mute {
		b.mu.Unlock()
		return nil
	}
	text, changes, read := b.record.Encode(), b.changes, b.read
	same := text == b.written
	b.mu.Unlock()
	var err error
	if !same {
		err = b.store.SetData(ctx, read, record.DataKey, text)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil:
		b.written, b.stored = text, changes
		return nil
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err) && read != 0 && b.written == "":
		// Labels are more important than their provenance: without it, removals are only held after a restart.
		logf.FromContext(ctx).Error(err, "Cannot record which rules gave keys; removals will be held after a restart")
		b.mute = true
		return nil
	}
	b.read = 0
	return fmt.Errorf("record which rules gave keys: %w", err)
}

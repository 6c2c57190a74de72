// Package follow follows the states of the definitions of the kinds that a program caches.
package follow

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/turn"
)

const (
	// DefaultEvery is the interval at which a definition is read while it cannot be watched, and the delay before it is watched again. An
	// informer would prevent the manager from starting without the permission to list definitions.
	DefaultEvery = 10 * time.Second
	// Settles is how long a definition must be whole before its objects are listed again: each API server notices a change on its own, and
	// until then answers with objects that lack fields.
	Settles = 3 * time.Second
	// Lists is for how long caches may list the objects, before these are trusted: no handler is called for an object that a list delivers
	// with another content and the same resourceVersion.
	Lists = 15 * time.Second
	// ListEvery is the minimum interval between two lists: another program may replace the definition again and again.
	ListEvery = 30 * time.Second
	// arrives is how long an object may take to arrive that was written before the definition was whole.
	arrives = time.Second
	// burst is for how long it counts that a definition is gone: the objects of a deleted definition go one after another.
	burst = time.Second
)

// Options configure Definitions.
type Options struct {
	// Live reads from the API server.
	Live client.Reader
	// Events opens a watch of the metadata of a definition; see Watch. nil: it is read every interval.
	Events func(ctx context.Context, name string) (watch.Interface, error)
	// Every is the interval between two reads of a definition that cannot be watched. It defaults to DefaultEvery.
	Every time.Duration
	// Relist makes the caches list the objects of a resource, such as nodefeatures, again; nil: it cannot.
	Relist func(resource string)
}

// Definitions holds the states of definitions. It is safe for concurrent use.
type Definitions struct {
	opt Options

	mu      sync.Mutex
	kinds   map[string]*kind
	changed []func(Change)
}

// Change is a change of the state of a definition.
type Change struct {
	Name     string
	Was, Now definition.Status
}

// kind is what is known of one definition.
type kind struct {
	read    definition.Status // as it was read last
	known   bool              // it was read, or could not be
	version version           // of what was read
	missed  bool              // it was whole both times that it was read, and another one in between, which was not
	reading turn.Lock         // held while it is read
	changed chan struct{}     // holds an element if it was read, and does not count yet
	status  definition.Status // what counts
	whole   time.Time         // since when it is read as whole or older; zero: it is not
	lists   time.Time         // when the caches were made to list the objects last
	listed  time.Time         // when they have listed them since the definition is whole; zero: they were not made to
	failed  bool              // the last read failed, which was logged

	asked    time.Time // when Vanished read the definition last
	replaced types.UID // the UID that it had then; empty: it was absent
}

// version identifies what a definition said.
type version struct {
	uid        types.UID
	generation int64
	own        string // the version of Assay that it is from
	deleted    bool
}

// New returns Definitions with these names that were not read yet.
func New(opt Options, names ...string) *Definitions {
	d := &Definitions{opt: opt, kinds: map[string]*kind{}}
	for _, name := range names {
		d.kinds[name] = &kind{status: definition.Status{State: definition.Unknown}, reading: turn.New(), changed: make(chan struct{}, 1)}
	}
	return d
}

// Watch returns the Events of Options. They include bookmarks: definitions do not change for months, and a watch that receives nothing
// looks stalled.
func Watch(c client.WithWatch) func(context.Context, string) (watch.Interface, error) {
	return func(ctx context.Context, name string) (watch.Interface, error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(definition.Kind)
		return c.Watch(ctx, list, client.MatchingFields{"metadata.name": name}, &client.ListOptions{Raw: &metav1.ListOptions{AllowWatchBookmarks: true}})
	}
}

// Of returns the status of a definition. One that is not followed counts as whole, and so do all of nil Definitions.
func (d *Definitions) Of(name string) definition.Status {
	if d != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		if k := d.kinds[name]; k != nil {
			out := k.status
			out.Returning = !out.Trusted() && k.read.Trusted() && time.Since(k.whole) > arrives
			return out
		}
	}
	return definition.Status{State: definition.Whole}
}

// All returns the status of each definition that is followed.
func (d *Definitions) All() map[string]definition.Status {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[string]definition.Status, len(d.kinds))
	for name, k := range d.kinds {
		out[name] = k.status
	}
	return out
}

// Writable reports whether objects of a kind may be written: fields that the definition lacks would be lost. Those of an older definition
// never had the newer fields. Kinds that are not followed may be written.
func (d *Definitions) Writable(name string) bool {
	of := d.Of(name)
	return of.Trusted()
}

// OnChange registers f, which is called after the status of a definition has changed. It must return quickly.
func (d *Definitions) OnChange(f func(Change)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = append(d.changed, f)
}

// Load reads all definitions, before Start. It is called before the caches list objects, and again after that: a definition that is whole
// both times, but not the same, may have been another one when they did. It returns an error if one cannot be read for now.
func (d *Definitions) Load(ctx context.Context) error {
	for _, name := range d.names() {
		if err := d.look(ctx, name, nil); err != nil {
			return err
		}
		d.apply(name)
	}
	return nil
}

func (d *Definitions) names() []string {
	names := make([]string, 0, len(d.kinds))
	for name := range d.kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Start follows all definitions until the context ends.
func (d *Definitions) Start(ctx context.Context) error {
	var all sync.WaitGroup
	for _, name := range d.names() {
		all.Go(func() { d.follow(ctx, name) })
	}
	all.Wait()
	return nil
}

// follow follows one definition.
func (d *Definitions) follow(ctx context.Context, name string) {
	heads := make(chan *metav1.PartialObjectMetadata)
	go d.listen(ctx, name, heads)
	var again <-chan time.Time // when to read it again after an error
	for {
		var due <-chan time.Time
		if wait, waits := d.apply(name); waits {
			due = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case head := <-heads:
			if err := d.look(ctx, name, head); err != nil && ctx.Err() == nil {
				logf.FromContext(ctx).V(1).Info("Cannot read a definition; retrying", "definition", name, "error", err.Error())
				again = time.After(cmp.Or(d.opt.Every, DefaultEvery))
			}
		case <-again:
			again = nil
			if err := d.look(ctx, name, nil); err != nil {
				again = time.After(cmp.Or(d.opt.Every, DefaultEvery))
			}
		case <-d.kinds[name].changed:
		case <-due:
		}
	}
}

// listen sends the metadata of a definition after each change of it, or nil when it has to be read.
func (d *Definitions) listen(ctx context.Context, name string, to chan<- *metav1.PartialObjectMetadata) {
	send := func(head *metav1.PartialObjectMetadata) {
		select {
		case to <- head:
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
		var events watch.Interface
		err := fmt.Errorf("not watched")
		if d.opt.Events != nil {
			events, err = d.opt.Events(ctx, name)
		}
		send(nil) // also after a watch was opened, which begins with a definition that exists
		if err == nil {
			for event := range events.ResultChan() {
				if event.Type == watch.Bookmark {
					continue
				}
				head, ok := event.Object.(*metav1.PartialObjectMetadata)
				if !ok || event.Type == watch.Deleted {
					head = nil
				}
				send(head)
			}
			events.Stop()
		}
		select {
		case <-ctx.Done():
		case <-time.After(cmp.Or(d.opt.Every, DefaultEvery)):
		}
	}
}

// look reads a definition if it has changed. head is its metadata; nil: it is read as well. The error is a temporary one.
func (d *Definitions) look(ctx context.Context, name string, head *metav1.PartialObjectMetadata) error {
	release, err := d.kinds[name].reading.Take(ctx)
	if err != nil {
		return err
	}
	defer release()
	read := func(into client.Object) error { return d.opt.Live.Get(ctx, client.ObjectKey{Name: name}, into) }
	if head == nil {
		head = &metav1.PartialObjectMetadata{}
		head.SetGroupVersionKind(definition.Kind)
		if err := read(head); err != nil {
			return d.unread(ctx, name, err)
		}
	}
	if d.has(name, versionOf(head)) {
		return nil
	}
	served := &unstructured.Unstructured{}
	served.SetGroupVersionKind(definition.Kind)
	if err := read(served); err != nil {
		return d.unread(ctx, name, err)
	}
	status, err := definition.Of(served)
	if err != nil {
		logf.FromContext(ctx).Error(err, "Cannot compare a definition", "definition", name)
	}
	d.mu.Lock()
	d.kinds[name].failed = false
	d.mu.Unlock()
	d.note(name, status, versionOf(served))
	return nil
}

func versionOf(o metav1.Object) version {
	return version{o.GetUID(), o.GetGeneration(), o.GetAnnotations()[assayv1alpha1.DefinitionVersionAnnotation], o.GetDeletionTimestamp() != nil}
}

// has reports whether the version of a definition was read last.
func (d *Definitions) has(name string, v version) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kinds[name].version == v
}

// Confirm reads a definition again that counts as whole, and reports whether it is the same. An object that was read before has all its fields
// only then: the watch of definitions may be late, or broken.
func (d *Definitions) Confirm(ctx context.Context, name string) (bool, error) {
	if d == nil || d.kinds[name] == nil || !d.Writable(name) {
		return true, nil
	}
	d.mu.Lock()
	before := d.kinds[name].version
	d.mu.Unlock()
	if err := d.look(ctx, name, nil); err != nil {
		return false, err
	}
	if d.has(name, before) {
		return true, nil
	}
	select {
	case d.kinds[name].changed <- struct{}{}:
	default: // it is about to count
	}
	return false, nil
}

// unread notes that a definition does not exist or must not be read, and returns other errors.
func (d *Definitions) unread(ctx context.Context, name string, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		d.note(name, definition.Status{State: definition.Absent}, version{})
		return nil
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		d.mu.Lock()
		said := d.kinds[name].failed
		d.kinds[name].failed = true
		d.mu.Unlock()
		if !said {
			logf.FromContext(ctx).Error(err, "Cannot read a definition; its objects count as before, and new ones wait", "definition", name)
		}
		d.note(name, definition.Status{State: definition.Unknown}, version{})
		return nil
	}
	return fmt.Errorf("read definition %s: %w", name, err)
}

func (d *Definitions) note(name string, status definition.Status, v version) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.kinds[name]
	missed := status.Trusted() && k.read.Trusted() && k.read.UID == status.UID && v.generation > k.version.generation+1
	switch {
	case !status.Trusted():
		k.whole = time.Time{}
	case k.whole.IsZero() || k.read.UID != status.UID || missed:
		k.whole = time.Now()
	}
	if k.read.UID != status.UID || missed {
		k.listed = time.Time{}
	}
	k.missed = status.Trusted() && (k.missed || missed)
	k.read, k.version = status, v
}

// apply makes what was read count. That objects can be trusted again counts after a while: then the caller has to apply it again.
func (d *Definitions) apply(name string) (wait time.Duration, waits bool) {
	d.mu.Lock()
	k := d.kinds[name]
	now, was := time.Now(), k.status
	list := false
	switch restores := k.known && k.read.Trusted() && (!was.Trusted() || was.UID != k.read.UID || k.missed); {
	case !restores:
		k.status, k.listed = k.read, time.Time{}
	case k.listed.IsZero() && later(k.whole.Add(Settles), k.lists.Add(ListEvery)).After(now):
		wait, waits = later(k.whole.Add(Settles), k.lists.Add(ListEvery)).Sub(now), true
	case k.listed.IsZero():
		list, k.lists, k.listed = true, now, now.Add(Lists)
		wait, waits = Lists, true
	case k.listed.After(now):
		wait, waits = k.listed.Sub(now), true
	default:
		k.status, k.listed, k.missed = k.read, time.Time{}, false
	}
	switch {
	case !waits || !was.Trusted():
	case was.UID == k.read.UID:
		k.status = definition.Status{State: definition.Unknown, UID: k.read.UID}
	default: // it was replaced by another one, and all objects were deleted with it
		k.status = definition.Status{State: definition.Absent}
	}
	k.known = true
	change, listeners := Change{Name: name, Was: was, Now: k.status}, d.changed
	d.mu.Unlock()
	if list && d.opt.Relist != nil {
		d.opt.Relist(resource(name))
	}
	if was.State != change.Now.State || was.UID != change.Now.UID || !slices.Equal(was.Missing, change.Now.Missing) {
		for _, f := range listeners {
			f(change)
		}
	}
	return wait, waits
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// resource returns the resource whose definition has a name.
func resource(name string) string {
	for i := range name {
		if name[i] == '.' {
			return name[:i]
		}
	}
	return name
}

// Vanished reports whether an object that is gone was deleted with its definition, which had this UID when the object was listed: the
// definition is absent or being deleted, or it is another one. Objects of a definition that cannot be read count as deleted by a user.
func (d *Definitions) Vanished(ctx context.Context, name string, listed types.UID) (bool, error) {
	if d == nil || d.kinds[name] == nil {
		return false, nil
	}
	d.mu.Lock()
	k := d.kinds[name]
	recent, uid := time.Since(k.asked) < burst, k.replaced
	d.mu.Unlock()
	vanished := func() bool { return uid == "" || listed != "" && listed != uid }
	if recent && vanished() { // that it was there a moment ago proves nothing
		return true, nil
	}
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(definition.Kind)
	err := d.opt.Live.Get(ctx, client.ObjectKey{Name: name}, head)
	switch {
	case apierrors.IsForbidden(err):
		return false, nil
	case client.IgnoreNotFound(err) != nil:
		return false, fmt.Errorf("read definition %s: %w", name, err)
	case err == nil && head.DeletionTimestamp == nil:
		uid = head.UID
	default:
		uid = ""
	}
	d.mu.Lock()
	k.asked, k.replaced = time.Now(), uid
	d.mu.Unlock()
	return vanished(), nil
}

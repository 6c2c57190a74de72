package apiserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Watch is a watch of a client. It is the body of the response; reading it blocks on a channel.
type Watch struct {
	server    *Server
	client    *Client // that it was delivered to
	call      *call
	name      string
	selection selection
	bookmarks bool

	mu      sync.Mutex
	initial []event // of what there was at the start
	at      int64   // revision up to which changes were delivered or passed over
	buffer  []byte
	to      *decoded // receives the events instead of the buffer, if it is set
	err     error    // after the buffer was read
	closed  bool
	wake    chan struct{}
	ctx     context.Context
}

// watch starts a watch. The caller holds the lock.
func (s *Server) watch(c *call) *response {
	sel, err := c.selection()
	if err != nil {
		return fail(err)
	}
	w := &Watch{
		server: s, call: c, name: c.watched(), selection: sel, at: s.revision, bookmarks: c.query.Get("allowWatchBookmarks") == "true", wake: make(chan struct{}, 1),
	}
	version, initial := c.query.Get("resourceVersion"), c.query.Get("sendInitialEvents") == "true"
	from, err := strconv.ParseInt(version, 10, 64)
	switch {
	case version != "" && err != nil:
		return fail(apierrors.NewBadRequest("invalid resource version " + strconv.Quote(version)))
	case from > s.revision:
		return tooLarge(from, s.revision)
	case initial && (!w.bookmarks || c.query.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchNotOlderThan)):
		return fail(apierrors.NewBadRequest("sendInitialEvents needs bookmarks and resourceVersionMatch=NotOlderThan"))
	case initial || from == 0:
		for _, o := range s.now(c.resource).objects {
			if sel.matches(o) {
				w.initial = append(w.initial, event{kind: Added, object: s.prune(c.resource, o)})
			}
		}
		if initial {
			w.initial = append(w.initial, w.bookmark(s.revision, Object{metav1.InitialEventsAnnotationKey: "true"}))
		}
	case from < s.compacted:
		w.initial = []event{{kind: failure, object: expired(from, s.compacted)}}
		w.at = from
	default:
		w.at = from
	}
	return &response{code: http.StatusOK, watch: w}
}

// event is an event of a watch.
type event struct {
	kind   string
	object Object
}

// line returns an event as it is sent. It is called with the lock of the server held.
func (w *Watch) line(e event) []byte {
	var data []byte
	switch {
	case e.kind == failure:
		data = encode(e.object)
	case w.call.metadata:
		data = encode(partial(e.object))
	case e.kind == bookmark:
		data = encode(e.object)
	default:
		data = w.server.encode(e.object)
	}
	out := make([]byte, 0, len(data)+len(e.kind)+len(`{"type":"","object":}`)+1)
	out = append(append(out, `{"type":"`...), e.kind...)
	return append(append(append(out, `","object":`...), data...), "}\n"...)
}

func expired(from, compacted int64) Object {
	err := apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", from, compacted))
	err.ErrStatus.Kind, err.ErrStatus.APIVersion = "Status", "v1"
	out, failed := Decode(encode(err.ErrStatus))
	if failed != nil {
		panic(failed)
	}
	return out
}

func (w *Watch) bookmark(revision int64, annotations Object) event {
	m := Object{"resourceVersion": strconv.FormatInt(revision, 10), "creationTimestamp": nil}
	if annotations != nil {
		m["annotations"] = annotations
	}
	return event{kind: bookmark, object: Object{"kind": w.call.resource.Kind, "apiVersion": w.call.resource.groupVersion().String(), "metadata": m}}
}

// next returns the next event, the revision of the watch after it, and the key of its object. The caller holds both locks.
func (w *Watch) next() (e event, at int64, k string) {
	if len(w.initial) > 0 {
		return w.initial[0], w.at, ""
	}
	if w.at == w.server.revision {
		return event{}, 0, ""
	}
	for i := w.server.index(w.at); i < len(w.server.history); i++ {
		c := &w.server.history[i]
		if c.Resource != w.call.resource {
			continue
		}
		was, is := c.Type != Added && w.selection.matches(c.Old), c.Type != Deleted && w.selection.matches(c.New)
		switch {
		case was && is:
			return event{kind: Modified, object: w.server.prune(c.Resource, c.New)}, c.Revision, c.Key
		case is:
			return event{kind: Added, object: w.server.prune(c.Resource, c.New)}, c.Revision, c.Key
		case was:
			last := c.New
			if c.Type != Deleted { // no longer selected: the last selected state, with the revision of the change
				last = deepCopy(c.Old)
				meta(last)["resourceVersion"] = strconv.FormatInt(c.Revision, 10)
			}
			return event{kind: Deleted, object: w.server.prune(c.Resource, last)}, c.Revision, c.Key
		}
	}
	w.at = w.server.revision // nothing up to this revision is selected
	return event{}, 0, ""
}

// Next describes the event that Deliver would deliver; empty: none.
func (w *Watch) Next() string {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.err != nil {
		return ""
	}
	switch e, _, k := w.next(); {
	case e.object == nil:
		return ""
	case k != "":
		return e.kind + " " + k
	case e.kind == Added:
		return "initial " + e.kind + " " + text(meta(e.object), "name")
	default:
		return "initial " + e.kind
	}
}

// Waits reports whether there is an event that Deliver would deliver.
func (w *Watch) Waits() bool {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.err != nil {
		return false
	}
	e, _, _ := w.next()
	return e.object != nil
}

// Initial reports whether initial objects have not all been delivered.
func (w *Watch) Initial() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.initial) > 0
}

// Deliver delivers the next event, if there is one.
func (w *Watch) Deliver() {
	if at, kind := w.deliver(); kind == Deleted && !w.call.metadata {
		w.client.mu.Lock()
		defer w.client.mu.Unlock()
		w.client.told[at] = time.Now()
	}
}

// deliver returns the revision and the kind of the event that it has delivered.
func (w *Watch) deliver() (at int64, kind string) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	e, at, _ := w.next()
	if e.object == nil || w.err != nil {
		return 0, ""
	}
	if len(w.initial) > 0 {
		w.initial = w.initial[1:]
	}
	w.at = at
	w.send(e)
	if e.kind == failure {
		w.end(io.EOF)
	}
	return at, e.kind
}

// Skip drops the next initial object, which no API server should do. It reports whether there was one.
func (w *Watch) Skip() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.initial) == 0 || w.initial[0].kind != Added {
		return false
	}
	w.initial = w.initial[1:]
	return true
}

// Bookmark delivers a bookmark if the client requested bookmarks and has received all events.
func (w *Watch) Bookmark() bool {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, _, _ := w.next(); e.object != nil || !w.bookmarks || w.err != nil {
		return false
	}
	w.at = w.server.revision
	w.send(w.bookmark(w.at, nil))
	return true
}

// Expire ends the watch with 410 Gone, unless it has ended. As a server it sends a single error: watch.Filter of client-go blocks
// forever on an event after one.
func (w *Watch) Expire() {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || w.closed {
		return
	}
	w.send(event{kind: failure, object: expired(w.at, w.at+1)})
	w.end(io.EOF)
}

// End ends the watch: with io.EOF like a server after some minutes, or with another error like a broken connection.
func (w *Watch) End(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end(err)
}

// send sends an event to the client. The caller holds both locks.
func (w *Watch) send(e event) {
	if w.to != nil {
		w.to.send(w, e)
		return
	}
	w.buffer = append(w.buffer, w.line(e)...)
	w.notify()
}

// end ends the watch after the client has received what was sent. The caller holds the lock.
func (w *Watch) end(err error) {
	w.finish()
	w.err = err
}

func (w *Watch) finish() {
	if w.to != nil && w.err == nil && !w.closed {
		close(w.to.events)
	}
	w.notify()
}

// notify wakes the reader up.
func (w *Watch) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Read implements io.Reader.
func (w *Watch) Read(p []byte) (int, error) {
	for {
		w.mu.Lock()
		n, err, closed := copy(p, w.buffer), w.err, w.closed
		w.buffer = w.buffer[n:]
		w.mu.Unlock()
		switch {
		case n > 0:
			return n, nil
		case closed:
			return 0, io.EOF // watch.Filter of client-go could block forever on another error
		case err != nil:
			return 0, err
		}
		select {
		case <-w.wake:
		case <-w.ctx.Done():
			_ = w.Close()
			return 0, io.EOF
		}
	}
}

// Close implements io.Closer.
func (w *Watch) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finish()
	w.closed = true
	return nil
}

// At returns the watched resource, and the revision up to which the client has received all changes.
func (w *Watch) At() (resource string, revision int64) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, _, _ := w.next(); e.object == nil {
		return w.call.resource.Name, w.server.revision
	}
	return w.call.resource.Name, w.at
}

// Open reports whether events can be delivered.
func (w *Watch) Open() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.closed && w.err == nil
}

// String returns the watched resource.
func (w *Watch) String() string { return w.name }

func (c *call) watched() string {
	out := c.resource.Name
	if c.metadata {
		out += " (metadata)"
	}
	for _, k := range []string{"labelSelector", "fieldSelector"} {
		if v := c.query.Get(k); v != "" {
			out += " " + v
		}
	}
	return key(c.namespace, out)
}

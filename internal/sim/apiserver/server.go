// Package apiserver is a model of the Kubernetes API server without sockets, whose client decides when each response and each event
// arrives.
//
// It supports the requests of the controllers, the publisher and the extender. Other requests are recorded (see Server.Unsupported)
// and fail the test.
package apiserver

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Object is an API object as decoded JSON. Stored objects are never modified.
type Object = map[string]any

// Change is one entry of the store's history.
type Change struct {
	Revision int64
	Resource *Resource
	Key      string // namespace/name, or name
	Type     string // ADDED, MODIFIED or DELETED
	Old, New Object // for a deletion, New is the last state with the revision of the deletion
	By       string // the client that wrote it
	Time     time.Time
}

// Server holds all objects, with one revision for all. It is safe for concurrent use.
type Server struct {
	resources []*Resource

	mu          sync.Mutex
	revision    int64
	compacted   int64                 // watches and lists from older revisions expire
	created     int                   // number of created objects, for UIDs
	states      map[*Resource][]state // oldest first
	history     []Change
	encoded     map[unsafe.Pointer]encoded
	decoded     map[view]runtime.Object
	defined     map[*Resource]*defined
	unsupported []string
	ahead       atomic.Int64  // of the clock of the programs, in nanoseconds
	arrived     chan struct{} // holds an element after a request has arrived
}

// New returns an empty server with the given resources.
func New(resources ...*Resource) *Server {
	s := &Server{resources: resources, revision: 1, states: map[*Resource][]state{}, encoded: map[unsafe.Pointer]encoded{}, decoded: map[view]runtime.Object{}, defined: map[*Resource]*defined{}, arrived: make(chan struct{}, 1)}
	for _, r := range resources {
		s.states[r] = []state{{}}
	}
	return s
}

// Unsupported returns the requests that the model does not support.
func (s *Server) Unsupported() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.unsupported)
}

// Revision returns the revision of the last change.
func (s *Server) Revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// Since returns the changes after a revision.
func (s *Server) Since(revision int64) []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since(revision)
}

func (s *Server) since(revision int64) []Change { return s.history[s.index(revision):] }

// index returns the index of the first change after a revision.
func (s *Server) index(revision int64) int {
	return sort.Search(len(s.history), func(i int) bool { return s.history[i].Revision > revision })
}

// Compact expires watches and lists from revisions up to the current one.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = s.revision
}

// Get returns an object, nil if it does not exist. The caller must not modify it.
func (s *Server) Get(resource, namespace, name string) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now(s.resource(resource)).get(key(namespace, name))
}

// List returns the objects of a resource, sorted by namespace and name. The caller must not modify them.
func (s *Server) List(resource string) []Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now(s.resource(resource)).objects
}

func (s *Server) resource(name string) *Resource {
	i := slices.IndexFunc(s.resources, func(r *Resource) bool { return r.Name == name })
	if i < 0 {
		panic("no resource " + name)
	}
	return s.resources[i]
}

// At returns the objects of a resource at a revision, sorted by namespace and name. The caller must not modify them.
func (s *Server) At(resource string, revision int64) []Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at(s.resource(resource), revision).objects
}

// Versions returns the objects of a resource at a revision and after each later change of one, like At.
func (s *Server) Versions(resource string, from int64) (out [][]Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.states[s.resource(resource)]
	for _, st := range all[stateAt(all, from):] {
		out = append(out, st.objects)
	}
	return out
}

// state is all objects of a resource from a revision on. It is never modified.
type state struct {
	revision int64
	keys     []string // sorted
	objects  []Object
}

func (st state) get(k string) Object {
	if i, found := slices.BinarySearch(st.keys, k); found {
		return st.objects[i]
	}
	return nil
}

// with returns the next state, in which an object has been written, or deleted if it is nil.
func (st state) with(revision int64, k string, o Object) state {
	next := state{revision, st.keys, slices.Clone(st.objects)}
	switch i, found := slices.BinarySearch(st.keys, k); {
	case o == nil:
		next.keys, next.objects = slices.Delete(slices.Clone(st.keys), i, i+1), slices.Delete(next.objects, i, i+1)
	case found:
		next.objects[i] = o
	default:
		next.keys, next.objects = slices.Insert(slices.Clone(st.keys), i, k), slices.Insert(next.objects, i, o)
	}
	return next
}

// now returns the latest state of a resource.
func (s *Server) now(r *Resource) state {
	all := s.states[r]
	return all[len(all)-1]
}

// at returns the state of a resource at a revision.
func (s *Server) at(r *Resource, revision int64) state {
	all := s.states[r]
	return all[stateAt(all, revision)]
}

// stateAt returns the index of the state at a revision.
func stateAt(all []state, revision int64) int {
	i := len(all) - 1
	for all[i].revision > revision {
		i--
	}
	return i
}

// Types of changes and watch events.
const (
	Added    = "ADDED"
	Modified = "MODIFIED"
	Deleted  = "DELETED"
	bookmark = "BOOKMARK"
	failure  = "ERROR"
)

// commit writes an object; a nil object deletes it. It returns the object as stored. The caller holds the lock.
func (s *Server) commit(r *Resource, k string, next Object, by string) Object {
	old := s.now(r).get(k)
	s.revision++
	c := Change{Revision: s.revision, Resource: r, Key: k, Old: old, New: next, By: by, Type: Modified, Time: time.Now()}
	switch {
	case next == nil:
		c.Type, c.New = Deleted, deepCopy(old)
	case old == nil:
		c.Type = Added
	}
	s.states[r] = append(s.states[r], s.now(r).with(s.revision, k, next))
	meta(c.New)["resourceVersion"] = strconv.FormatInt(s.revision, 10)
	s.history = append(s.history, c)
	if r.Name == definitions {
		s.define(k, next)
	}
	return c.New
}

func (s *Server) nextUID() string {
	s.created++
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", s.created)
}

// timestamp returns the time in the API's format.
func (s *Server) timestamp() string { return s.time().Format(time.RFC3339) }

// time returns the time by the clock of the API server.
func (s *Server) time() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())).UTC() }

// SetClock sets the clock of the API server ahead of that of the programs.
func (s *Server) SetClock(ahead time.Duration) { s.ahead.Store(int64(ahead)) }

func key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// meta returns the metadata of an object, and creates it if it is missing.
func meta(o Object) Object {
	m, ok := o["metadata"].(Object)
	if !ok {
		m = Object{}
		o["metadata"] = m
	}
	return m
}

func text(o Object, field string) string {
	v, _ := o[field].(string)
	return v
}

func deepCopy(o Object) Object { return copyValue(o).(Object) }

func copyValue(v any) any {
	switch v := v.(type) {
	case Object:
		out := make(Object, len(v))
		for k, e := range v {
			out[k] = copyValue(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = copyValue(e)
		}
		return out
	}
	return v
}

// Decode decodes a JSON object.
func Decode(data []byte) (Object, error) {
	var o Object
	if err := utiljson.Unmarshal(data, &o); err != nil {
		return nil, err
	}
	if o == nil {
		return nil, fmt.Errorf("expected an object, found %s", data)
	}
	return o, nil
}

// encoded is an object as JSON. It keeps the object, so that no other one gets its address.
type encoded struct {
	object Object
	data   []byte
}

// encode returns an object that does not change any more as JSON. It is called with the lock held.
func (s *Server) encode(o Object) []byte {
	at := reflect.ValueOf(o).UnsafePointer()
	e, known := s.encoded[at]
	if !known {
		e = encoded{o, encode(o)}
		s.encoded[at] = e
	}
	return e.data
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	return data
}

// Package apiserver is a model of the Kubernetes API server without sockets, whose client decides when each response and each event
// arrives.
//
// It supports the requests of the controllers, the publisher and the extender. Other requests are recorded (see Server.Unsupported)
// and fail the test.
package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"
	"unsafe"

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
	compacted   int64 // watches and lists from older revisions expire
	created     int   // number of created objects, for UIDs
	objects     map[*Resource]map[string]Object
	history     []Change
	encoded     map[unsafe.Pointer]encoded
	unsupported []string
	arrived     chan struct{} // holds an element after a request has arrived
}

// New returns an empty server with the given resources.
func New(resources ...*Resource) *Server {
	s := &Server{resources: resources, revision: 1, objects: map[*Resource]map[string]Object{}, encoded: map[unsafe.Pointer]encoded{}, arrived: make(chan struct{}, 1)}
	for _, r := range resources {
		s.objects[r] = map[string]Object{}
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

func (s *Server) since(revision int64) []Change {
	i, _ := slices.BinarySearchFunc(s.history, revision+1, func(c Change, r int64) int { return int(c.Revision - r) })
	return s.history[i:]
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
	return s.objects[s.resource(resource)][key(namespace, name)]
}

// List returns the objects of a resource, sorted by namespace and name. The caller must not modify them.
func (s *Server) List(resource string) []Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sorted(s.objects[s.resource(resource)])
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
	return sorted(s.at(s.resource(resource), revision))
}

func sorted(objects map[string]Object) []Object {
	out := make([]Object, 0, len(objects))
	for _, k := range slices.Sorted(maps.Keys(objects)) {
		out = append(out, objects[k])
	}
	return out
}

// at returns the objects of a resource at a revision.
func (s *Server) at(r *Resource, revision int64) map[string]Object {
	if revision >= s.revision {
		return s.objects[r]
	}
	out := map[string]Object{}
	for _, c := range s.history {
		if c.Revision > revision {
			break
		}
		if c.Resource != r {
			continue
		}
		if c.Type == Deleted {
			delete(out, c.Key)
		} else {
			out[c.Key] = c.New
		}
	}
	return out
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
	old := s.objects[r][k]
	s.revision++
	c := Change{Revision: s.revision, Resource: r, Key: k, Old: old, New: next, By: by, Type: Modified, Time: time.Now()}
	switch {
	case next == nil:
		c.Type, c.New = Deleted, deepCopy(old)
		delete(s.objects[r], k)
	case old == nil:
		c.Type = Added
		s.objects[r][k] = next
	default:
		s.objects[r][k] = next
	}
	meta(c.New)["resourceVersion"] = strconv.FormatInt(s.revision, 10)
	s.history = append(s.history, c)
	return c.New
}

func (s *Server) nextUID() string {
	s.created++
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", s.created)
}

// now returns a timestamp in the API's format.
func now() string { return time.Now().UTC().Format(time.RFC3339) }

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

package publish

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// server is a fake API server with the operations that a Publisher uses, for one namespace.
type server struct {
	*httptest.Server

	mu       sync.Mutex
	version  int
	objects  map[string]map[string]any // by path
	history  []event
	watchers map[chan event]string
	requests []string                  // without watches
	refuse   int                       // status code for all responses; 0: none
	cache    map[string]map[string]any // older objects, by path, that reads of the cache return; nil means that there is none
	watching chan struct{}
}

type event struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

func newServer(t *testing.T) *server {
	s := &server{objects: map[string]map[string]any{}, watchers: map[chan event]string{}, watching: make(chan struct{}, 16)}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *server) client(t *testing.T) *Client {
	t.Helper()
	c, err := NewClient(&Config{Server: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// took returns the requests since the last call.
func (s *server) took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.requests
	s.requests = nil
	return out
}

// set stores an object as another client would.
func (s *server) set(path string, object map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(path, object, s.objects[path])
}

func (s *server) remove(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(path)
}

func (s *server) get(path string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[path]
}

func (s *server) setRefuse(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = code
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "true" {
		s.watch(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	if s.refuse != 0 {
		fail(w, s.refuse, "ServiceUnavailable")
		return
	}
	body, _ := io.ReadAll(r.Body)
	var sent map[string]any
	_ = json.Unmarshal(body, &sent)
	path := r.URL.Path
	if old, ok := s.cache[path]; ok && r.Method == http.MethodGet && r.URL.Query().Get("resourceVersion") == "0" {
		if old == nil {
			fail(w, http.StatusNotFound, "NotFound")
			return
		}
		_ = json.NewEncoder(w).Encode(old)
		return
	}
	switch old := s.objects[path]; {
	case r.Method == http.MethodPost:
		path += "/" + sent["metadata"].(map[string]any)["name"].(string)
		if s.objects[path] != nil {
			fail(w, http.StatusConflict, "AlreadyExists")
			return
		}
		s.store(path, sent, nil)
	case old == nil:
		fail(w, http.StatusNotFound, "NotFound")
		return
	case r.Method == http.MethodPatch:
		if v, ok := sent["metadata"].(map[string]any)["resourceVersion"]; ok && v != old["metadata"].(map[string]any)["resourceVersion"] {
			fail(w, http.StatusConflict, "Conflict")
			return
		}
		s.store(path, merge(clone(old), sent).(map[string]any), old)
	}
	object := s.objects[path]
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		object = map[string]any{"metadata": object["metadata"]}
	}
	_ = json.NewEncoder(w).Encode(object)
}

// store sets the metadata that the server manages.
func (s *server) store(path string, object, old map[string]any) {
	s.version++
	meta := object["metadata"].(map[string]any)
	generation, uid := 1.0, fmt.Sprintf("uid-%d", s.version)
	if old != nil {
		before := old["metadata"].(map[string]any)
		generation, uid = before["generation"].(float64), before["uid"].(string)
		// Without a status subresource, each change but those of metadata counts.
		now, then := maps.Clone(object), maps.Clone(old)
		delete(now, "metadata")
		delete(then, "metadata")
		if fmt.Sprint(now) != fmt.Sprint(then) {
			generation++
		}
	}
	meta["resourceVersion"], meta["generation"], meta["uid"] = strconv.Itoa(s.version), generation, uid
	s.objects[path] = clone(object)
	kind := "MODIFIED"
	if old == nil {
		kind = "ADDED"
	}
	s.tell(path, event{kind, map[string]any{"metadata": s.objects[path]["metadata"]}})
}

func (s *server) drop(path string) {
	s.version++
	meta := clone(s.objects[path])["metadata"].(map[string]any)
	meta["resourceVersion"] = strconv.Itoa(s.version)
	delete(s.objects, path)
	s.tell(path, event{"DELETED", map[string]any{"metadata": meta}})
}

func (s *server) tell(path string, e event) {
	s.history = append(s.history, e)
	for ch, name := range s.watchers {
		if strings.HasSuffix(path, "/"+name) {
			ch <- e
		}
	}
}

func (s *server) watch(w http.ResponseWriter, r *http.Request) {
	ch := make(chan event, 64)
	s.mu.Lock()
	s.watchers[ch] = strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	for _, e := range s.history {
		from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
		if v, _ := strconv.Atoi(e.Object.(map[string]any)["metadata"].(map[string]any)["resourceVersion"].(string)); v > from {
			ch <- e
		}
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watchers, ch)
		s.mu.Unlock()
	}()
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	s.watching <- struct{}{}
	for {
		select {
		case e := <-ch:
			if json.NewEncoder(w).Encode(e) != nil {
				return
			}
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func fail(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "code": code, "reason": reason, "message": reason})
}

// merge implements RFC 7386.
func merge(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, ok := target.(map[string]any)
	if !ok {
		t = map[string]any{}
	}
	for _, k := range slices.Sorted(maps.Keys(p)) {
		if p[k] == nil {
			delete(t, k)
		} else {
			t[k] = merge(t[k], p[k])
		}
	}
	return t
}

func clone(object map[string]any) map[string]any {
	data, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		panic(err)
	}
	return out
}

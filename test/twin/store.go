//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/test/stage"
)

// Paths of the lists that the reference reads.
const (
	nodesPath      = "/api/v1/nodes"
	namespacesPath = "/api/v1/namespaces"
	featuresPath   = "/apis/" + nfdv1alpha1.GroupName + "/v1alpha1/nodefeatures"
	rulesPath      = "/apis/" + nfdv1alpha1.GroupName + "/v1alpha1/nodefeaturerules"
	setsPath       = "/apis/" + assayv1alpha1.GroupName + "/v1alpha1/nodefeaturesets"
)

// stored has the objects of one kind that the API server stores, as encoding/json reads them, and all changes since the last cut. It is
// safe for concurrent use.
type stored[T any] struct {
	path string
	meta func(*T) *metav1.ObjectMeta

	mu      sync.Mutex
	now     map[string]*T // by namespace/name
	changes []change[T]   // in their order
	version string        // of the last event; only follow uses it
	err     error         // why there are no further events
}

// change is a watched event. After is nil if the object was deleted.
type change[T any] struct {
	key   string
	after *T
}

func newStored[T any](path string, meta func(*T) *metav1.ObjectMeta) *stored[T] {
	return &stored[T]{path: path, meta: meta, now: map[string]*T{}}
}

// reader reads the API server without a client library.
type reader struct {
	client *http.Client
	host   string
}

func newReader(config *rest.Config) (*reader, error) {
	client, err := rest.HTTPClientFor(config)
	return &reader{client, config.Host}, err
}

func (r *reader) get(ctx context.Context, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.host+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := r.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusTooManyRequests { // the definitions are new
		_ = response.Body.Close()
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(restInterval):
			return r.get(ctx, path)
		}
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("GET %s: %s", path, response.Status)
	}
	return response.Body, nil
}

// follow lists the objects, and watches them until the context ends.
func (s *stored[T]) follow(ctx context.Context, r *reader) error {
	version, items, err := s.read(ctx, r)
	if err != nil {
		return err
	}
	s.now, s.version = items, version
	go func() {
		var err error
		for err == nil {
			err = s.watch(ctx, r)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = fmt.Errorf("watch %s: %w", s.path, err)
	}()
	return nil
}

// watch reads one watch, from the last event on. The API server ends the watch of a client that reads too slowly on a busy machine.
func (s *stored[T]) watch(ctx context.Context, r *reader) error {
	events, err := r.get(ctx, s.path+"?watch=1&resourceVersion="+s.version)
	if err != nil {
		return err
	}
	defer func() { _ = events.Close() }()
	if err := s.decode(events); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return ctx.Err()
}

// read lists the objects.
func (s *stored[T]) read(ctx context.Context, r *reader) (version string, items map[string]*T, err error) {
	body, err := r.get(ctx, s.path)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = body.Close() }()
	var all struct {
		Metadata metav1.ListMeta `json:"metadata"`
		Items    []T             `json:"items"`
	}
	if err := json.NewDecoder(body).Decode(&all); err != nil {
		return "", nil, err
	}
	items = make(map[string]*T, len(all.Items))
	for i := range all.Items {
		items[s.key(&all.Items[i])] = &all.Items[i]
	}
	return all.Metadata.ResourceVersion, items, nil
}

// decode decodes events, each of which is a line.
func (s *stored[T]) decode(events io.Reader) error {
	for lines := bufio.NewReader(events); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		var event struct {
			Type   string `json:"type"`
			Object *T     `json:"object"`
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return err
		}
		if event.Type == "ERROR" {
			return fmt.Errorf("%s", line)
		}
		s.apply(event.Type, event.Object)
	}
}

func (s *stored[T]) apply(kind string, o *T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.key(o)
	s.version = s.meta(o).ResourceVersion
	switch kind {
	case "DELETED":
		delete(s.now, key)
		o = nil
	default:
		s.now[key] = o
	}
	s.changes = append(s.changes, change[T]{key, o})
}

func (s *stored[T]) key(o *T) string { return s.meta(o).Namespace + "/" + s.meta(o).Name }

// cut returns the changes since the last cut, and the error that ended the watch.
func (s *stored[T]) cut() ([]change[T], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changes := s.changes
	s.changes = nil
	return changes, s.err
}

// list returns the objects as the API server returns them now, by namespace/name.
func (s *stored[T]) list(ctx context.Context, r *reader) (map[string]*T, error) {
	_, items, err := s.read(ctx, r)
	return items, err
}

// behind returns an object of a list that the watch has not shown yet; "": none.
func (s *stored[T]) behind(list map[string]*T) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return "" // cut returns the error
	}
	for key, o := range list {
		if seen := s.now[key]; seen == nil || stage.Older(s.meta(seen).ResourceVersion, s.meta(o).ResourceVersion) {
			return key
		}
	}
	for key := range s.now {
		if list[key] == nil {
			return key
		}
	}
	return ""
}

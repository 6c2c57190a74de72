package schema

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// server has one CRD.
type server struct {
	client.Reader

	mu         sync.Mutex
	definition map[string]any
	generation int64
}

func (s *server) set(definition map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.definition, s.generation = definition, s.generation+1
}

func (s *server) Get(_ context.Context, _ client.ObjectKey, to client.Object, _ ...client.GetOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if object, ok := to.(*unstructured.Unstructured); ok {
		object.Object = maps.Clone(s.definition)
	}
	to.SetGeneration(s.generation)
	return nil
}

// watching starts a Watch of a complete CRD and returns the server, and a channel that receives when fields are missing or no longer.
func watching(t *testing.T, every time.Duration, events func(context.Context) (watch.Interface, error)) (*server, <-chan struct{}) {
	t.Helper()
	s, changed := &server{}, make(chan struct{})
	s.set(definition(t))
	w := &Watch{Guard: New(s), Events: events, Every: every, Changed: func(ctx context.Context) {
		select {
		case changed <- struct{}{}:
		case <-ctx.Done():
		}
	}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Start(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s, changed
}

// TestTheDefinitionIsReadWhenItChanges: it was read every ten seconds, six requests a minute of a controller that has nothing to do.
func TestTheDefinitionIsReadWhenItChanges(t *testing.T) {
	events := watch.NewFake()
	s, changed := watching(t, time.Hour, func(context.Context) (watch.Interface, error) { return events, nil })
	s.set(definition(t, []string{"properties", "phase"}))
	events.Modify(&metav1.PartialObjectMetadata{})
	<-changed
	s.set(definition(t))
	events.Modify(&metav1.PartialObjectMetadata{})
	<-changed
}

// TestADefinitionThatCannotBeWatchedIsPolled: the permissions may be those of an older version.
func TestADefinitionThatCannotBeWatchedIsPolled(t *testing.T) {
	s, changed := watching(t, time.Millisecond, func(context.Context) (watch.Interface, error) { return nil, errors.New("forbidden") })
	s.set(definition(t, []string{"properties", "phase"}))
	<-changed
}

// TestAWatchThatEndsIsOpenedAgain: API servers end watches after some minutes. A new one begins with the present state.
func TestAWatchThatEndsIsOpenedAgain(t *testing.T) {
	open := make(chan *watch.FakeWatcher)
	watching(t, time.Millisecond, func(ctx context.Context) (watch.Interface, error) {
		events := watch.NewFake()
		select {
		case open <- events:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return events, nil
	})
	(<-open).Stop()
	(<-open).Stop()
}

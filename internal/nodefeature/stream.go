package nodefeature

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Stream is a watch of NodeFeatures that can send objects again between the events of the API server.
type Stream struct {
	watch.Interface
	version string // of the last event from the API server
	events  chan watch.Event
	stop    chan struct{}
	stopped sync.Once
}

// NewStream returns a Stream of a watch that started at a resourceVersion. The caller must call Run.
func NewStream(from watch.Interface, version string) *Stream {
	return &Stream{Interface: from, version: version, events: make(chan watch.Event), stop: make(chan struct{})}
}

// ResultChan implements watch.Interface.
func (s *Stream) ResultChan() <-chan watch.Event { return s.events }

// Stop implements watch.Interface.
func (s *Stream) Stop() {
	s.stopped.Do(func() { close(s.stop) })
	s.Interface.Stop()
}

// Run forwards events until the watch ends. Due is called at the start, after wake, and after each event, and gets whether it was
// woken; it calls Replace for objects that have to be sent again, and returns false to end the watch. Revise returns what to send instead of an object; nil: nothing.
func (s *Stream) Run(wake <-chan struct{}, due func(woken bool) bool, revise func(watch.EventType, *NodeFeature) *NodeFeature) {
	defer close(s.events)
	for woken := false; due(woken); {
		woken = false
		select {
		case <-s.stop:
			return
		case <-wake:
			woken = true
		case e, open := <-s.Interface.ResultChan():
			if !open || !s.pass(e, revise) {
				return
			}
		}
	}
}

// pass forwards an event of the API server.
func (s *Stream) pass(e watch.Event, revise func(watch.EventType, *NodeFeature) *NodeFeature) bool {
	if e.Type != watch.Error {
		if m, err := meta.Accessor(e.Object); err == nil {
			s.version = m.GetResourceVersion()
		}
	}
	if f, ok := e.Object.(*NodeFeature); ok && (e.Type == watch.Added || e.Type == watch.Modified || e.Type == watch.Deleted) {
		if f = revise(e.Type, f); f == nil {
			return true
		}
		e.Object = f
	}
	return s.send(e)
}

func (s *Stream) send(events ...watch.Event) bool {
	for _, e := range events {
		select {
		case <-s.stop:
			return false
		case s.events <- e:
		}
	}
	return true
}

// Replace sends a deletion and an addition of an object, because informers ignore an update with the same resourceVersion. It returns
// false if the watch was stopped. A resumed watch must not start at the version of the object.
func (s *Stream) Replace(gone, f *NodeFeature) bool {
	events := []watch.Event{{Type: watch.Deleted, Object: gone}, {Type: watch.Added, Object: f}}
	if s.version != "" {
		at := &NodeFeature{ObjectMeta: metav1.ObjectMeta{ResourceVersion: s.version}}
		events = append(events, watch.Event{Type: watch.Bookmark, Object: at})
	}
	return s.send(events...)
}

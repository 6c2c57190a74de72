package publish

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// running starts Run with one Content and returns its events.
func running(t *testing.T, s *server, clock *clocktesting.FakeClock, change ...func(*Options)) (chan<- Content, <-chan Event) {
	events := make(chan Event, 64)
	p := newPublisher(t, s, n1, func(o *Options) {
		o.Observe = func(e Event) { events <- e }
		o.Clock = clock
		o.Rand = func() float64 { return 1 }
		for _, f := range change {
			f(o)
		}
	})
	contents := make(chan Content)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { p.Run(ctx, contents); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return contents, events
}

// expect waits for the next event that satisfies the condition.
func expect(t *testing.T, events <-chan Event, what string, holds func(Event) bool) {
	t.Helper()
	for deadline := time.After(time.Minute); ; {
		select {
		case e := <-events:
			if holds(e) {
				return
			}
		case <-deadline:
			t.Fatalf("no event: %s", what)
		}
	}
}

func is(c Change) func(Event) bool { return func(e Event) bool { return e.Change == c } }

func TestRunRepairsADeletedObject(t *testing.T) {
	s := newServer(t)
	contents, events := running(t, s, clocktesting.NewFakeClock(time.Now()))
	contents <- content("6.1")
	expect(t, events, "created", is(Created))
	<-s.watching
	s.remove(own)
	expect(t, events, "created again", is(Created))
}

func TestRunAddsTheOwnerOnceTheNodeIsRegistered(t *testing.T) {
	s, clock := newServer(t), clocktesting.NewFakeClock(time.Now())
	var registered atomic.Bool
	contents, events := running(t, s, clock, func(o *Options) {
		o.Identify = func(context.Context) (Identity, error) {
			if registered.Load() {
				return n1, nil
			}
			return Identity{Node: "n1"}, nil
		}
	})
	contents <- content("6.1")
	expect(t, events, "created", is(Created))
	registered.Store(true)
	for range 60 { // far less than checkInterval
		clock.Step(minBackoff)
		select {
		case e := <-events:
			if owners := s.get(own)["metadata"].(map[string]any)["ownerReferences"]; e.Change != Patched || owners == nil {
				t.Errorf("%+v, owners = %v", e, owners)
			}
			return
		case <-time.After(time.Second):
		}
	}
	t.Error("the owner is not added")
}

func TestRunRepairsATamperedObject(t *testing.T) {
	s := newServer(t)
	contents, events := running(t, s, clocktesting.NewFakeClock(time.Now()))
	contents <- content("6.1")
	expect(t, events, "created", is(Created))
	<-s.watching
	forged := clone(s.get(own))
	forged["spec"].(map[string]any)["labels"] = map[string]any{"forged": "true"}
	s.set(own, forged)
	expect(t, events, "repaired", is(Patched))
	if got := s.get(own)["spec"].(map[string]any)["labels"].(map[string]any); got["forged"] != nil {
		t.Errorf("labels = %v", got)
	}
}

// TestRunCorrectsAnOldFirstRead: the object that a new worker reads from a cache is what it wants to publish, and was changed since.
func TestRunCorrectsAnOldFirstRead(t *testing.T) {
	s := newServer(t)
	mustPublish(t, newPublisher(t, s, n1, nil), content("6.1"))
	s.cache = map[string]map[string]any{own: clone(s.get(own))}
	mustPublish(t, newPublisher(t, s, Identity{Node: "n1", NodeUID: n1.NodeUID, PodUID: n1.PodUID}, nil), content("6.2"))
	contents, events := running(t, s, clocktesting.NewFakeClock(time.Now()))
	contents <- content("6.1")
	expect(t, events, "nothing to change", is(Unchanged))
	expect(t, events, "changed", is(Patched))
}

func TestRunLeavesForeignAnnotationsAloneWithoutReading(t *testing.T) {
	s := newServer(t)
	contents, events := running(t, s, clocktesting.NewFakeClock(time.Now()))
	contents <- content("6.1")
	expect(t, events, "created", is(Created))
	<-s.watching
	s.took()
	touched := clone(s.get(own))
	touched["metadata"].(map[string]any)["annotations"].(map[string]any)["other"] = "x"
	s.set(own, touched)
	expect(t, events, "nothing to do", is(Unchanged))
	if got := s.took(); len(got) > 0 {
		t.Errorf("requests: %v", got)
	}
}

func TestRunCalmsDownInAFight(t *testing.T) {
	s := newServer(t)
	clock := clocktesting.NewFakeClock(time.Now())
	contents, events := running(t, s, clock)
	contents <- content("6.1")
	expect(t, events, "created", is(Created))
	<-s.watching
	for range freeRepairs {
		s.remove(own)
		expect(t, events, "created again", is(Created))
	}
	s.remove(own)
	expect(t, events, "a wait", func(e Event) bool { return e.Notice != "" && e.Retry > 0 })
	if s.get(own) != nil {
		t.Fatal("it was created at once")
	}
	clock.Step(maxBackoff)
	expect(t, events, "created after the wait", is(Created))
}

func TestRunOutlivesTheAPIServer(t *testing.T) {
	s := newServer(t)
	clock := clocktesting.NewFakeClock(time.Now())
	s.setRefuse(http.StatusServiceUnavailable)
	contents, events := running(t, s, clock)
	contents <- content("6.1")
	var waits []time.Duration
	for range 10 {
		expect(t, events, "a failure", func(e Event) bool {
			if e.Err != nil {
				waits = append(waits, e.Retry)
			}
			return e.Err != nil
		})
		clock.Step(waits[len(waits)-1])
	}
	expect(t, events, "one more failure", func(e Event) bool { return e.Err != nil })
	for i, w := range waits {
		if want := min(minBackoff<<i, maxUnavailable); w != want {
			t.Errorf("wait %d is at most %v, want %v", i, w, want)
		}
	}
	s.setRefuse(0)
	s.took()
	contents <- content("6.2") // while waiting: replaces the pending content
	clock.Step(maxBackoff)
	expect(t, events, "created", is(Created))
	if got := s.get(own)["spec"].(map[string]any)["labels"].(map[string]any)["kernel-version.full"]; got != "6.2" {
		t.Errorf("published %v, not the latest", got)
	}
	if got := s.took(); len(got) != 2 {
		t.Errorf("requests at the return: %v, want a read and a write", got)
	}
}

package watchhealth_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/assay-project/assay/internal/watchhealth"
)

// world is a server of watches that send the events of the test, and a client with a monitored transport.
type world struct {
	t       *testing.T
	clock   *clocktesting.FakeClock
	monitor *watchhealth.Monitor
	client  *http.Client
	url     string
	// answer handles the next request.
	answer     atomic.Pointer[http.HandlerFunc]
	stalls     chan watchhealth.Stall
	reconnects chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWith(t, time.Minute)
}

func newWorldWith(t *testing.T, silence time.Duration) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakeClock(time.Unix(1000, 0)), stalls: make(chan watchhealth.Stall, 8), reconnects: make(chan struct{}, 8)}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { (*w.answer.Load())(rw, r) }))
	w.url = server.URL
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	w.monitor = watchhealth.New(watchhealth.Options{
		Silence: silence, Patience: 10 * time.Second, Clock: w.clock,
		Report: func(s watchhealth.Stall) { w.stalls <- s }, Reconnect: func() { w.reconnects <- struct{}{} },
	})
	w.client = &http.Client{Transport: w.monitor.RoundTripper(http.DefaultTransport)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.monitor.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	for !w.clock.HasWaiters() { // until Run waits for its ticker
		runtime.Gosched()
	}
	return w
}

// open starts a watch of nodes. The server sends the strings from events.
func (w *world) open(ctx context.Context, events <-chan string) io.ReadCloser {
	w.t.Helper()
	w.answers(func(rw http.ResponseWriter, r *http.Request) {
		rw.(http.Flusher).Flush()
		for {
			select {
			case <-r.Context().Done():
				return
			case e, ok := <-events:
				if !ok {
					return
				}
				if e == "break" {
					panic(http.ErrAbortHandler)
				}
				_, _ = io.WriteString(rw, e)
				rw.(http.Flusher).Flush()
			}
		}
	})
	resp, err := w.ask(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp.Body
}

func (w *world) answers(f http.HandlerFunc) { w.answer.Store(&f) }

func (w *world) ask(ctx context.Context) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/api/v1/nodes?watch=true&resourceVersion=7", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.client.Do(req)
}

// read reads one event.
func read(t *testing.T, from io.Reader, want string) {
	t.Helper()
	buffer := make([]byte, len(want))
	if _, err := io.ReadFull(from, buffer); err != nil || string(buffer) != want {
		t.Fatalf("got %q (%v), want %q", buffer, err, want)
	}
}

func TestSilentWatchIsEndedSoThatItIsOpenedAnew(t *testing.T) {
	w := newWorld(t)
	events := make(chan string)
	stream := w.open(t.Context(), events)
	w.clock.Step(50 * time.Second)
	events <- "bookmark"
	read(t, stream, "bookmark")
	w.clock.Step(50 * time.Second)
	events <- "bookmark" // it is still open after more than a minute, because it has received data
	read(t, stream, "bookmark")
	w.clock.Step(61 * time.Second)
	if n, err := stream.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("got %d bytes and %v, want the end that servers make themselves", n, err)
	}
	if got := <-w.stalls; got.Resource != "nodes" || got.Opening || got.For != 61*time.Second {
		t.Errorf("the stall is %+v", got)
	}
}

// TestAWatchOfWhatDoesNotChangeStaysOpen skips every other bookmark, as Kubernetes 1.36.3 does if etcd does not report its progress.
func TestAWatchOfWhatDoesNotChangeStaysOpen(t *testing.T) {
	w := newWorldWith(t, 0) // the default
	events := make(chan string)
	stream := w.open(t.Context(), events)
	for range 3 {
		w.clock.Step(2 * time.Minute)
		events <- "bookmark"
		read(t, stream, "bookmark")
	}
	select {
	case stall := <-w.stalls:
		t.Errorf("the watch was reopened: %+v", stall)
	default:
	}
}

func TestCheckFailsOnlyWhileAWatchIsClosedForLong(t *testing.T) {
	w := newWorld(t)
	events := make(chan string)
	stream := w.open(t.Context(), events)
	w.clock.Step(59 * time.Second)
	if err := w.monitor.Check(); err != nil {
		t.Errorf("an open watch: %v", err)
	}
	close(events)
	if _, err := io.ReadAll(stream); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(10 * time.Second)
	if err := w.monitor.Check(); err != nil {
		t.Errorf("a watch that ended a moment ago: %v", err)
	}
	w.answers(func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "no", http.StatusServiceUnavailable) })
	resp, err := w.ask(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	w.clock.Step(5 * time.Second)
	const want = "watches of the API server are interrupted: nodes (the answer is 503 Service Unavailable)"
	if err := w.monitor.Check(); err == nil || err.Error() != want {
		t.Errorf("a closed watch: got %v, want %s", err, want)
	}
	if got := w.monitor.Closed(); got != 15*time.Second {
		t.Errorf("closed for %s", got)
	}
	w.open(t.Context(), nil)
	if err := w.monitor.Check(); err != nil || w.monitor.Closed() != 0 {
		t.Errorf("a watch that is open again: %v, closed for %s", err, w.monitor.Closed())
	}
}

func TestAWatchThatBreaksOffGoesOnWhereItStopped(t *testing.T) {
	w := newWorld(t)
	events := make(chan string)
	stream := w.open(t.Context(), events)
	events <- "break"
	// client-go converts any other error to an event, which causes a list of all objects.
	if _, err := io.ReadAll(stream); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

func TestUnansweredWatchTriesAnotherConnectionAndThenAnotherRequest(t *testing.T) {
	w := newWorld(t)
	asked, failed := make(chan struct{}), make(chan error)
	w.answers(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	})
	go func() {
		resp, err := w.ask(t.Context())
		if err == nil {
			_ = resp.Body.Close()
		}
		failed <- err
	}()
	<-asked
	w.clock.Step(11 * time.Second)
	<-w.reconnects
	if s := <-w.stalls; !s.Opening || s.For != 11*time.Second {
		t.Errorf("the stall is %+v", s)
	}
	w.clock.Step(40 * time.Second) // not again yet: many watches share one connection
	w.clock.Step(10 * time.Second)
	err := <-failed
	// client-go retries after a timeout, and lists all objects after any other error.
	if !utilnet.IsTimeout(err) || !strings.Contains(err.Error(), "no answer within 1m0s") {
		t.Errorf("got %v, want a timeout", err)
	}
	if len(w.reconnects) != 0 {
		t.Error("it connects again and again")
	}
}

func TestWatchesThatNobodyWantsAnyMoreAreForgotten(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	stream := w.open(ctx, nil)
	cancel()
	if _, err := io.ReadAll(stream); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	w.clock.Step(time.Hour)
	if err := w.monitor.Check(); err != nil {
		t.Error(err)
	}
}

func TestOtherRequestsAreNotLookedAt(t *testing.T) {
	w := newWorld(t)
	w.answers(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "list") })
	resp, err := w.client.Get(w.url + "/api/v1/nodes?limit=500")
	if err != nil {
		t.Fatal(err)
	}
	read(t, resp.Body, "list")
	_ = resp.Body.Close()
	w.clock.Step(time.Hour)
	if err := w.monitor.Check(); err != nil || len(w.stalls) > 0 {
		t.Error(err)
	}
}

// TestRelistEndsAWatchSoThatItsClientLists: after a definition has changed, the objects in a cache may lack fields although no event reports
// that. The next request is answered with 410 once, and watches of other resources go on.
func TestRelistEndsAWatchSoThatItsClientLists(t *testing.T) {
	w := newWorld(t)
	events := make(chan string, 1)
	body := w.open(t.Context(), events)
	w.monitor.Relist("pods")
	events <- "first"
	read(t, body, "first")
	w.monitor.Relist("nodes")
	if _, err := io.ReadAll(body); err != nil && !utilnet.IsProbableEOF(err) {
		t.Errorf("the watch ends with %v, as no API server ends one", err)
	}
	w.answers(func(http.ResponseWriter, *http.Request) {})
	for i, want := range []int{http.StatusGone, http.StatusOK} {
		resp, err := w.ask(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("request %d after it is answered with %s", i+1, resp.Status)
		}
	}
}

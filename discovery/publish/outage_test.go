package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// network passes requests to a server without sockets, so that a bubble of synctest can use it.
type network struct {
	*server

	mu    sync.Mutex
	away  chan struct{} // closed while the server is unavailable
	lose  bool          // carry out writes, and lose the responses
	old   bool          // versions of watches are too old
	fail  int           // number of reads of metadata that fail
	calls []call
}

type call struct {
	at     time.Time
	method string // WATCH for a watch
	path   string
	failed bool
}

func newNetwork() *network {
	return &network{
		server: &server{objects: map[string]map[string]any{}, watchers: map[chan event]string{}, watching: make(chan struct{}, 16)},
		away:   make(chan struct{}),
	}
}

// leave makes the server unavailable, and ends the watches.
func (n *network) leave() { close(n.away) }

// back makes the server available again.
func (n *network) back() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.away, n.calls = make(chan struct{}), nil
}

// loseResponses sets whether the responses of writes are lost.
func (n *network) loseResponses(lose bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lose = lose
}

// sent returns the requests since back.
func (n *network) sent() []call {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.calls)
}

var errUnavailable = errors.New("connection refused")

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	c := call{at: time.Now(), method: r.Method, path: r.URL.Path}
	if r.URL.Query().Get("watch") != "" {
		c.method = "WATCH"
	}
	n.mu.Lock()
	away, lose, old := n.away, n.lose && r.Method != http.MethodGet, n.old
	if n.fail > 0 && c.method == http.MethodGet && r.Header.Get("Accept") == metadataOnly {
		n.fail--
		c.failed = true
	}
	select {
	case <-away:
		c.failed = true
	default:
	}
	n.calls = append(n.calls, c)
	n.mu.Unlock()
	if c.failed {
		return nil, errUnavailable
	}
	if c.method == "WATCH" && r.URL.Query().Get("resourceVersion") != "" && old {
		return &http.Response{StatusCode: http.StatusGone, Body: io.NopCloser(strings.NewReader(""))}, nil
	}
	if c.method == "WATCH" {
		return &http.Response{StatusCode: http.StatusOK, Body: silent{r.Context(), away}}, nil
	}
	w := httptest.NewRecorder()
	n.ServeHTTP(w, r)
	if lose {
		return nil, io.ErrUnexpectedEOF
	}
	return w.Result(), nil
}

// silent is the body of a watch without events, which ends when the server becomes unavailable.
type silent struct {
	ctx  context.Context
	away <-chan struct{}
}

func (s silent) Read([]byte) (int, error) {
	select {
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	case <-s.away:
		return 0, io.EOF
	}
}

func (silent) Close() error { return nil }

// fleetOf runs the publishers of n nodes, and returns a function that publishes a kernel version on one of them, and one that ends them.
func fleetOf(t *testing.T, net *network, nodes int) (set func(node int, kernel string), end func()) {
	t.Helper()
	client, err := NewClient(&Config{Server: "http://server", Transport: net})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var contents []chan Content
	for i := range nodes {
		id := Identity{Node: fmt.Sprintf("n%d", i), NodeUID: "uid", PodUID: "pod"}
		p := New(client, Options{
			Namespace: "assay-system", Rand: seeded(uint64(i)), Identify: func(context.Context) (Identity, error) { return id, nil },
		})
		in := make(chan Content)
		contents = append(contents, in)
		running.Go(func() { p.Run(ctx, in) })
	}
	return func(node int, kernel string) { contents[node] <- content(kernel) }, func() { cancel(); running.Wait() }
}

// seeded returns a source of random numbers that is safe for concurrent use.
func seeded(seed uint64) func() float64 {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return random.Float64()
	}
}

// kernelOf returns the published kernel version of a node.
func (n *network) kernelOf(node int) string {
	object := n.get(fmt.Sprintf("%s/n%d", collection, node))
	if object == nil {
		return ""
	}
	return object["spec"].(map[string]any)["labels"].(map[string]any)["kernel-version.full"].(string)
}

// publishedFleet runs the publishers of n nodes, all of which have published kernel version 6.1.
func publishedFleet(t *testing.T, nodes int) (net *network, set func(node int, kernel string), end func()) {
	t.Helper()
	net = newNetwork()
	set, end = fleetOf(t, net, nodes)
	for i := range nodes {
		set(i, "6.1")
	}
	synctest.Wait()
	return net, set, end
}

// TestFactsArePublishedWithinAMinuteOfAnOutage also counts the requests at the return of the API server: a write of each worker that
// has something to publish, and a watch of each.
func TestFactsArePublishedWithinAMinuteOfAnOutage(t *testing.T) {
	const nodes = 50
	for _, outage := range []time.Duration{10 * time.Second, 2 * time.Minute, 10 * time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net, set, end := publishedFleet(t, nodes)
				defer end()
				net.leave()
				for i := range nodes {
					set(i, "6.2")
				}
				time.Sleep(outage)
				net.back()
				time.Sleep(maxUnavailable)
				synctest.Wait()
				for i := range nodes {
					if got := net.kernelOf(i); got != "6.2" {
						t.Fatalf("node %d has published %s %s after the return", i, got, maxUnavailable)
					}
				}
				time.Sleep(maxBackoff)
				synctest.Wait()
				sent := map[string]int{}
				for _, c := range net.sent() {
					sent[c.method]++
				}
				if len(sent) != 2 || sent[http.MethodPatch] != nodes || sent["WATCH"] != nodes {
					t.Errorf("requests at the return: %v, want a PATCH and a WATCH of each of %d workers", sent, nodes)
				}
			})
		})
	}
}

// TestManyWorkersAreNoStormAfterAnOutage draws the delays of all workers of a large cluster.
func TestManyWorkersAreNoStormAfterAnOutage(t *testing.T) {
	const workers = 15_000
	mean := workers / (maxUnavailable.Seconds() / 2)
	for _, outage := range []time.Duration{2 * time.Minute, 10 * time.Minute} {
		var attempts [60]int // by second after the return
		for i := range workers {
			b := backoff{rand: seeded(uint64(i)), max: maxUnavailable}
			at := time.Duration(0)
			for at < outage {
				at += b.next(errUnavailable)
			}
			attempts[int((at-outage).Seconds())]++
		}
		last := len(attempts) - 1
		for attempts[last] == 0 {
			last--
		}
		peak := slices.Max(attempts[:])
		t.Logf("after %s, %d workers send at most %d requests a second, the last one in second %d", outage, workers, peak, last+1)
		if float64(peak) > 1.2*mean || last >= int(maxUnavailable.Seconds()) {
			t.Errorf("want at most %.0f, within %s", 1.2*mean, maxUnavailable)
		}
	}
}

// TestADeletionIsNoticedAlthoughTheReadAfterALostWatchFails: the object is read once a watch has missed events. If that failed, it was
// not read again (found by seed 108615 of the simulator).
func TestADeletionIsNoticedAlthoughTheReadAfterALostWatchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, _, end := publishedFleet(t, 1)
		defer end()
		net.leave()
		net.remove(collection + "/n0")
		net.old, net.fail = true, 1
		net.back()
		time.Sleep(maxBackoff)
		synctest.Wait()
		if got := net.kernelOf(0); got != "6.1" || net.fail != 0 {
			t.Errorf("kernel version %q after the object was deleted, want 6.1", got)
		}
		sent := len(net.sent())
		time.Sleep(time.Hour / 3)
		if more := net.sent()[sent:]; len(more) != 0 {
			t.Errorf("requests afterwards: %v", more)
		}
	})
}

// TestWatchesAreNotOpenedTogether has the watches of all workers end, as they do when an API server stops. Before, workers opened them again
// within a second, and an API server that had just started rejected most of thousands.
func TestWatchesAreNotOpenedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 300
		net, _, end := publishedFleet(t, nodes)
		defer end()
		net.leave()
		net.back()
		returned := time.Now()
		time.Sleep(minReopen)
		synctest.Wait()
		seconds := make([]int, int(minReopen.Seconds())+1)
		for _, c := range net.sent() {
			seconds[int(c.at.Sub(returned).Seconds())]++
		}
		if most := 3 * nodes / len(seconds); len(net.sent()) != nodes || slices.Max(seconds) > most {
			t.Errorf("requests by second: %v, want %d in all and at most %d in each", seconds, nodes, most)
		}
	})
}

// TestALostResponseCostsOneRead checks that a write is sent again with the version that it was computed from.
func TestALostResponseCostsOneRead(t *testing.T) {
	for name, next := range map[string]string{"the same content": "6.2", "the previous content": "6.1", "other content": "6.3"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net, set, end := publishedFleet(t, 1)
				defer end()
				net.loseResponses(true)
				set(0, "6.2")
				synctest.Wait()
				net.loseResponses(false)
				net.took()
				set(0, next)
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := net.kernelOf(0); got != next {
					t.Errorf("published %s, want %s", got, next)
				}
				reads := 0
				for _, request := range net.took() {
					if strings.HasPrefix(request, http.MethodGet) {
						reads++
					}
				}
				if reads != 1 {
					t.Errorf("%d reads, want 1", reads)
				}
			})
		})
	}
}

// TestARejectionAfterAnOutageIsRetriedSoon: an API server that starts rejects requests until it knows the roles.
func TestARejectionAfterAnOutageIsRetriedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork()
		set, end := fleetOf(t, net, 1)
		defer end()
		net.leave()
		set(0, "6.1")
		time.Sleep(time.Hour)
		net.setRefuse(http.StatusForbidden)
		net.back()
		for len(net.sent()) == 0 {
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		net.setRefuse(0)
		time.Sleep(minBackoff)
		synctest.Wait()
		if got := net.kernelOf(0); got != "6.1" {
			t.Errorf("published %q a second after the rejection", got)
		}
	})
}

// TestRejectionsAreRetriedEveryFewMinutes: only an administrator can change them.
func TestRejectionsAreRetriedEveryFewMinutes(t *testing.T) {
	for code, want := range map[int]time.Duration{
		http.StatusForbidden: maxBackoff, http.StatusUnprocessableEntity: maxBackoff, http.StatusNotFound: maxBackoff,
		http.StatusTooManyRequests: maxUnavailable, http.StatusInternalServerError: maxUnavailable, http.StatusGatewayTimeout: maxUnavailable,
	} {
		synctest.Test(t, func(t *testing.T) {
			net := newNetwork()
			net.setRefuse(code)
			set, end := fleetOf(t, net, 1)
			defer end()
			set(0, "6.1")
			time.Sleep(time.Hour)
			net.back()
			const hours = 10
			time.Sleep(hours * time.Hour)
			if got, expected := len(net.sent()), int(2*hours*time.Hour/want); got < expected*3/4 || got > expected*5/4 {
				t.Errorf("%d requests in %d hours of responses %d, want about %d", got, hours, code, expected)
			}
		})
	}
}

//go:build linux

package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Fault is a disturbance of requests. The zero value disturbs none.
type Fault struct {
	// Share is the fraction of the requests that are affected.
	Share float64
	// Status answers with an error of this code.
	Status int
	// Expired answers watches, and only those, with 410.
	Expired bool
	// Lose forwards writes, and drops their responses.
	Lose bool
	// Truncate, if positive, ends responses after so many bytes.
	Truncate int
	// Late keeps patches of Nodes, and cuts their connections, as a load balancer does that gives a request up and has it still in its
	// buffers. Deliver forwards them.
	Late bool
}

// Proxy forwards HTTPS requests to one of several API servers. It authenticates to them itself, and accepts all clients. It is safe
// for concurrent use.
type Proxy struct {
	*Wire
	listener net.Listener
	server   *http.Server
	backends []*backend

	mu        sync.Mutex
	at        int // the preferred backend
	fault     Fault
	rand      *rand.Rand
	requests  map[int64]int // by second
	total     int
	disturbed int
	throttled int             // responses of API servers with 429
	kept      []*http.Request // late, oldest first
}

// backend is an API server.
type backend struct {
	url  *url.URL
	next http.RoundTripper
}

// Options configure a Proxy.
type Options struct {
	// Backends are the API servers, with the credentials for them.
	Backends []*rest.Config
	// CertFile and KeyFile are the certificate of the proxy.
	CertFile, KeyFile string
	// Seed is the seed of the choice of disturbed requests.
	Seed uint64
}

// New starts a proxy on a free port of the loopback interface.
func New(ctx context.Context, o Options) (*Proxy, error) {
	p := &Proxy{Wire: newWire(), rand: rand.New(rand.NewPCG(o.Seed, 0)), requests: map[int64]int{}} //nolint:gosec // not a secret
	for _, config := range o.Backends {
		next, err := rest.TransportFor(config)
		if err != nil {
			return nil, err
		}
		u, err := url.Parse(config.Host)
		if err != nil {
			return nil, err
		}
		p.backends = append(p.backends, &backend{u, next})
	}
	var err error
	if p.listener, err = p.listen(ctx); err != nil {
		return nil, err
	}
	quiet := log.New(io.Discard, "", 0) // clients that hang up are the purpose
	forward := &httputil.ReverseProxy{
		Rewrite: func(*httputil.ProxyRequest) {}, Transport: balancer{p}, FlushInterval: -1, ErrorLog: quiet,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ModifyResponse: p.count,
	}
	p.server = &http.Server{Handler: p.disturbing(forward), ErrorLog: quiet, ReadHeaderTimeout: time.Minute}
	go func() { _ = p.server.ServeTLS(p.listener, o.CertFile, o.KeyFile) }()
	return p, nil
}

// URL returns the address for clients.
func (p *Proxy) URL() string { return "https://" + p.listener.Addr().String() }

// Close closes the proxy and its connections.
func (p *Proxy) Close() error {
	p.Thaw() // the end of a TLS connection is written
	return p.server.Close()
}

// Prefer selects the backend of new requests. Another one is used while it refuses connections.
func (p *Proxy) Prefer(backend int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = backend
}

// Disturb sets the fault of new requests.
func (p *Proxy) Disturb(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// Requests returns the number of requests and of disturbed ones so far.
func (p *Proxy) Requests() (all, disturbed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total, p.disturbed
}

// Throttled returns the number of requests so far that API servers rejected with 429.
func (p *Proxy) Throttled() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.throttled
}

// count counts a response.
func (p *Proxy) count(response *http.Response) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if response.StatusCode == http.StatusTooManyRequests {
		p.throttled++
	}
	return nil
}

// Deliver forwards the late requests, the newest first, and returns how many API servers carried out, and how many they rejected.
func (p *Proxy) Deliver() (done, rejected int, err error) {
	p.mu.Lock()
	kept := p.kept
	p.kept = nil
	p.mu.Unlock()
	for _, r := range slices.Backward(kept) {
		response, err := balancer{p}.RoundTrip(r)
		if err != nil {
			return done, rejected, err
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			done++
		} else {
			rejected++
		}
	}
	return done, rejected, nil
}

// keep keeps a request for Deliver.
func (p *Proxy) keep(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // it has not arrived
	}
	late := r.Clone(context.WithoutCancel(r.Context()))
	late.Body = io.NopCloser(bytes.NewReader(body))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = append(p.kept, late)
}

// Peak returns the highest number of requests in one second since a time.
func (p *Proxy) Peak(since time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	peak := 0
	for second, n := range p.requests {
		if second >= since.Unix() {
			peak = max(peak, n)
		}
	}
	return peak
}

// draw counts a request and returns its fault.
func (p *Proxy) draw() Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total++
	p.requests[time.Now().Unix()]++
	if p.fault.Share == 0 || p.rand.Float64() >= p.fault.Share {
		return Fault{}
	}
	return p.fault
}

// nodes is the beginning of the paths of Nodes.
const nodes = "/api/v1/nodes/"

func (p *Proxy) disturbing(forward http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, watch := p.draw(), r.URL.Query().Get("watch") != ""
		hit := true
		switch {
		case f.Status != 0:
			refuse(w, f.Status)
		case f.Expired && watch:
			refuse(w, http.StatusGone)
		case f.Late && r.Method == http.MethodPatch && strings.HasPrefix(r.URL.Path, nodes):
			p.keep(r)
			p.hit()
			panic(http.ErrAbortHandler)
		case f.Lose && r.Method != http.MethodGet:
			forward.ServeHTTP(httptest.NewRecorder(), r)
			p.hit()
			panic(http.ErrAbortHandler)
		case f.Truncate > 0:
			w = &truncated{w, f.Truncate}
			fallthrough
		default:
			hit = f.Truncate > 0
			forward.ServeHTTP(w, r)
		}
		if hit {
			p.hit()
		}
	})
}

func (p *Proxy) hit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disturbed++
}

// refuse answers as an API server does.
func refuse(w http.ResponseWriter, code int) {
	reason := map[int]metav1.StatusReason{
		http.StatusGone: metav1.StatusReasonExpired, http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
		http.StatusInternalServerError: metav1.StatusReasonInternalError, http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
		http.StatusGatewayTimeout: metav1.StatusReasonTimeout,
	}[code]
	w.Header().Set("Content-Type", "application/json")
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: fmt.Sprintf("a test answers with %d", code), //nolint:gosec // a status code
	})
}

// truncated ends a response after some bytes.
type truncated struct {
	http.ResponseWriter
	left int
}

func (t *truncated) Write(b []byte) (int, error) {
	if len(b) <= t.left {
		t.left -= len(b)
		return t.ResponseWriter.Write(b)
	}
	_, _ = t.ResponseWriter.Write(b[:t.left])
	_ = http.NewResponseController(t.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

// Unwrap is for http.ResponseController.
func (t *truncated) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// balancer sends requests to the preferred backend, or to the next one that accepts connections.
type balancer struct{ *Proxy }

func (b balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	at := b.at
	b.mu.Unlock()
	var failed error
	for i := range b.backends {
		next := b.backends[(at+i)%len(b.backends)]
		out := r.Clone(r.Context())
		out.URL.Scheme, out.URL.Host, out.Host = next.url.Scheme, next.url.Host, next.url.Host
		response, err := next.next.RoundTrip(out)
		if err == nil {
			return response, nil
		}
		failed = err
		var dial *net.OpError
		if r.Context().Err() != nil || !errors.As(err, &dial) || dial.Op != "dial" {
			break // it may have been sent
		}
	}
	return nil, failed
}

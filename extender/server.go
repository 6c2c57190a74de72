// Package extender answers kube-scheduler's requests: on which nodes a pod can run, and which of them are better, by live features.
//
// Decider makes the decisions and is independent of HTTP; Server serves them. The features of nodes come from an index.Index, the
// requirements of pods from podrequirements.Resolver.
package extender

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/internal/intake"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/poison"
)

// Limits of the server.
const (
	// maxBody is the maximum size of a request in bytes: a Pod has at most 1.5 MiB, and 15,000 names of 60 characters have less
	// than 1 MiB.
	maxBody = 4 << 20
	// maxInFlight is the maximum memory in bytes for all requests and their responses. A scheduler sends one request at a time.
	maxInFlight = 64 << 20
	// requestCost is the memory in bytes of a request in addition to its body.
	requestCost = 64 << 10
	// maxWait is the maximum time that a request waits for its turn. kube-scheduler times out after 5 s by default.
	maxWait = 2 * time.Second
	// maxInspections is the maximum number of concurrent explanations, so that they do not delay schedulers: each reads all nodes.
	// inspectTimeout is the timeout of each, including the read of the pod.
	maxInspections = 4
	inspectTimeout = 10 * time.Second
	// readTimeout is the maximum time in which a client must send a request, including headers.
	readTimeout = 5 * time.Second
	// writeTimeout is the maximum time for waiting and responding, also to a client that does not read.
	writeTimeout = 15 * time.Second
	idleTimeout  = 2 * time.Minute
	// drainTimeout is the maximum time for running requests at shutdown.
	drainTimeout = 10 * time.Second
	// maxHeader is far above what a scheduler sends; a bearer token has about 2 KB.
	maxHeader = 64 << 10
)

// Options configure a Server.
type Options struct {
	// Addr is the address to listen on.
	Addr string
	// GetCertificate returns the serving certificate. If it is nil, the server serves plain HTTP without authentication, for a
	// loopback address of a pod that it shares with the scheduler; New rejects any other address.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCAs returns the authorities that sign client certificates. It is called for every handshake, since authorities can be
	// replaced at run time. Nil: client certificates are ignored.
	ClientCAs func() *x509.CertPool
	// Authenticate returns the user of a bearer token; nil: tokens are ignored.
	Authenticate Authenticator
	// Allowed lists the users who can send requests: common names of certificates, or users of tokens. Empty: every authenticated
	// user. An authority usually signs certificates of other clients than the scheduler too.
	Allowed []string
	// Pod reads a pod for /v1/explain; nil disables that.
	Pod func(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// Mask configures which values /v1/nodes/NAME/features omits; the zero value masks rules.DefaultMasked.
	Mask rules.Masking
	// Ready returns an error while answers would be unreliable; nil: always ready. The server also checks that the Index is filled.
	Ready func() error
	// Metrics serves /metrics; nil: none.
	Metrics http.Handler
	// Observe is called with every response: the verb ("filter", …), the result ("ok", "error", "refused") and the duration,
	// including waiting. Nil ignores it.
	Observe func(verb, result string, took time.Duration)
	// ShutdownDelay is how long the server continues to answer, while unready, after it is asked to shut down: a load balancer
	// needs time to remove the replica. A request that finds no server fails, and if the extender is ignorable the pod is then
	// placed without it.
	ShutdownDelay time.Duration
	// Refused is called with the reason why a client is rejected: a failed handshake, or missing or invalid credentials. From is an
	// address without its port. The reason is not sent to the client, which can retry without limit. Nil ignores it.
	Refused func(from string, why error)
	// Report is called with failures that the client did not cause, such as a panic. Nil ignores them.
	Report func(error)
}

// Server serves a Decider over HTTP.
type Server struct {
	opts     Options
	decider  *Decider
	bodies   *intake.Bodies      // memory of all requests
	inspects *semaphore.Weighted // running explanations
	draining atomic.Bool
	addr     atomic.Value // string
}

// New returns a server that is not listening yet.
func New(d *Decider, o Options) (*Server, error) {
	if o.GetCertificate == nil {
		host, _, _ := net.SplitHostPort(o.Addr)
		if !net.ParseIP(host).IsLoopback() {
			return nil, fmt.Errorf("cannot serve on %q without TLS: configure a certificate, or a loopback address such as 127.0.0.1:8888", o.Addr)
		}
	} else if o.ClientCAs == nil && o.Authenticate == nil {
		return nil, errors.New("the extender cannot authenticate clients: configure an authority for client certificates, or tokens")
	}
	if o.Observe == nil {
		o.Observe = func(string, string, time.Duration) {}
	}
	if o.Refused == nil {
		o.Refused = func(string, error) {}
	}
	if o.Report == nil {
		o.Report = func(error) {}
	}
	return &Server{
		opts: o, decider: d, bodies: intake.NewBodies(maxInFlight, maxBody, weight), inspects: semaphore.NewWeighted(maxInspections),
	}, nil
}

// Handler returns the server's handler without TLS.
func (s *Server) Handler() http.Handler {
	r := chi.NewRouter()
	r.Get("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	r.Get("/readyz", s.readyz)
	r.Group(func(r chi.Router) {
		r.Use(s.authenticated)
		r.Post("/filter", s.verb("filter", func(b *buffers) (answer []byte, err error) {
			answer, b.spare, err = s.decider.Filter(b.body, b.spare)
			return answer, err
		}))
		r.Post("/prioritize", s.verb("prioritize", func(b *buffers) ([]byte, error) { return s.decider.Prioritize(b.body) }))
		r.Post("/preempt", s.verb("preempt", func(b *buffers) ([]byte, error) { return s.decider.Preempt(b.body) }))
		if s.opts.Pod != nil {
			r.Get("/v1/explain", s.inspect(s.explain))
		}
		r.Get("/v1/nodes/{name}/features", s.inspect(s.features))
		if s.opts.Metrics != nil {
			r.Method(http.MethodGet, "/metrics", s.opts.Metrics)
		}
	})
	return r
}

// Run listens and answers until the context ends. Then it becomes unready, answers for the ShutdownDelay, and waits for running
// requests to finish.
func (s *Server) Run(ctx context.Context) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", s.opts.Addr)
	if err != nil {
		return err
	}
	return s.serve(ctx, listener)
}

func (s *Server) serve(ctx context.Context, listener net.Listener) (err error) {
	s.addr.Store(listener.Addr().String())
	srv := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       intake.ConnContext,
		ErrorLog:          log.New(complaints{s.opts.Refused, s.opts.Report}, "", 0),
	}
	done, failed := make(chan error, 1), make(chan struct{})
	defer close(failed)
	go s.sweep(failed)
	stop := context.AfterFunc(ctx, func() {
		s.draining.Store(true)
		select {
		case <-failed:
		case <-time.After(s.opts.ShutdownDelay):
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		done <- srv.Shutdown(end)
	})
	defer stop()
	listener = intake.Listen(listener)
	if s.opts.GetCertificate == nil {
		err = srv.Serve(listener)
	} else {
		srv.TLSConfig = s.transport()
		err = srv.ServeTLS(listener, "", "")
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-done
}

// sweep makes the Decider delete unused entries periodically until the server ends.
func (s *Server) sweep(ended <-chan struct{}) {
	ticker := time.NewTicker(forgetAfter)
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			return
		case <-ticker.C:
			s.decider.Sweep()
		}
	}
}

// transport returns the TLS configuration.
func (s *Server) transport() *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS13, GetCertificate: s.opts.GetCertificate, NextProtos: []string{"h2", "http/1.1"},
	}
	if s.opts.ClientCAs != nil {
		c.ClientAuth = tls.VerifyClientCertIfGiven // a client without a certificate can have a token
		c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := c.Clone()
			now.GetConfigForClient, now.ClientCAs = nil, s.opts.ClientCAs()
			if now.ClientCAs == nil {
				now.ClientCAs = x509.NewCertPool() // trusts no one; nil would mean all authorities of the system
			}
			return now, nil
		}
	}
	return c
}

// Addr returns the address that the server listens on, empty if it is not listening yet.
func (s *Server) Addr() string {
	a, _ := s.addr.Load().(string)
	return a
}

// ready returns why the server cannot answer.
func (s *Server) ready() error {
	switch {
	case s.draining.Load():
		return errors.New("the server is shutting down")
	case !s.decider.Index.Synced():
		return errors.New("the caches of nodes and rules are not filled yet")
	case s.opts.Ready != nil:
		return s.opts.Ready()
	}
	return nil
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := s.ready(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok")
}

// buffers are reused for later requests, which doubles the rate of requests with 5,000 nodes. An answer is in neither of them: HTTP/2 may
// still send it after Write has returned, if the client resets the stream.
type buffers struct{ body, spare []byte }

var pool = sync.Pool{New: func() any { return &buffers{} }}

// maxKept is the maximum size of a buffer that is kept for reuse.
const maxKept = 1 << 20

func (b *buffers) release() {
	poison.Bytes(b.body)
	poison.Bytes(b.spare)
	if cap(b.body)+cap(b.spare) < 2*maxKept {
		pool.Put(b)
	}
}

// verb answers one request of a scheduler.
func (s *Server) verb(name string, decide func(*buffers) (answer []byte, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		result := "ok"
		defer func() { s.opts.Observe(name, result, time.Since(start)) }()
		b := pool.Get().(*buffers)
		defer b.release()
		release, err := s.read(b, w, r)
		if err != nil {
			result = "refused"
			fail(w, err)
			return
		}
		defer release()
		defer intake.Arrived(r.Context())()
		// While not ready, return an error: a wrong answer is worse than none, and ignorable configures what the scheduler does
		// then.
		if s.opts.Ready != nil {
			if why := s.opts.Ready(); why != nil {
				err = fmt.Errorf("%w: %w", errUnreliable, why)
			}
		}
		var answer []byte
		if err == nil {
			answer, err = decide(b)
		} else if name == "filter" {
			answer = filterError(err)
		}
		if err != nil {
			result = "error"
			if len(answer) == 0 {
				fail(w, &httpError{status(err), err.Error()})
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		// kube-scheduler stops reading at the end of the JSON. Content-Length tells it that nothing follows, so it reuses the
		// connection; after a chunked response it would not, and every request would start with a handshake.
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer) // the client has disconnected
	}
}

// errUnreliable is the answer while Options.Ready returns an error.
var errUnreliable = errors.New("assay extender: not ready")

func status(err error) int {
	if errors.Is(err, errUnready) || errors.Is(err, errUnreliable) {
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

// read reads the body of a request into the previously used buffer, within the memory limit of all requests.
func (s *Server) read(b *buffers, w http.ResponseWriter, r *http.Request) (release func(), err error) {
	ctx, cancel := context.WithTimeout(r.Context(), maxWait)
	defer cancel()
	b.body, release, err = s.bodies.Read(ctx, w, r, b.body)
	switch {
	case errors.Is(err, intake.ErrTooLarge):
		return nil, errTooLarge
	case errors.Is(err, intake.ErrBusy):
		return nil, errBusy
	case err != nil:
		return nil, &httpError{http.StatusBadRequest, "the request was not sent in full"}
	}
	return release, nil
}

// weight returns the memory for a request with a body of a given size: the response is about as large, and so is a rejected body.
func weight(size int64) int64 { return 3*size + requestCost }

// inspect answers a request of a user, a few at a time, once the caches are filled.
func (s *Server) inspect(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := s.ready(); err != nil {
			fail(w, &httpError{http.StatusServiceUnavailable, err.Error()})
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), inspectTimeout)
		defer cancel()
		if s.inspects.Acquire(ctx, 1) != nil {
			fail(w, errBusy)
			return
		}
		defer s.inspects.Release(1)
		defer intake.Arrived(r.Context())()
		answer(w, r.WithContext(ctx))
	}
}

// httpError writes the response to an invalid request.
type httpError struct {
	code int
	text string
}

func (e *httpError) Error() string { return e.text }

var errBusy = &httpError{http.StatusServiceUnavailable, "too many requests at once"}

var errTooLarge = &httpError{http.StatusRequestEntityTooLarge, fmt.Sprintf("a request has at most %d bytes", maxBody)}

func fail(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	var known *httpError
	if errors.As(err, &known) {
		code = known.code
	}
	if code == http.StatusRequestEntityTooLarge {
		w.Header().Set("Connection", "close") // instead of reading the rest
	}
	http.Error(w, err.Error(), code)
}

// Package extender answers kube-scheduler's question which nodes a pod may and had better run on, by their live features.
//
// The decisions are in Decider and know nothing of HTTP; Server is the shell around them. What nodes can do comes from a
// index.Index, what pods require from podrequirements.Resolver.
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
)

// The limits of the server.
const (
	// maxBody is the largest request that is read: a Pod has at most 1.5 MiB, 15,000 names of 60 letters less than one.
	maxBody = 4 << 20
	// maxInFlight bounds the memory of all requests together, their answers included. A scheduler asks one thing at a time.
	maxInFlight = 64 << 20
	// requestCost is what a request weighs besides its body.
	requestCost = 64 << 10
	// maxWait is how long a request may wait for its turn. kube-scheduler gives up after 5 s by default.
	maxWait = 2 * time.Second
	// maxInspections bounds how many explanations are under way, so that they take nothing from schedulers: each looks at all
	// nodes. inspectTimeout bounds each of them, the look at the pod included.
	maxInspections = 4
	inspectTimeout = 10 * time.Second
	// readTimeout bounds how long a client may take to send a request, headers included.
	readTimeout = 5 * time.Second
	// writeTimeout bounds waiting and answering, also for a client that does not read.
	writeTimeout = 15 * time.Second
	idleTimeout  = 2 * time.Minute
	// drainTimeout is how long requests under way may take when the server ends.
	drainTimeout = 10 * time.Second
	// maxHeader is far above what a scheduler sends; a bearer token has some two kilobytes.
	maxHeader = 64 << 10
)

// Options say what a Server needs.
type Options struct {
	// Addr to listen on.
	Addr string
	// GetCertificate returns the serving certificate. Without it the server speaks plain HTTP to anybody who asks, which is
	// for the loopback address of a pod that it shares with the scheduler alone; New refuses any other address.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCAs returns who signs the client certificates of those who may ask. It is asked for every handshake, since
	// authorities are replaced while servers run. Nil: client certificates do not count.
	ClientCAs func() *x509.CertPool
	// Authenticate names whoever shows a bearer token; nil: tokens do not count.
	Authenticate Authenticator
	// Allowed are the names of the users who may ask: the common names of certificates, or the users of tokens. Empty: anybody
	// who is authenticated. An authority usually signs for others than the scheduler too.
	Allowed []string
	// Pod finds a pod for /v1/explain; nil switches that off.
	Pod func(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// Mask says which values /v1/nodes/NAME/features keeps to itself; the zero value masks rules.DefaultMasked.
	Mask rules.Masking
	// Ready says why answers cannot be relied on at the moment; nil is always fine. Whether the Index is filled is asked
	// besides.
	Ready func() error
	// Metrics serves /metrics; nil: none.
	Metrics http.Handler
	// Observe is told of every answer: the question ("filter", …), the result ("ok", "error", "refused") and how long it
	// took, waiting included. Nil ignores it.
	Observe func(verb, result string, took time.Duration)
	// ShutdownDelay is how long the server goes on answering after it was told to end, unready: whoever chooses a replica for
	// a scheduler needs a moment to learn that this one is no choice any more. A question that finds nobody there is one that
	// nobody answers, and where the extender is ignorable the pod is then placed without.
	ShutdownDelay time.Duration
	// Refused is told who may not ask and why: a handshake that failed, no or foreign credentials. From is an address without
	// its port. Whoever asks is not told as much, and may ask as often as he likes. Nil ignores it.
	Refused func(from string, why error)
	// Report is told of failures that are nobody else's, such as a panic. Nil ignores them.
	Report func(error)
}

// Server answers over HTTP.
type Server struct {
	opts     Options
	decider  *Decider
	bodies   *intake.Bodies      // memory of requests
	inspects *semaphore.Weighted // explanations under way
	draining atomic.Bool
	addr     atomic.Value // string
}

// New returns a server that does not listen yet.
func New(d *Decider, o Options) (*Server, error) {
	if o.GetCertificate == nil {
		host, _, err := net.SplitHostPort(o.Addr)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
			return nil, fmt.Errorf("the extender serves %q without TLS: only a loopback address such as 127.0.0.1:8888 may do so", o.Addr)
		}
	} else if o.ClientCAs == nil && o.Authenticate == nil {
		return nil, errors.New("the extender can authenticate nobody: it needs the authority of client certificates, or tokens")
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

// Handler returns the server without its transport.
func (s *Server) Handler() http.Handler {
	r := chi.NewRouter()
	r.Get("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	r.Get("/readyz", s.readyz)
	r.Group(func(r chi.Router) {
		r.Use(s.authenticated)
		r.Post("/filter", s.verb("filter", func(b *buffers) (err error) {
			b.out, b.spare, err = s.decider.Filter(b.body, b.out, b.spare)
			return err
		}))
		r.Post("/prioritize", s.verb("prioritize", func(b *buffers) (err error) {
			b.out, err = s.decider.Prioritize(b.body, b.out)
			return err
		}))
		r.Post("/preempt", s.verb("preempt", func(b *buffers) (err error) {
			b.out, err = s.decider.Preempt(b.body, b.out)
			return err
		}))
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

// Run listens and answers until the context ends. Then it is not ready any more, answers for the ShutdownDelay, and lets
// requests under way finish.
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

// sweep has the Decider forget what is not asked for any more, until the server ends.
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

// transport returns the settings of TLS.
func (s *Server) transport() *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS13, GetCertificate: s.opts.GetCertificate, NextProtos: []string{"h2", "http/1.1"},
	}
	if s.opts.ClientCAs != nil {
		c.ClientAuth = tls.VerifyClientCertIfGiven // whoever shows none may have a token
		c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := c.Clone()
			now.GetConfigForClient, now.ClientCAs = nil, s.opts.ClientCAs()
			if now.ClientCAs == nil {
				now.ClientCAs = x509.NewCertPool() // nobody; nil would be everybody whom the system trusts
			}
			return now, nil
		}
	}
	return c
}

// Addr returns the address that the server listens on, empty before it does.
func (s *Server) Addr() string {
	a, _ := s.addr.Load().(string)
	return a
}

// ready says why the server cannot answer.
func (s *Server) ready() error {
	switch {
	case s.draining.Load():
		return errors.New("it is about to end")
	case !s.decider.Index.Synced():
		return errors.New("nodes and rules are not known yet")
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

// buffers are reused from request to request.
type buffers struct{ body, out, spare []byte }

var pool = sync.Pool{New: func() any { return &buffers{} }}

// maxKept is how large a buffer is kept for the next request.
const maxKept = 1 << 20

func (b *buffers) release() {
	if cap(b.body)+cap(b.out)+cap(b.spare) < 3*maxKept {
		pool.Put(b)
	}
}

// verb answers one question of a scheduler.
func (s *Server) verb(name string, decide func(*buffers) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		result := "ok"
		defer func() { s.opts.Observe(name, result, time.Since(start)) }()
		b := pool.Get().(*buffers)
		defer b.release()
		b.out = b.out[:0]
		release, err := s.read(b, w, r)
		if err != nil {
			result = "refused"
			fail(w, err)
			return
		}
		defer release()
		defer intake.Arrived(r.Context())()
		// What cannot be relied on is not told: an answer that is wrong is worse than none, and what then happens is what
		// the administrator chose with ignorable.
		if s.opts.Ready != nil {
			if why := s.opts.Ready(); why != nil {
				err = fmt.Errorf("%w: %w", errUnreliable, why)
			}
		}
		if err == nil {
			err = decide(b)
		} else if name == "filter" {
			b.out = appendError(b.out, err)
		}
		if err != nil {
			result = "error"
			if len(b.out) == 0 {
				fail(w, &httpError{status(err), err.Error()})
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		// kube-scheduler stops reading where the JSON ends. With the length it knows then that nothing follows, and keeps the
		// connection; of a chunked answer it would not, and every question would begin with a handshake.
		w.Header().Set("Content-Length", strconv.Itoa(len(b.out)))
		_, _ = w.Write(b.out) // a caller who has hung up needs no answer
	}
}

// errUnreliable is the answer while Options.Ready says no.
var errUnreliable = errors.New("assay extender: answers cannot be relied on")

func status(err error) int {
	if errors.Is(err, errUnready) || errors.Is(err, errUnreliable) {
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

// read reads the body of a request into the buffer that was used before, within the memory of all requests.
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

// weight returns how much memory a request with a body of a size takes: the answer is about as large, and so is what is rejected.
func weight(size int64) int64 { return 3*size + requestCost }

// inspect answers a question of a person, a few at a time, once there is something to tell.
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

// httpError is an answer to what is no question of a scheduler.
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
		w.Header().Set("Connection", "close") // rather than read the rest
	}
	http.Error(w, err.Error(), code)
}

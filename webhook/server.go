// Package webhook answers the API server's question whether an object of Assay's kinds makes sense.
//
// It is thin on purpose: a request is decoded, the same Compile that the controller runs says what is wrong, and the answer is
// to allow, to allow with warnings, or to refuse with every problem at once. Each problem has the path of its field.
package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/assay-project/assay/internal/intake"
	"github.com/assay-project/assay/rules/review"
)

// The limits of the server. An API server sends objects of at most 3 MiB, and of an update both the old and the new one.
const (
	// maxBody is the largest review that is read.
	maxBody = 8 << 20
	// maxInFlight bounds the memory of all reviews together, those included whose bodies have not arrived in full. Reviews beyond
	// it wait: memory must be bounded, and time is already (an API server gives up after the timeout of the webhook
	// configuration).
	maxInFlight = 64 << 20
	// reviewCost is the weight of a review in addition to its body, for each chunk of it: a small one decodes to tens of kilobytes.
	reviewCost = 128 << 10
	// reviewChunk is the size of these chunks in bytes. Nearly all reviews are smaller.
	reviewChunk = 256 << 10
	// minTurns is the minimum number of reviews under way: a long one must not delay all others.
	minTurns = 2
	// readTimeout is the maximum time in which a client may send a review, headers included. API servers take milliseconds.
	readTimeout = 3 * time.Second
	// maxStreams is the maximum number of reviews under way on one connection; API servers open another one for more.
	maxStreams = 100
	// streamBuffer and connBuffer bound in bytes what HTTP/2 receives ahead of a review that is waiting.
	streamBuffer, connBuffer = 128 << 10, 256 << 10
	// writeTimeout bounds waiting, reviewing and answering. The longest timeout that a webhook configuration can have is 30 s.
	writeTimeout = 35 * time.Second
	// idleTimeout closes connections that are not used. API servers keep theirs for 90 s.
	idleTimeout = 2 * time.Minute
	// shutdownTimeout is the maximum duration of reviews under way when the server shuts down.
	shutdownTimeout = 10 * time.Second
	// maxHeader is far above what an API server sends.
	maxHeader = 64 << 10
)

// The paths that the server answers.
const (
	// ReviewPath takes AdmissionReviews of all kinds.
	ReviewPath = "/review"
	// EarlyReviewPath takes those of Assay's own kinds in mutating admission. It answers as ReviewPath without warnings and
	// never changes an object.
	EarlyReviewPath = "/review/early"
	// HealthPath answers 200 as soon as the server does.
	HealthPath = "/healthz"
)

// Options configure the server and its reviews. Only GetCertificate is required.
type Options struct {
	// Addr to listen on; ":9443" if empty.
	Addr string
	// GetCertificate returns the serving certificate, see package certs.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCAs, if set, must have signed the client certificate: that of the API server, where it is configured to present one.
	ClientCAs *x509.CertPool

	// Known holds the data that reviews depend on. Its functions must be quick: caches, not the API server.
	Known review.Known
	// Cluster knows the nodes; nil draws no warnings about them.
	Cluster Cluster
	// Room returns the memory in bytes that all other NodeFeatureRules leave for the compiled rules of one, and the memory that these
	// take now; nil: there is always room. See assembly.Sum.
	Room func(name string) (room, now int)
	// FeatureRoom returns an error if the features of a NodeFeature would be left out, which has so many bytes, because older ones leave
	// no room; nil: there is always room. See feed.Budget.
	FeatureRoom func(namespace, name, node string, bytes int) error
	// Publishing configures which clients may publish which NodeFeatures.
	Publishing Publishing

	// Scheduling enables the review of pods and workloads that require features; nil disables it.
	Scheduling *Scheduling

	// Observe is called with every review: the resource ("other" if it is none of ours), the result ("allowed", "warned", "denied", "failed") and its
	// duration. Nil ignores it.
	Observe func(resource, result string, took time.Duration)
	// Report is called with failures that the client did not cause; nil ignores them.
	Report func(error)
}

// Server answers admission reviews.
type Server struct {
	opts      Options
	reviewers map[resource]reviewer
	bodies    *intake.Bodies
	turns     *semaphore.Weighted // reviews under way: more of them than processors would only make all of them late
	addr      atomic.Value        // string
}

// New returns a server that does not listen yet.
func New(o Options) (*Server, error) {
	if o.GetCertificate == nil {
		return nil, errors.New("a webhook needs a serving certificate")
	}
	if o.Addr == "" {
		o.Addr = ":9443"
	}
	if o.Observe == nil {
		o.Observe = func(string, string, time.Duration) {}
	}
	if o.Report == nil {
		o.Report = func(error) {}
	}
	s := &Server{opts: o, bodies: intake.NewBodies(maxInFlight, maxBody, weight)}
	s.turns = semaphore.NewWeighted(int64(max(minTurns, runtime.GOMAXPROCS(0))))
	s.reviewers = reviewers(&s.opts)
	return s, nil
}

// weight returns how much memory a review with a body of a size takes until it is answered.
func weight(size int64) int64 { return size + (size+reviewChunk-1)/reviewChunk*reviewCost }

// Handler returns the server without its transport, for tests and for serving it elsewhere.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(ReviewPath, s.serveReview)
	mux.HandleFunc(EarlyReviewPath, s.serveReview)
	mux.HandleFunc("GET "+HealthPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	return mux
}

// Run listens and answers until the context ends, and lets reviews under way finish.
func (s *Server) Run(ctx context.Context) error {
	tlsConfig := &tls.Config{
		MinVersion:     tls.VersionTLS13, // API servers of all supported versions can do it
		GetCertificate: s.opts.GetCertificate,
		NextProtos:     []string{"h2", "http/1.1"},
	}
	if s.opts.ClientCAs != nil {
		tlsConfig.ClientCAs, tlsConfig.ClientAuth = s.opts.ClientCAs, tls.RequireAndVerifyClientCert
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.opts.Addr)
	if err != nil {
		return err
	}
	s.addr.Store(listener.Addr().String())
	srv := &http.Server{
		Handler:           s.Handler(),
		TLSConfig:         tlsConfig,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       intake.ConnContext,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: streamBuffer, MaxReceiveBufferPerConnection: connBuffer,
		},
		ErrorLog: log.New(io.Discard, "", 0), // failed handshakes of port scanners are not worth a log line
	}
	done := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		done <- srv.Shutdown(end)
	})
	if err := srv.ServeTLS(intake.Listen(listener), "", ""); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return err
	}
	return <-done
}

// Addr returns the address that the server listens on, empty before it does.
func (s *Server) Addr() string {
	a, _ := s.addr.Load().(string)
	return a
}

// Answers asks the server itself whether it answers. A webhook configuration that exists before that makes every apply fail,
// so it is created after it.
func (s *Server) Answers(ctx context.Context) error {
	addr := s.Addr()
	if addr == "" {
		return errors.New("the webhook is not listening yet")
	}
	if s.opts.ClientCAs != nil {
		// The handshake fails without the API server's client certificate. A failed handshake shows that the server answers.
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}, //nolint:gosec // the question is whether it answers, not who it is
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+addr+HealthPath, nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

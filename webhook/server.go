// Package webhook is the admission webhook for Assay's kinds.
//
// It is a thin layer: it decodes a request, runs the same review as the controller, and allows the object, allows it with warnings,
// or rejects it with all errors. Each error has the path of its field.
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

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/intake"
	"github.com/assay-project/assay/rules/review"
)

// Limits of the server. An API server sends objects of at most 3 MiB, and for an update both the old and the new one.
const (
	// maxBody is the maximum size of a review in bytes.
	maxBody = 8 << 20
	// maxSmall and maxLarge are the maximum memory in bytes of all reviews with bodies of at most one chunk, and of all others, including
	// those whose bodies have not fully arrived. Further reviews wait; the API server's webhook timeout bounds the waiting time. A flood
	// of large reviews leaves the small ones alone, which nearly all rules are.
	maxSmall, maxLarge = 16 << 20, 48 << 20
	// reviewCost is the memory of a review in bytes in addition to its body, per chunk: a small review decodes to tens of
	// kilobytes.
	reviewCost = 128 << 10
	// reviewChunk is the size of these chunks in bytes. Nearly all reviews are smaller.
	reviewChunk = 256 << 10
	// minTurns is the minimum number of concurrent reviews, so that a long one does not delay all others.
	minTurns = 2
	// readTimeout is the maximum time in which a client must send a review, including headers. API servers take milliseconds.
	readTimeout = 3 * time.Second
	// maxStreams is the maximum number of concurrent reviews on one connection; API servers open more connections if necessary.
	maxStreams = 100
	// streamBuffer and connBuffer are the maximum number of bytes that HTTP/2 buffers for a waiting review.
	streamBuffer, connBuffer = 128 << 10, 256 << 10
	// writeTimeout is the maximum time for waiting, reviewing and responding. The longest timeout of a webhook configuration is 30
	// s.
	writeTimeout = 35 * time.Second
	// idleTimeout is the time after which idle connections are closed. API servers keep theirs for 90 s.
	idleTimeout = 2 * time.Minute
	// shutdownTimeout is the maximum duration of running reviews at shutdown.
	shutdownTimeout = 10 * time.Second
	// maxHeader is far above what an API server sends.
	maxHeader = 64 << 10
)

// Paths of the server.
const (
	// ReviewPath serves AdmissionReviews of all kinds.
	ReviewPath = "/review"
	// EarlyReviewPath serves reviews of Assay's own kinds in mutating admission. It responds like ReviewPath, but has warnings for rejected objects only,
	// and never changes an object.
	EarlyReviewPath = "/review/early"
	// SelectorPath serves reviews of pods, DaemonSets and Jobs in mutating admission, which add the label of the NodeFeatureRequest that
	// pods name to their node selector.
	SelectorPath = "/review/selector"
	// HealthPath returns 200 as soon as the server is serving.
	HealthPath = "/healthz"
)

// Options configure the server and its reviews. Only GetCertificate is required.
type Options struct {
	// Addr is the address to listen on; ":9443" if empty.
	Addr string
	// GetCertificate returns the serving certificate, see package certs.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCAs, if set, are the authorities for client certificates: the API server's, if it is configured to present one.
	ClientCAs *x509.CertPool

	// Known is the knowledge about the cluster that reviews depend on. Its functions must be fast: they must read caches, not the
	// API server.
	Known review.Known
	// Cluster provides the state of the nodes; nil disables warnings about nodes.
	Cluster Cluster
	// Room returns the memory in bytes that all other NodeFeatureRules leave for the compiled rules of one object, and the memory
	// that its rules use now; nil: no limit. See assembly.Sum.
	Room func(name string) (room, now int)
	// FeatureRoom returns an error if the features of a NodeFeature of the given size would exceed the budget; nil: no limit. See
	// nodefeature.Budget.
	FeatureRoom func(namespace, name, node string, bytes int) error
	// Publishing configures which clients can publish which NodeFeatures.
	Publishing Publishing

	// Scheduling enables the review of pods and workloads that require features; nil disables it.
	Scheduling *Scheduling

	// Request returns a NodeFeatureRequest, nil if it does not exist, for reviews of SelectorPath; it must be fast. Nil disables them.
	Request func(ctx context.Context, namespace, name string) (*assayv1alpha1.NodeFeatureRequest, error)

	// Observe is called with every review: the resource ("other" if it is not one of our kinds), the result ("allowed", "warned",
	// "denied", "failed") and the duration. Nil ignores it.
	Observe func(resource, result string, took time.Duration)
	// Report is called with failures that the client did not cause; nil ignores them.
	Report func(error)
}

// Server answers admission reviews.
type Server struct {
	opts      Options
	reviewers map[resource]reviewer
	selectors map[resource]reviewer // of SelectorPath
	small     *intake.Bodies        // of reviews with bodies of at most one chunk
	large     *intake.Bodies
	// turns are the running reviews, and bulk those that are large or of what nodes publish: more of either than processors would only
	// delay all of them. A review of a rule waits for no other kind.
	turns, bulk *semaphore.Weighted
	addr        atomic.Value // string
}

// New returns a server that is not listening yet.
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
	s := &Server{opts: o, small: intake.NewBodies(maxSmall, reviewChunk, weight), large: intake.NewBodies(maxLarge, maxBody, weight)}
	turns := int64(max(minTurns, runtime.GOMAXPROCS(0)))
	s.turns, s.bulk = semaphore.NewWeighted(turns), semaphore.NewWeighted(turns)
	s.reviewers, s.selectors = reviewers(&s.opts), selectors(&s.opts)
	return s, nil
}

// weight returns the memory of a review with a body of the given size until it is answered.
func weight(size int64) int64 { return size + (size+reviewChunk-1)/reviewChunk*reviewCost }

// Handler returns the server's handler without TLS, for tests and for other servers.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(ReviewPath, s.serveReview)
	mux.HandleFunc(EarlyReviewPath, s.serveReview)
	mux.HandleFunc(SelectorPath, s.serveReview)
	mux.HandleFunc("GET "+HealthPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	return mux
}

// Run listens and answers until the context ends, and waits for running reviews to finish.
func (s *Server) Run(ctx context.Context) error {
	tlsConfig := &tls.Config{
		MinVersion:     tls.VersionTLS13, // API servers of all supported versions support it
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
		ErrorLog: log.New(io.Discard, "", 0), // failed handshakes of port scanners are not logged
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

// Addr returns the address that the server listens on, empty if it is not listening yet.
func (s *Server) Addr() string {
	a, _ := s.addr.Load().(string)
	return a
}

// Answers checks that the server responds to requests. A webhook configuration that is installed earlier would make every apply
// fail, so it is installed afterwards.
func (s *Server) Answers(ctx context.Context) error {
	addr := s.Addr()
	if addr == "" {
		return errors.New("the webhook is not listening yet")
	}
	if s.opts.ClientCAs != nil {
		// Without the API server's client certificate the handshake fails. A failed handshake shows that the server responds.
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}, //nolint:gosec // only checks that the server responds, not its identity
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

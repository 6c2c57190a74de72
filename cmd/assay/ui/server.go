package ui

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
)

// DefaultAddress is a free port of the loopback interface.
const DefaultAddress = "127.0.0.1:0"

const (
	// headerTimeout is the maximum time to read the headers of a request, bodyTimeout the maximum time to read the whole request.
	headerTimeout, bodyTimeout = 10 * time.Second, time.Minute
	// answerTimeout is the maximum time from the headers of a request to the end of its answer: a client that does not read it takes no
	// memory for longer.
	answerTimeout = 2 * time.Minute
	// stopTimeout is the maximum time to finish requests after the command is interrupted.
	stopTimeout = 2 * time.Second
)

// Server serves the pages. It is safe for concurrent use.
type Server struct {
	token  string
	source Source

	mu     sync.Mutex
	data   *data
	since  time.Time // start of the current reload; zero if there is none
	failed error     // error of the last reload
	took   time.Duration
}

// New returns a Server for a Snapshot. source reads a new Snapshot when the user reloads; nil disables reloading.
func New(first *Snapshot, source Source) *Server {
	return &Server{token: rand.Text(), data: newData(first), source: source}
}

// Listen listens on an address of the loopback interface.
func Listen(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("invalid address %q: use for example %s, which chooses a free port", address, DefaultAddress)
	}
	if !isLoopback(host) {
		return nil, fmt.Errorf("invalid address %q: the pages show the features of all nodes and are served on the loopback interface only; "+
			"use 127.0.0.1:%s, and ssh -L or kubectl port-forward from another machine", address, port)
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, fmt.Errorf("cannot listen on %s: %w; use --address %s for a free port", address, err, DefaultAddress)
	}
	return l, nil
}

// isLoopback reports whether a host is a loopback address. It does not accept names other than localhost, because DNS could change
// them.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// URL returns the address of the first page on a listener.
func (s *Server) URL(l net.Listener) string {
	return "http://" + l.Addr().String() + "/" + s.token + "/"
}

// Serve serves the pages until the context ends. It closes the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: s.Handler(ctx), ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, WriteTimeout: answerTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	// 100 rules on 15,000 nodes take seconds, which the pages that need them all would wait.
	go s.current().evaluate()
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if server.Shutdown(stopping) != nil {
		_ = server.Close()
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Handler returns the handler of the pages. Canceling the context stops reloads.
func (s *Server) Handler(ctx context.Context) http.Handler {
	r := chi.NewRouter()
	r.Use(onlyThisMachine, secure)
	r.NotFound(s.unknown)
	r.MethodNotAllowed(s.unknown)
	r.Route("/{token}", func(r chi.Router) {
		r.Use(s.authorize)
		r.NotFound(s.noPage)
		r.MethodNotAllowed(s.noPage)
		r.Get("/", s.home)
		r.Get("/overview", s.overview)
		r.Get("/fleet", s.fleet)
		r.Get("/search", s.search)
		r.Get("/node", s.node)
		r.Get("/compare", s.compare)
		r.Get("/rules", s.rules)
		r.Get("/rule", s.rule)
		r.Get("/objects", s.objects)
		r.Get("/object", s.object)
		r.Get("/pods", s.pods)
		r.Get("/pod", s.pod)
		r.Get("/playground", s.playground)
		r.Post("/playground", s.playground)
		r.Post("/reload", func(w http.ResponseWriter, r *http.Request) { s.reload(ctx, w, r) })
		r.Get("/static/{file}", static)
	})
	return r
}

// onlyThisMachine rejects requests with another Host header, to prevent DNS rebinding: a web page whose DNS name changes to
// 127.0.0.1 must not read these pages.
func onlyThisMachine(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if !isLoopback(host) {
			http.Error(w, "invalid host: use the address that assay ui has printed", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// policy restricts pages to content from this server, without inline scripts and styles.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'"

// secure sets security headers on all responses.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer") // the address contains the token
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// authorize rejects requests without the token. The token is part of every address and not a cookie, because browsers send cookies
// to all ports of a host, and other users of this machine can listen on one.
func (s *Server) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(chi.URLParam(r, "token")), []byte(s.token)) != 1 {
			s.unknown(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) unknown(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "not found: use the address that assay ui has printed", http.StatusNotFound)
}

// current returns the data of the pages.
func (s *Server) current() *data {
	d, _, _, _ := s.state()
	return d
}

// state returns the data of the pages, the start of a reload, how long the last one took, and its error.
func (s *Server) state() (d *data, since time.Time, took time.Duration, failed error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &data{s.data.shared, time.Now()}, s.since, s.took, s.failed
}

// reload reads a new Snapshot, unless a reload is running or the page that asks shows an older one. Until it completes, pages show the old one.
func (s *Server) reload(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	shown := r.FormValue("shown") // by a page that refreshes: another page can have read again since
	s.mu.Lock()
	start := s.since.IsZero() && s.source != nil && (shown == "" || shown == stamp(s.data.At))
	if start {
		s.since = time.Now()
	}
	s.mu.Unlock()
	if start {
		go s.read(ctx)
	}
	back := r.FormValue("back")
	if !isPage(back) {
		back = "./"
	}
	http.Redirect(w, r, back, http.StatusSeeOther)
}

func (s *Server) read(ctx context.Context) {
	snapshot, err := s.source(ctx)
	var d *data
	if err == nil {
		d = newData(snapshot)
		d.evaluate()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took = time.Since(s.since)
	s.since, s.failed = time.Time{}, err
	if d != nil {
		s.data = d
	}
}

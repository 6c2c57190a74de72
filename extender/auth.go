package extender

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/utils/clock"
)

// Authenticator names the user of a bearer token. An error means that the token is not valid, or that nobody knows.
type Authenticator func(ctx context.Context, token string) (user string, err error)

var (
	errUnauthenticated = errors.New("show a client certificate or a bearer token")
	errBadToken        = errors.New("nobody knows it")
)

// authenticated lets those through who may ask. Without a certificate of its own the server listens on a loopback address,
// where whoever can reach it is in the same pod.
func (s *Server) authenticated(next http.Handler) http.Handler {
	if s.opts.GetCertificate == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := s.user(r)
		if err != nil {
			s.opts.Refused(fmt.Errorf("%s: %w", r.RemoteAddr, err))
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, errUnauthenticated.Error(), http.StatusUnauthorized) // why, is nothing for strangers
			return
		}
		if len(s.opts.Allowed) > 0 && !slices.Contains(s.opts.Allowed, user) {
			s.opts.Refused(fmt.Errorf("%s: %q is not among those who may ask", r.RemoteAddr, user))
			http.Error(w, "this user may not ask here", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// user returns who asks.
func (s *Server) user(r *http.Request) (string, error) {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return r.TLS.PeerCertificates[0].Subject.CommonName, nil
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" || s.opts.Authenticate == nil {
		return "", errUnauthenticated
	}
	user, err := s.opts.Authenticate(r.Context(), token)
	if err != nil {
		return "", fmt.Errorf("the bearer token is not good: %w", err)
	}
	return user, nil
}

// handshakes hands on what net/http says of failed TLS handshakes.
type handshakes struct{ refused func(error) }

// Write implements io.Writer for a log.Logger, which calls it once a line.
func (h handshakes) Write(line []byte) (int, error) {
	// Those who hang up before they have said anything are port scanners and probes of load balancers.
	if text := strings.TrimSpace(string(line)); strings.Contains(text, "TLS handshake error") && !strings.HasSuffix(text, ": EOF") {
		h.refused(errors.New(strings.TrimPrefix(text, "http: ")))
	}
	return len(line), nil
}

// StaticToken returns an Authenticator that knows one token, which read returns anew each time: a mounted Secret changes. Who
// shows it is called user.
func StaticToken(user string, read func() (string, error)) Authenticator {
	return func(_ context.Context, token string) (string, error) {
		want, err := read()
		if err != nil {
			return "", err
		}
		have, need := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(strings.TrimSpace(want)))
		if strings.TrimSpace(want) == "" || subtle.ConstantTimeCompare(have[:], need[:]) != 1 {
			return "", errBadToken
		}
		return user, nil
	}
}

const (
	// maxTokens bounds how many tokens are remembered.
	maxTokens = 1024
	// tokenLife is how long a token that the API server found good stays so here: the time a deleted ServiceAccount can still
	// ask.
	tokenLife = time.Minute
)

// Reviewed returns an Authenticator that asks the API server, and remembers for a minute. A nil clock is the real one.
func Reviewed(review func(context.Context, *authenticationv1.TokenReview) error, clk clock.PassiveClock) Authenticator {
	if clk == nil {
		clk = clock.RealClock{}
	}
	type known struct {
		user  string
		until time.Time
	}
	var mu sync.Mutex
	tokens := map[[sha256.Size]byte]known{}
	return func(ctx context.Context, token string) (string, error) {
		key := sha256.Sum256([]byte(token))
		mu.Lock()
		k, ok := tokens[key]
		mu.Unlock()
		if ok && clk.Now().Before(k.until) {
			return k.user, nil
		}
		tr := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		if err := review(ctx, tr); err != nil {
			return "", err
		}
		if !tr.Status.Authenticated {
			return "", errBadToken
		}
		mu.Lock()
		defer mu.Unlock()
		if len(tokens) >= maxTokens {
			clear(tokens)
		}
		tokens[key] = known{tr.Status.User.Username, clk.Now().Add(tokenLife)}
		return tr.Status.User.Username, nil
	}
}

package extender

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/utils/clock"
)

// Authenticator returns the user of a bearer token. An error means that the token is invalid or cannot be verified.
type Authenticator func(ctx context.Context, token string) (user string, err error)

// ErrBadToken is the error of an Authenticator for an invalid token.
var ErrBadToken = errors.New("invalid bearer token")

var errUnauthenticated = errors.New("a client certificate or a bearer token is required")

// authenticated rejects requests of unauthorized clients. Without a serving certificate the server listens on a loopback address,
// which only containers in the same pod can reach.
func (s *Server) authenticated(next http.Handler) http.Handler {
	if s.opts.GetCertificate == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := s.user(r)
		if err != nil {
			s.opts.Refused(host(r.RemoteAddr), err)
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, errUnauthenticated.Error(), http.StatusUnauthorized) // do not disclose the reason
			return
		}
		if len(s.opts.Allowed) > 0 && !slices.Contains(s.opts.Allowed, user) {
			s.opts.Refused(host(r.RemoteAddr), fmt.Errorf("user %q is not allowed to use the extender", user))
			http.Error(w, "forbidden", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// user returns the authenticated user.
func (s *Server) user(r *http.Request) (string, error) {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return r.TLS.PeerCertificates[0].Subject.CommonName, nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ") // RFC 7235: the scheme is case-insensitive
	if !strings.EqualFold(scheme, "Bearer") || token == "" || s.opts.Authenticate == nil {
		return "", errUnauthenticated
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxWait)
	defer cancel()
	user, err := s.opts.Authenticate(ctx, token)
	if err != nil && !errors.Is(err, ErrBadToken) {
		err = fmt.Errorf("cannot review the bearer token: %w", err)
	}
	return user, err
}

// host returns an address without its port.
func host(addr string) string {
	if h, _, err := net.SplitHostPort(addr); err == nil {
		return h
	}
	return addr
}

// complaints forwards the log messages of net/http: failed TLS handshakes, and other errors.
type complaints struct {
	refused func(from string, why error)
	report  func(error)
}

// Write implements io.Writer for a log.Logger, which calls it once per message.
func (c complaints) Write(message []byte) (int, error) {
	text, handshake := strings.CutPrefix(strings.TrimSpace(string(message)), "http: TLS handshake error from ")
	from, why, _ := strings.Cut(text, ": ")
	switch {
	case !handshake:
		c.report(errors.New(text))
	case why != "EOF" && !strings.HasSuffix(why, "connection reset by peer"):
		// Clients that disconnect before they send anything are port scanners and load balancer probes.
		c.refused(host(from), fmt.Errorf("TLS handshake: %s", why))
	}
	return len(message), nil
}

// StaticToken returns an Authenticator for one token, which belongs to user. It calls read for every request, since a mounted
// Secret can change.
func StaticToken(user string, read func() (string, error)) Authenticator {
	return func(_ context.Context, token string) (string, error) {
		want, err := read()
		if err != nil {
			return "", err
		}
		have, need := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(strings.TrimSpace(want)))
		if strings.TrimSpace(want) == "" || subtle.ConstantTimeCompare(have[:], need[:]) != 1 {
			return "", ErrBadToken
		}
		return user, nil
	}
}

const (
	// maxTokens is the maximum number of cached tokens.
	maxTokens = 1024
	// tokenLife is how long a valid token is cached: a deleted ServiceAccount is authenticated for that long.
	tokenLife = time.Minute
	// maxReviews is the maximum number of concurrent TokenReviews. A client that reaches the port can send any number of tokens,
	// each of which causes a request to the API server.
	maxReviews = 4
)

// Reviewed returns an Authenticator that creates TokenReviews, a few at a time, and caches valid tokens for a minute. A nil clock
// is the real one.
func Reviewed(review func(context.Context, *authenticationv1.TokenReview) error, clk clock.PassiveClock) Authenticator {
	if clk == nil {
		clk = clock.RealClock{}
	}
	type known struct {
		user  string
		until time.Time
	}
	turns := semaphore.NewWeighted(maxReviews)
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
		if err := turns.Acquire(ctx, 1); err != nil {
			return "", errors.New("too many concurrent token reviews")
		}
		defer turns.Release(1)
		tr := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		if err := review(ctx, tr); err != nil {
			return "", err
		}
		if !tr.Status.Authenticated {
			return "", ErrBadToken
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

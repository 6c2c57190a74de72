package certs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

// Defaults of Options.
const (
	// DefaultLife is the lifetime of a serving certificate, which is replaced after two thirds of it.
	DefaultLife = 90 * 24 * time.Hour
	// DefaultAuthorityLife is the lifetime of the authority, which is replaced after two thirds of it.
	DefaultAuthorityLife = 4 * DefaultLife
	// DefaultSettle is how long a new authority is in the published bundle before it signs certificates. API servers watch webhook
	// configurations and get changes within seconds; a minute covers one that has just lost its watch.
	DefaultSettle = time.Minute

	// maxPause is the maximum interval between reads of the Secret, through which replicas see each other's changes.
	maxPause = time.Minute
	// retryPause is the delay after a failed attempt. It doubles with each further one, up to maxPause.
	retryPause = 2 * time.Second
	// maxAttempts is the maximum number of attempts of a pass that conflicts with other replicas.
	maxAttempts = 5
)

// ErrNotYet is returned by Options.Publish while the bundle cannot be published because the server is not serving yet, which is not
// a failure.
var ErrNotYet = errors.New("not yet")

// Secrets is the part of client-go's SecretInterface that is used.
type Secrets interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Secret, error)
	Update(ctx context.Context, secret *corev1.Secret, opts metav1.UpdateOptions) (*corev1.Secret, error)
}

// Options configure SelfSigned.
type Options struct {
	// Secrets reads and writes the Secret. It must not be a cache: replicas rely on the resourceVersion in the API server.
	Secrets Secrets
	// Name of the Secret. It must exist, and can be empty. SelfSigned does not create it: a client that can create Secrets can
	// create one that holds the token of another ServiceAccount.
	Name string
	// DNSNames and IPs are the subject alternative names of the certificate.
	DNSNames []string
	IPs      []net.IP
	// Life, AuthorityLife and Settle default to the constants of the same names.
	Life, AuthorityLife, Settle time.Duration
	// Publish distributes the bundle to verifying clients, such as the API server through a webhook configuration. It is called in
	// every pass and must be idempotent. A new authority signs nothing before Publish has succeeded.
	Publish func(ctx context.Context, bundle []byte) error
	// Report is called with the errors of failed passes, which Run retries; nil ignores them.
	Report func(error)
	// Clock defaults to the real one.
	Clock clock.WithTicker
}

// SelfSigned serves certificates that its own authority has signed. All replicas that use the same Secret serve the same
// certificate and publish the same bundle. It is safe for concurrent use.
//
// github.com/open-policy-agent/cert-controller does a similar job, but replaces the authority and the certificate in one write:
// requests fail until each API server has the new bundle. It also brings RSA keys, gomega and the constraint framework into the
// build.
type SelfSigned struct {
	keeper
	opts   Options
	policy policy
	bundle atomic.Pointer[[]byte]
}

// NewSelfSigned validates the options. The first call of Ensure creates or reads the certificate.
func NewSelfSigned(o Options) (*SelfSigned, error) {
	if o.Secrets == nil || o.Name == "" {
		return nil, errors.New("a client for Secrets and the name of a Secret are required")
	}
	if len(o.DNSNames)+len(o.IPs) == 0 {
		return nil, errors.New("a certificate requires a name or an address")
	}
	o.Life = defaultTo(o.Life, DefaultLife)
	o.AuthorityLife = defaultTo(o.AuthorityLife, max(DefaultAuthorityLife, 4*o.Life))
	o.Settle = defaultTo(o.Settle, DefaultSettle)
	if o.AuthorityLife < 2*o.Life {
		return nil, fmt.Errorf("the lifetime of the certificate authority must be at least twice the lifetime of its certificates (%s)", o.Life)
	}
	if o.Settle > o.AuthorityLife/6 {
		return nil, fmt.Errorf("a settling time of %s leaves no time to replace a certificate authority with a lifetime of %s", o.Settle, o.AuthorityLife)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	p := policy{life: o.Life, caLife: o.AuthorityLife, settle: o.Settle, dns: o.DNSNames, ips: o.IPs}
	return &SelfSigned{keeper: keeper{clock: o.Clock}, opts: o, policy: p}, nil
}

// Run renews the certificate until the context ends. It reads the Secret, and with it the changes of other replicas, once a minute,
// or more often if the lifetime is less than an hour.
func (s *SelfSigned) Run(ctx context.Context) error {
	retry := retryPause
	for {
		pause := min(maxPause, s.opts.Life/60)
		switch err := s.Ensure(ctx); {
		case err == nil:
			retry = retryPause
		case errors.Is(err, ErrNotYet):
			pause = min(pause, retryPause)
		default:
			pause, retry = min(pause, retry), min(2*retry, maxPause)
			if s.opts.Report != nil && ctx.Err() == nil {
				s.opts.Report(err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.opts.Clock.After(pause):
		}
	}
}

// Ensure makes one pass: it reads the Secret, updates it if necessary, serves its certificate, and publishes the bundle. The
// certificate is in use even if publishing failed.
func (s *SelfSigned) Ensure(ctx context.Context) error {
	st, err := s.agree(ctx, func(st *state, now time.Time) (bool, error) { return st.advance(now, s.policy) })
	if err != nil {
		return fmt.Errorf("serving certificate in the Secret %q: %w", s.opts.Name, err)
	}
	if s.opts.Publish != nil {
		if err := s.opts.Publish(ctx, st.bundle()); err != nil {
			return fmt.Errorf("publish the CA bundle: %w", err)
		}
	}
	if st.next == nil || !st.trusted.IsZero() {
		return nil
	}
	next := st.next.cert
	_, err = s.agree(ctx, func(st *state, now time.Time) (bool, error) {
		if !st.next.is(next) || !st.trusted.IsZero() {
			return false, nil // another replica has a newer state
		}
		st.trusted = now
		return true, nil
	})
	return err
}

// Bundle returns the trusted authorities as PEM; nil before the first pass.
func (s *SelfSigned) Bundle() []byte {
	if b := s.bundle.Load(); b != nil {
		return *b
	}
	return nil
}

// agree reads the shared state, calls step, and writes the state back if step changed it. If another replica has written in the
// meantime, agree reads the new state and calls step again, so that all replicas use the same certificate.
func (s *SelfSigned) agree(ctx context.Context, step func(*state, time.Time) (bool, error)) (*state, error) {
	var err error
	for range maxAttempts {
		var secret *corev1.Secret
		secret, err = s.opts.Secrets.Get(ctx, s.opts.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("%w: the installation creates an empty Secret and the manager fills it: run `helm upgrade`, or `kubectl apply -k` without Helm", err)
		}
		if err != nil {
			return nil, err
		}
		st := parseState(secret.Data)
		changed, err2 := step(st, s.clock.Now())
		if err2 != nil {
			return nil, err2
		}
		if changed {
			if err = s.write(ctx, secret, st); apierrors.IsConflict(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
		}
		s.use(st)
		return st, nil
	}
	return nil, fmt.Errorf("lost %d conflicts with other replicas: %w", maxAttempts, err)
}

func (s *SelfSigned) use(st *state) {
	bundle := st.bundle()
	s.bundle.Store(&bundle)
	if old := s.current.Load(); old == nil || !old.Leaf.Equal(st.serving.Leaf) {
		s.set(st.serving)
	}
}

func (s *SelfSigned) write(ctx context.Context, secret *corev1.Secret, st *state) error {
	data, err := st.data()
	if err != nil {
		return err
	}
	secret = secret.DeepCopy()
	secret.Data = data
	_, err = s.opts.Secrets.Update(ctx, secret, metav1.UpdateOptions{}) // with the resourceVersion that was read
	return err
}

func defaultTo(d, fallback time.Duration) time.Duration {
	if d == 0 {
		return fallback
	}
	return d
}

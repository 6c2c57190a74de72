package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
)

// store is one Secret with the optimistic concurrency of the API server.
type store struct {
	mu     sync.Mutex
	secret *corev1.Secret
	writes int
	down   bool
}

var secretResource = schema.GroupResource{Resource: "secrets"}

func (s *store) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.down:
		return nil, errors.New("connection refused")
	case s.secret == nil:
		return nil, apierrors.NewNotFound(secretResource, name)
	}
	return s.secret.DeepCopy(), nil
}

// newStore returns the Secret as an installation creates it.
func newStore() *store {
	return &store{secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "assay-webhook-tls", ResourceVersion: "0"}}}
}

func (s *store) Update(_ context.Context, secret *corev1.Secret, _ metav1.UpdateOptions) (*corev1.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.secret == nil || s.secret.ResourceVersion != secret.ResourceVersion {
		return nil, apierrors.NewConflict(secretResource, secret.Name, errors.New("the object has been modified"))
	}
	return s.put(secret), nil
}

func (s *store) put(secret *corev1.Secret) *corev1.Secret {
	s.writes++
	s.secret = secret.DeepCopy()
	s.secret.ResourceVersion = strconv.Itoa(s.writes)
	return s.secret.DeepCopy()
}

const serverName = "assay-webhook.assay-system.svc"

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func replica(t *testing.T, s Secrets, clk *clocktesting.FakeClock, change func(*Options)) *SelfSigned {
	t.Helper()
	o := Options{
		Secrets: s, Name: "assay-webhook-tls", Clock: clk, DNSNames: []string{serverName},
		Life: time.Hour, AuthorityLife: 4 * time.Hour, Settle: time.Minute,
	}
	if change != nil {
		change(&o)
	}
	r, err := NewSelfSigned(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// verify checks the certificate of a replica as an API server with the given bundle and clock does.
func verify(r interface {
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
}, bundle []byte, now time.Time) error {
	c, err := r.GetCertificate(nil)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err = c.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: serverName, CurrentTime: now})
	return err
}

func TestSelfSignedServesWhatItsBundleTrusts(t *testing.T) {
	clk := clocktesting.NewFakeClock(start)
	r := replica(t, newStore(), clk, nil)
	if err := r.Ready(); err == nil {
		t.Error("ready before there is a certificate")
	}
	if err := r.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, skew := range []time.Duration{0, -24 * time.Hour, 59 * time.Minute} {
		if err := verify(r, r.Bundle(), start.Add(skew)); err != nil {
			t.Errorf("a verifier whose clock is off by %s: %v", skew, err)
		}
	}
	if err := r.Ready(); err != nil {
		t.Errorf("Ready: %v", err)
	}
	if status, ok := r.Status(); !ok || status.NotAfter.Sub(start) < 59*time.Minute || status.NotAfter.Sub(start) > 61*time.Minute {
		t.Errorf("it is valid until %v, want an hour", status.NotAfter)
	}
}

// TestRotationNeverServesWhatSomeAPIServerDoesNotTrust: replicas read the Secret at different times, and API servers get a
// published bundle with a delay. Every certificate that any replica serves must verify at every API server, over many lifetimes of
// certificate and authority.
func TestRotationNeverServesWhatSomeAPIServerDoesNotTrust(t *testing.T) {
	const lag = 50 * time.Second // delay until an API server has the published bundle; less than Settle
	type published struct {
		at     time.Time
		bundle []byte
	}
	clk, s := clocktesting.NewFakeClock(start), newStore()
	var history []published
	publish := func(_ context.Context, bundle []byte) error {
		history = append(history, published{clk.Now(), bundle})
		return nil
	}
	var replicas []*SelfSigned
	for range 3 {
		replicas = append(replicas, replica(t, s, clk, func(o *Options) { o.Publish = publish }))
	}
	for _, r := range replicas {
		if err := r.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	serials, authorities, checked := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for step := range 24 * 60 * 6 { // a day in steps of ten seconds
		clk.Step(10 * time.Second)
		if err := replicas[step%3].Ensure(t.Context()); err != nil { // each replica reads the Secret every thirty seconds
			t.Fatal(err)
		}
		seen := history[0].bundle
		for len(history) > 1 && clk.Since(history[1].at) >= lag {
			history = history[1:]
			seen = history[0].bundle
		}
		for i, r := range replicas {
			for who, bundle := range map[string][]byte{"late": seen, "prompt": history[len(history)-1].bundle} {
				key := r.current.Load().Leaf.SerialNumber.String() + string(bundle)
				if checked[key] && step%90 != 0 {
					continue // the certificate and the bundle are unchanged
				}
				checked[key] = true
				if err := verify(r, bundle, clk.Now()); err != nil {
					t.Fatalf("after %s a %s API server refuses replica %d: %v", clk.Since(start), who, i, err)
				}
			}
			if err := r.Ready(); err != nil {
				t.Fatalf("after %s replica %d is not ready: %v", clk.Since(start), i, err)
			}
			c := r.current.Load().Leaf
			serials[c.SerialNumber.String()], authorities[c.Issuer.CommonName] = true, true
		}
	}
	if len(serials) < 24 || len(authorities) < 7 {
		t.Errorf("only %d certificates of %d authorities were used in a day", len(serials), len(authorities))
	}
	if certs, _ := parseCerts(replicas[0].Bundle()); len(certs) > 3 {
		t.Errorf("the bundle has grown to %d authorities", len(certs))
	}
	t.Logf("%d certificates of %d authorities, %d writes of the Secret", len(serials), len(authorities), s.writes)
}

func TestReplicasThatStartTogetherAgree(t *testing.T) {
	clk, s := clocktesting.NewFakeClock(start), newStore()
	var replicas []*SelfSigned
	for range 4 {
		replicas = append(replicas, replica(t, s, clk, nil))
	}
	var wg sync.WaitGroup
	for _, r := range replicas {
		wg.Go(func() {
			if err := r.Ensure(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	want, _ := replicas[0].Status()
	for i, r := range replicas {
		if got, _ := r.Status(); got != want {
			t.Errorf("replica %d serves %v, replica 0 %v", i, got, want)
		}
	}
	if s.writes != 1 {
		t.Errorf("the Secret was written %d times", s.writes)
	}
}

func TestNothingIsSignedByAnAuthorityThatIsNotPublished(t *testing.T) {
	clk, s := clocktesting.NewFakeClock(start), newStore()
	fail := false
	r := replica(t, s, clk, func(o *Options) {
		o.Publish = func(context.Context, []byte) error {
			if fail {
				return errors.New("no permission")
			}
			return nil
		}
	})
	if err := r.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := r.current.Load().Leaf.Issuer.CommonName
	fail = true
	clk.Step(3 * time.Hour) // the authority must be replaced
	for range 5 {
		if err := r.Ensure(t.Context()); err == nil {
			t.Fatal("a failure to publish was not reported")
		}
		clk.Step(2 * time.Minute)
	}
	if got := r.current.Load().Leaf.Issuer.CommonName; got != first {
		t.Fatal("a certificate of an unpublished authority is served")
	}
	fail = false
	for range 2 {
		if err := r.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		clk.Step(2 * time.Minute)
	}
	if got := r.current.Load().Leaf.Issuer.CommonName; got == first {
		t.Error("the new authority is still not used although its bundle was published")
	}
}

func TestEnsureRepairs(t *testing.T) {
	tests := map[string]struct {
		break_ func(*corev1.Secret)
		dns    string
	}{
		"EmptySecretOfTheChart": {break_: func(s *corev1.Secret) { s.Data = nil }},
		"GarbageKey":            {break_: func(s *corev1.Secret) { s.Data[keyServingKey] = []byte("x") }},
		"KeyOfAnother":          {break_: func(s *corev1.Secret) { s.Data[keySignerKey] = s.Data[keyServingKey] }},
		"GarbageAuthority":      {break_: func(s *corev1.Secret) { s.Data[keySignerCert] = []byte("-----BEGIN") }},
		"TruncatedCertificate":  {break_: func(s *corev1.Secret) { s.Data[keyServingCert] = s.Data[keyServingCert][:200] }},
		"GarbageBundle":         {break_: func(s *corev1.Secret) { s.Data[keyBundle] = []byte("no pem") }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			clk, s := clocktesting.NewFakeClock(start), newStore()
			if err := replica(t, s, clk, nil).Ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
			tc.break_(s.secret)
			r := replica(t, s, clk, nil)
			if err := r.Ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := verify(r, r.Bundle(), clk.Now()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAMissingSecretIsNotCreated(t *testing.T) {
	s := &store{}
	err := replica(t, s, clocktesting.NewFakeClock(start), nil).Ensure(t.Context())
	if err == nil || !strings.Contains(err.Error(), "helm upgrade") || s.secret != nil {
		t.Errorf("got %v, want an error that names what creates it", err)
	}
}

func TestAnotherNameIsANewCertificateOfTheSameAuthority(t *testing.T) {
	clk, s := clocktesting.NewFakeClock(start), newStore()
	old := replica(t, s, clk, func(o *Options) { o.DNSNames = []string{"old.svc"} })
	if err := old.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := replica(t, s, clk, func(o *Options) { o.IPs = []net.IP{net.IPv4(127, 0, 0, 1)} })
	if err := r.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := verify(r, old.Bundle(), clk.Now()); err != nil {
		t.Errorf("the bundle of before does not trust the new certificate: %v", err)
	}
}

// TestReadinessFailsBeforeExpiryWhenNotRenewed: the last valid certificate is served while the API server is unavailable, and the
// replica becomes unready before it expires.
func TestReadinessFailsBeforeExpiryWhenNotRenewed(t *testing.T) {
	clk, s := clocktesting.NewFakeClock(start), newStore()
	r := replica(t, s, clk, nil)
	if err := r.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.down = true
	for _, tc := range []struct {
		at    time.Duration
		ready bool
	}{{50 * time.Minute, true}, {55 * time.Minute, false}, {61 * time.Minute, false}} {
		clk.SetTime(start.Add(tc.at))
		if err := r.Ensure(t.Context()); err == nil {
			t.Fatal("an API server that does not answer is not reported")
		}
		if err := r.Ready(); (err == nil) != tc.ready {
			t.Errorf("after %s: ready = %v", tc.at, err)
		}
	}
}

func TestNewSelfSignedRefuses(t *testing.T) {
	for name, o := range map[string]Options{
		"NoName":                  {Secrets: newStore(), Name: "x"},
		"NoSecret":                {DNSNames: []string{"x"}},
		"AuthorityDiesTooEarly":   {Secrets: newStore(), Name: "x", DNSNames: []string{"x"}, Life: time.Hour, AuthorityLife: time.Hour},
		"NoTimeLeftForAuthority2": {Secrets: newStore(), Name: "x", DNSNames: []string{"x"}, Life: time.Minute, AuthorityLife: 2 * time.Minute},
	} {
		if _, err := NewSelfSigned(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestNoRequestIsLostWhileCertificatesRotate makes real handshakes with a real server while certificate and authority are replaced
// many times.
func TestNoRequestIsLostWhileCertificatesRotate(t *testing.T) {
	clk, s := clocktesting.NewFakeClock(start), newStore()
	var bundle atomic.Pointer[[]byte]
	r := replica(t, s, clk, func(o *Options) {
		o.Publish = func(_ context.Context, b []byte) error { bundle.Store(&b); return nil }
	})
	if err := r.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	srv.TLS = &tls.Config{GetCertificate: r.GetCertificate}
	srv.StartTLS()
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var done [4]atomic.Int64 // requests of each client
	for i := range done {
		wg.Go(func() {
			for ctx.Err() == nil {
				roots := x509.NewCertPool()
				roots.AppendCertsFromPEM(*bundle.Load())
				client := &http.Client{Transport: &http.Transport{
					DisableKeepAlives: true,
					TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: serverName, Time: clk.Now},
				}}
				resp, err := client.Get(srv.URL)
				if err != nil {
					t.Errorf("after %s: %v", clk.Since(start), err)
					return
				}
				resp.Body.Close()
				done[i].Add(1)
			}
		})
	}
	serials := map[string]bool{}
	for range 30 {
		if err := r.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		st, _ := r.Status()
		serials[st.Serial] = true
		// A running handshake may have read the old bundle, so each client completes two handshakes before the clock advances by
		// less than a third of a lifetime.
		for i := range done {
			for before := done[i].Load(); done[i].Load() < before+2 && !t.Failed(); {
				time.Sleep(time.Millisecond)
			}
		}
		clk.Step(8 * time.Minute)
	}
	cancel()
	wg.Wait()
	if len(serials) < 6 {
		t.Errorf("only %d certificates were used", len(serials))
	}
	t.Logf("%d handshakes over %d certificates", done[0].Load()+done[1].Load()+done[2].Load()+done[3].Load(), len(serials))
}

// TestLivesOfAuthorityAndCertificate: an authority must live at least as long as two certificates, and no longer lifetime is
// required.
func TestLivesOfAuthorityAndCertificate(t *testing.T) {
	for lives, ok := range map[time.Duration]bool{24 * time.Hour: true, 24*time.Hour - time.Second: false} {
		_, err := NewSelfSigned(Options{
			Secrets: newStore(), Name: "x", DNSNames: []string{"x"}, Life: 12 * time.Hour, AuthorityLife: lives, Settle: time.Minute,
		})
		if (err == nil) != ok {
			t.Errorf("an authority of %s: %v, accepted: want %t", lives, err, ok)
		}
	}
}

// racing makes another replica write first, once.
type racing struct {
	*store
	lost bool
}

func (r *racing) Update(ctx context.Context, secret *corev1.Secret, o metav1.UpdateOptions) (*corev1.Secret, error) {
	if !r.lost {
		r.lost = true
		return nil, apierrors.NewConflict(secretResource, secret.Name, errors.New("the object has been modified"))
	}
	return r.store.Update(ctx, secret, o)
}

func TestALostRaceIsTriedAgain(t *testing.T) {
	s := &racing{store: newStore()}
	r := replica(t, s, clocktesting.NewFakeClock(start), nil)
	if err := r.Ensure(t.Context()); err != nil || !s.lost || s.writes != 1 {
		t.Errorf("%v after %d writes, want one", err, s.writes)
	}
}

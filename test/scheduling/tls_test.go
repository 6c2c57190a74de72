//go:build linux

package scheduling

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-project/assay/extender"
	"github.com/assay-project/assay/internal/testkit"
)

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key = a.issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true})
	return a
}

// issue signs a certificate; the first certificate of an authority is its own.
func (a *authority) issue(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(1)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// pair returns a certificate with its key in PEM, for clients and for servers on the loopback address.
func (a *authority) pair(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	signed, private := a.issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	})
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed.Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// journal collects the extender's reports of rejected clients.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) add(_ string, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintln(&j.text, err)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// serveTLS runs another extender, with TLS, for clients with a certificate for kube-scheduler.
func (w *world) serveTLS(t *testing.T, ca *authority) (url string, refused *journal) {
	t.Helper()
	serving, err := tls.X509KeyPair(ca.pair(t, "extender"))
	if err != nil {
		t.Fatal(err)
	}
	clients := func() *x509.CertPool {
		pool := x509.NewCertPool()
		pool.AddCert(ca.cert)
		return pool
	}
	refused = &journal{}
	server, err := extender.New(w.decider, extender.Options{
		Addr: "127.0.0.1:0", ClientCAs: clients, Allowed: []string{"system:kube-scheduler"}, Refused: refused.add,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &serving, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	testkit.Eventually(t, "the extender listens", func(context.Context) error {
		if server.Addr() == "" {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	return "https://" + server.Addr(), refused
}

// certificates tests wrongly configured schedulers, and the messages for users and administrators.
func (w *world) certificates(t *testing.T) {
	ours, foreign := newAuthority(t), newAuthority(t)
	url, refused := w.serveTLS(t, ours)
	w.publish(t, "n600", "AVX", "Sealed")
	ns := w.namespace(t, nil)
	settings := func(name string, data []byte) string {
		return fmt.Sprintf("    %s: %s\n", name, base64.StdEncoding.EncodeToString(data))
	}
	shows := func(by *authority, name string) string {
		cert, key := by.pair(t, name)
		return settings("certData", cert) + settings("keyData", key)
	}
	trusts := func(a *authority) string { return settings("caData", a.pem()) }
	const user = "system:kube-scheduler"
	for name, test := range map[string]struct {
		tls string
		// want is in the description of the pod, empty if it is placed; log is in the log of the extender.
		want, log string
	}{
		"mutual":            {tls: trusts(ours) + shows(ours, user)},
		"insecure":          {tls: "    insecure: true\n" + shows(ours, user)},
		"no-authority":      {tls: shows(ours, user)}, // the scheduler then trusts any certificate
		"foreign-authority": {trusts(foreign) + shows(ours, user), "certificate signed by unknown authority", "remote error: tls: bad certificate"},
		"no-certificate":    {trusts(ours), "code 401", "a client certificate or a bearer token is required"},
		"foreign-certificate": {
			trusts(ours) + shows(foreign, user), "remote error: tls: unknown certificate authority", "certificate signed by unknown authority",
		},
		"another-name": {trusts(ours) + shows(ours, "system:node:n1"), "code 403", `user "system:node:n1" is not allowed to use the extender`},
	} {
		t.Run(name, func(t *testing.T) {
			scheduler := "tls-" + name
			w.schedulerAt(t, scheduler, url, ", percentageOfNodesToScore: 100", "  enableHTTPS: true\n  tlsConfig:\n"+test.tls, false)
			defer func() {
				if err := w.Terminate(t.Context(), scheduler); err != nil {
					t.Error(err)
				}
			}()
			p := newPod(ns, name, scheduler, requires("Sealed"))
			w.create(t, p)
			if test.want == "" {
				if node := w.placed(t, p); node != "n600" {
					t.Errorf("the pod runs on %s, want n600", node)
				}
				return
			}
			w.rejected(t, p, test.want)
			t.Logf("the scheduler says: %s", message(p))
			testkit.Eventually(t, "the administrator reads why", func(context.Context) error {
				if text := refused.String(); !strings.Contains(text, test.log) {
					return fmt.Errorf("no %q in %s", test.log, text)
				}
				return nil
			})
		})
	}
}

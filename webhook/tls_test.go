package webhook_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/assay-project/assay/webhook"
)

// identity returns a self-signed certificate.
func identity(t *testing.T, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// listen runs a server until the test ends, and returns its address and its authorities.
func listen(t *testing.T, change func(*webhook.Options)) (*webhook.Server, *x509.CertPool) {
	t.Helper()
	certificate, pool := identity(t, "webhook")
	s := newServer(t, func(o *webhook.Options) {
		o.Addr = "127.0.0.1:0"
		o.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }
		if change != nil {
			change(o)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for s.Answers(t.Context()) != nil {
		if t.Context().Err() != nil {
			t.Fatal("the server never answers")
		}
	}
	return s, pool
}

func ask(s *webhook.Server, config *tls.Config) error {
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	body := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1"}}`
	resp, err := (&http.Client{Transport: transport}).Post("https://"+s.Addr()+webhook.ReviewPath, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

func TestOnlyTheAPIServerMayAskIfItShowsACertificate(t *testing.T) {
	apiserver, apiserverCA := identity(t, "apiserver")
	foreign, _ := identity(t, "apiserver") // the same name, signed by another authority
	s, pool := listen(t, func(o *webhook.Options) { o.ClientCAs = apiserverCA })
	tests := map[string]struct {
		certificates []tls.Certificate
		refused      string
	}{
		"TheAPIServer":  {certificates: []tls.Certificate{apiserver}},
		"Nobody":        {refused: "certificate required"},
		"SomebodyElses": {certificates: []tls.Certificate{foreign}, refused: "tls: "},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			// A client does not send a certificate that the server would reject; this one does.
			err := ask(s, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if len(tc.certificates) == 0 {
					return &tls.Certificate{}, nil
				}
				return &tc.certificates[0], nil
			}})
			if tc.refused == "" && err != nil || tc.refused != "" && (err == nil || !strings.Contains(err.Error(), tc.refused)) {
				t.Errorf("want %q, got %v", tc.refused, err)
			}
		})
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	s, pool := listen(t, nil)
	if err := ask(s, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS12}); err == nil { //nolint:gosec // must be rejected
		t.Error("TLS 1.2 is accepted")
	}
	if err := ask(s, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}); err != nil {
		t.Error(err)
	}
}

// TestSlowClientsAreCutOff: connections that send nothing, or a byte now and then, are closed, and do not delay other clients.
func TestSlowClientsAreCutOff(t *testing.T) {
	t.Parallel() // it waits for the server's read timeout
	s, pool := listen(t, nil)
	starts := map[string]string{
		"NoRequest":   "",
		"HalfAHeader": "POST " + webhook.ReviewPath + " HTTP/1.1\r\nHost: a\r\nContent-",
		"HalfABody":   "POST " + webhook.ReviewPath + " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 8000000\r\n\r\n{",
	}
	cut := make(chan error)
	waiting := 0
	for name, start := range starts {
		for range 100 {
			waiting++
			conn, err := tls.Dial("tcp", s.Addr(), &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				defer func() { _ = conn.Close() }()
				if _, err := io.WriteString(conn, start); err != nil {
					cut <- fmt.Errorf("%s: %w", name, err)
					return
				}
				answer, err := io.ReadAll(conn) // until the server closes the connection
				var timeout net.Error
				if errors.As(err, &timeout) && timeout.Timeout() {
					cut <- fmt.Errorf("%s: %w", name, err)
					return
				}
				if strings.Contains(string(answer), "200 OK") {
					err = fmt.Errorf("%s was answered: %s", name, answer)
					cut <- err
					return
				}
				cut <- nil
			}()
		}
	}
	if err := ask(s, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}); err != nil {
		t.Errorf("meanwhile: %v", err)
	}
	for range waiting {
		if err := <-cut; err != nil {
			t.Error(err)
		}
	}
}

// Package certs keeps the certificates that Assay's servers serve valid and trusted.
//
// There are two ways to get them. Mounted reads files that another program or the user renews, such as cert-manager. SelfSigned makes
// its own authority and certificates and shares them between the replicas in a Secret.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// warnBefore is the time before expiry at which a certificate that was not renewed makes the replica unready, so that the failure
// is visible a day before it matters. Certificates that live for less than ten days use a tenth of their life.
const warnBefore = 24 * time.Hour

// errNone is returned while there is no certificate yet.
var errNone = errors.New("no serving certificate yet")

// Status describes the certificate in use.
type Status struct {
	// NotBefore and NotAfter bound its validity.
	NotBefore, NotAfter time.Time
	// Serial identifies it.
	Serial string
}

// keeper holds the certificate in use. It is safe for concurrent use; without set it has no certificate. The field clock is required.
type keeper struct {
	clock   clock.PassiveClock
	current atomic.Pointer[tls.Certificate]
}

// GetCertificate returns the certificate in use; it is made for tls.Config, so that a new certificate is served from the
// next handshake on and connections that are open stay open.
func (k *keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := k.current.Load(); c != nil {
		return c, nil
	}
	return nil, errNone
}

// Status describes the certificate in use; ok is false while there is none.
func (k *keeper) Status() (s Status, ok bool) {
	c := k.current.Load()
	if c == nil {
		return Status{}, false
	}
	return Status{NotBefore: c.Leaf.NotBefore, NotAfter: c.Leaf.NotAfter, Serial: c.Leaf.SerialNumber.Text(16)}, true
}

// DaysLeft returns how many days the certificate in use is still valid, negative once it is not; 0 while there is none. It
// is what a metric shows.
func (k *keeper) DaysLeft() float64 {
	s, ok := k.Status()
	if !ok {
		return 0
	}
	return s.NotAfter.Sub(k.clock.Now()).Hours() / 24
}

// Ready returns why the certificate in use cannot be relied upon, for a readiness check: there is none, or it should have
// been renewed long ago and will end within a day.
func (k *keeper) Ready() error {
	s, ok := k.Status()
	if !ok {
		return errNone
	}
	left, life := s.NotAfter.Sub(k.clock.Now()), s.NotAfter.Sub(s.NotBefore)
	if life > backdate {
		life -= backdate // it was never meant to be used before it was issued
	}
	switch {
	case left <= 0:
		return fmt.Errorf("the serving certificate expired at %s", s.NotAfter.UTC().Format(time.RFC3339))
	case left < min(warnBefore, life/10):
		return fmt.Errorf("the serving certificate was not renewed and expires at %s", s.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// set puts a certificate to use. It must hold a parsed leaf.
func (k *keeper) set(c *tls.Certificate) { k.current.Store(c) }

// keyPair parses a certificate chain with its key and makes sure that the leaf is parsed too.
func keyPair(certPEM, keyPEM []byte) (*tls.Certificate, error) {
	c, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	if c.Leaf == nil {
		if c.Leaf, err = x509.ParseCertificate(c.Certificate[0]); err != nil {
			return nil, err
		}
	}
	return &c, nil
}

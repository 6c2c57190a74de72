// Package certs keeps the serving certificates of Assay's servers valid and trusted.
//
// There are two implementations. Mounted reads files that another program, such as cert-manager, or the user renews. SelfSigned
// creates its own authority and certificates and shares them between replicas in a Secret.
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
// is visible a day before clients fail. For lifetimes of less than ten days it is a tenth of the lifetime.
const warnBefore = 24 * time.Hour

// errNone is returned while there is no certificate yet.
var errNone = errors.New("no serving certificate yet")

// Status describes the certificate in use.
type Status struct {
	// NotBefore and NotAfter are its validity period.
	NotBefore, NotAfter time.Time
	// Serial is its serial number.
	Serial string
}

// keeper holds the certificate in use. It is safe for concurrent use. It has no certificate until set is called. The field clock is
// required.
type keeper struct {
	clock   clock.PassiveClock
	current atomic.Pointer[tls.Certificate]
}

// GetCertificate returns the certificate in use, for tls.Config: new connections use a new certificate, and existing ones stay
// open.
func (k *keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := k.current.Load(); c != nil {
		return c, nil
	}
	return nil, errNone
}

// Status describes the certificate in use; ok is false if there is none.
func (k *keeper) Status() (s Status, ok bool) {
	c := k.current.Load()
	if c == nil {
		return Status{}, false
	}
	return Status{NotBefore: c.Leaf.NotBefore, NotAfter: c.Leaf.NotAfter, Serial: c.Leaf.SerialNumber.Text(16)}, true
}

// Ready is a readiness check. It fails without a certificate, or if the certificate should have been renewed long ago and
// expires within a day.
func (k *keeper) Ready() error {
	s, ok := k.Status()
	if !ok {
		return errNone
	}
	left, life := s.NotAfter.Sub(k.clock.Now()), s.NotAfter.Sub(s.NotBefore)
	if life > backdate {
		life -= backdate // it was never used before it was issued
	}
	switch {
	case left <= 0:
		return fmt.Errorf("the serving certificate expired at %s", s.NotAfter.UTC().Format(time.RFC3339))
	case left < min(warnBefore, life/10):
		return fmt.Errorf("the serving certificate was not renewed and expires at %s", s.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// set replaces the certificate in use. It must have a parsed leaf.
func (k *keeper) set(c *tls.Certificate) { k.current.Store(c) }

// keyPair parses a certificate chain with its key, including the leaf.
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

package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"
	"time"
)

// Keys of the Secret. tls.crt, tls.key and ca.crt are the standard keys of TLS Secrets.
const (
	keyServingCert = "tls.crt"
	keyServingKey  = "tls.key"
	keyBundle      = "ca.crt"
	keySignerCert  = "signer.crt"
	keySignerKey   = "signer.key"
	keyNextCert    = "next.crt"
	keyNextKey     = "next.key"
	keyTrusted     = "next-trusted-since"
)

// state is the state that replicas share: the serving certificate, the authority that signed it, and the successor of the authority
// while it is being replaced.
//
// An authority is replaced in three steps, so that clients always know the issuer of the serving certificate. First, the successor
// is created and added to the bundle. Second, the time is recorded at which the bundle was published. Third, once every API server
// has had time to read it, the successor signs. The old authority stays in the bundle until it expires.
type state struct {
	serving      *tls.Certificate
	servingCert  []byte
	servingKey   []byte
	signer, next *authority
	// trusted is when the bundle with next was published; zero if it was not.
	trusted time.Time
	// old are authorities that no longer sign, but whose certificates could still be in use.
	old []*x509.Certificate
}

// policy is the lifetimes of certificates and authorities, and the names in the serving certificate.
type policy struct {
	life, caLife, settle time.Duration
	dns                  []string
	ips                  []net.IP
}

// parseState parses the data of a Secret. Invalid or missing entries are nil, and advance creates them again.
func parseState(data map[string][]byte) *state {
	s := &state{}
	if c, err := keyPair(data[keyServingCert], data[keyServingKey]); err == nil {
		s.serving, s.servingCert, s.servingKey = c, data[keyServingCert], data[keyServingKey]
	}
	if a, err := parseAuthority(data[keySignerCert], data[keySignerKey]); err == nil {
		s.signer = a
	}
	if a, err := parseAuthority(data[keyNextCert], data[keyNextKey]); err == nil {
		s.next = a
		if t, err := time.Parse(time.RFC3339Nano, string(data[keyTrusted])); err == nil {
			s.trusted = t
		}
	}
	if certs, err := parseCerts(data[keyBundle]); err == nil {
		for _, c := range certs {
			if !s.signer.is(c) && !s.next.is(c) {
				s.old = append(s.old, c)
			}
		}
	}
	return s
}

// data is the inverse of parseState.
func (s *state) data() (map[string][]byte, error) {
	out := map[string][]byte{keyServingCert: s.servingCert, keyServingKey: s.servingKey, keyBundle: s.bundle()}
	var err error
	if out[keySignerCert], out[keySignerKey], err = s.signer.encode(); err != nil {
		return nil, err
	}
	if s.next == nil {
		return out, nil
	}
	if out[keyNextCert], out[keyNextKey], err = s.next.encode(); err != nil {
		return nil, err
	}
	if !s.trusted.IsZero() {
		out[keyTrusted] = []byte(s.trusted.UTC().Format(time.RFC3339Nano))
	}
	return out, nil
}

// bundle returns the certificates of all authorities that sign certificates in use, now or soon.
func (s *state) bundle() []byte {
	ders := [][]byte{s.signer.cert.Raw}
	if s.next != nil {
		ders = append(ders, s.next.cert.Raw)
	}
	for _, c := range s.old {
		ders = append(ders, c.Raw)
	}
	return encodeCerts(ders...)
}

// advance updates the state for the given time and reports whether anything changed.
func (s *state) advance(now time.Time, p policy) (changed bool, err error) {
	if n := len(s.old); n > 0 {
		s.old = slices.DeleteFunc(s.old, func(c *x509.Certificate) bool { return !now.Before(c.NotAfter) })
		changed = len(s.old) != n
	}
	switch {
	case s.signer == nil || !now.Before(s.signer.cert.NotAfter):
		// No valid certificate can be served before the new authority exists, so there is no overlap.
		if s.signer, err = newAuthority(now, p.caLife); err != nil {
			return false, err
		}
		s.next, s.trusted, s.serving, changed = nil, time.Time{}, nil, true
	case s.next != nil && !now.Before(s.next.cert.NotAfter):
		s.next, s.trusted, changed = nil, time.Time{}, true // it was never trusted: retry below, in the next pass
	case s.next == nil && !now.Before(due(s.signer.cert)):
		if s.next, err = newAuthority(now, p.caLife); err != nil {
			return false, err
		}
		changed = true
	case s.next != nil && !s.trusted.IsZero() && !now.Before(s.trusted.Add(p.settle)):
		s.old = append([]*x509.Certificate{s.signer.cert}, s.old...)
		s.signer, s.next, s.trusted, s.serving, changed = s.next, nil, time.Time{}, nil, true
	}
	if s.serving != nil && now.Before(due(s.serving.Leaf)) && s.serves(p) {
		return changed, nil
	}
	s.servingCert, s.servingKey, err = s.signer.issue(now, p.life, p.dns, p.ips)
	if err != nil {
		return false, err
	}
	s.serving, err = keyPair(s.servingCert, s.servingKey)
	return true, err
}

// serves reports whether the serving certificate has the wanted names and is signed by the authority.
func (s *state) serves(p policy) bool {
	leaf := s.serving.Leaf
	if leaf.CheckSignatureFrom(s.signer.cert) != nil || !slices.Equal(leaf.DNSNames, p.dns) {
		return false
	}
	return slices.EqualFunc(leaf.IPAddresses, p.ips, net.IP.Equal)
}

// is reports whether c is the certificate of the authority; false for a nil authority.
func (a *authority) is(c *x509.Certificate) bool { return a != nil && bytes.Equal(a.cert.Raw, c.Raw) }

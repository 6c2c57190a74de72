package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// backdate is the time before issuance at which the validity of a certificate begins. An API server whose clock is up to a day behind ours
// (a wrong time zone, a bad CMOS battery) still trusts it.
const backdate = 25 * time.Hour

// authority is a certificate authority: a certificate and the key to sign with.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// newAuthority creates an authority that is valid from now on for the duration life.
func newAuthority(now time.Time, life time.Duration) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		// The serial number in the name distinguishes an authority from its predecessor: verifiers look up issuers by name.
		Subject:               pkix.Name{CommonName: fmt.Sprintf("assay-ca-%x", serial.Bytes()[:4])},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(life),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert: cert, key: key}, err
}

// issue signs a serving certificate for the names, valid for the duration life, but never longer than the authority.
func (a *authority) issue(now time.Time, life time.Duration, dns []string, ips []net.IP) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, nil, err
	}
	end := now.Add(life)
	if end.After(a.cert.NotAfter) {
		end = a.cert.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "assay"},
		NotBefore:    now.Add(-backdate),
		NotAfter:     end,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     dns,
		IPAddresses:  ips,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err = encodeKey(key)
	return encodeCerts(der), keyPEM, err
}

// issued returns when a certificate of this package was created.
func issued(c *x509.Certificate) time.Time { return c.NotBefore.Add(backdate) }

// due returns when a certificate of this package must be replaced: after two thirds of its lifetime.
func due(c *x509.Certificate) time.Time {
	from := issued(c)
	return from.Add(c.NotAfter.Sub(from) * 2 / 3)
}

// parseAuthority is the inverse of encode.
func parseAuthority(certPEM, keyPEM []byte) (*authority, error) {
	certs, err := parseCerts(certPEM)
	if err != nil {
		return nil, err
	}
	if len(certs) != 1 {
		return nil, fmt.Errorf("expected one certificate, found %d", len(certs))
	}
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return nil, errors.New("the key contains no PEM block")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(*ecdsa.PrivateKey)
	if !ok || !signer.PublicKey.Equal(certs[0].PublicKey) {
		return nil, errors.New("the key does not match the certificate")
	}
	return &authority{cert: certs[0], key: signer}, nil
}

// encode returns the authority as PEM.
func (a *authority) encode() (certPEM, keyPEM []byte, err error) {
	keyPEM, err = encodeKey(a.key)
	return encodeCerts(a.cert.Raw), keyPEM, err
}

// parseCerts parses all certificates of a PEM file; blocks of other types are an error.
func parseCerts(data []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for len(bytes.TrimSpace(data)) > 0 {
		block, rest := pem.Decode(data)
		if block == nil {
			return nil, errors.New("contains no PEM block")
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out, data = append(out, c), rest
	}
	return out, nil
}

func encodeCerts(ders ...[]byte) []byte {
	var out bytes.Buffer
	for _, der := range ders {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	return out.Bytes()
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// newSerial returns 127 random bits with the highest bit set, so that its text always has the same length.
func newSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return nil, err
	}
	return n.SetBit(n, 126, 1), nil
}

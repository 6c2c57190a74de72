//go:build linux

package cluster

import (
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
	"os"
	"path/filepath"
	"time"
)

// certLifetime is the lifetime of certificates, so that keys of a forgotten cluster become useless; no test runs longer.
const certLifetime = 30 * 24 * time.Hour

// clockSkew is the time before now from which certificates are valid, for tests that set a clock back.
const clockSkew = time.Hour

// authority is a certificate authority. It is immutable and safe for concurrent use.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte // the certificate
}

// keyPair is a certificate and its private key, in PEM.
type keyPair struct{ cert, key []byte }

// newAuthority creates a certificate authority and writes it to dir as name.crt and name.key.
func newAuthority(dir, name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certTemplate(pkix.Name{CommonName: name})
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	pair, err := encodePair(der, key)
	if err != nil {
		return nil, err
	}
	if err := pair.write(dir, name); err != nil {
		return nil, err
	}
	return parseAuthority(pair)
}

// loadAuthority is the inverse of newAuthority.
func loadAuthority(dir, name string) (*authority, error) {
	var pair keyPair
	var err error
	if pair.cert, err = os.ReadFile(filepath.Join(dir, name+".crt")); err != nil {
		return nil, err
	}
	if pair.key, err = os.ReadFile(filepath.Join(dir, name+".key")); err != nil {
		return nil, err
	}
	return parseAuthority(pair)
}

func parseAuthority(pair keyPair) (*authority, error) {
	certBlock, _ := pem.Decode(pair.cert)
	keyBlock, _ := pem.Decode(pair.key)
	if certBlock == nil || keyBlock == nil {
		return nil, errors.New("certificate authority: no PEM block")
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("certificate authority: a %T cannot sign", key)
	}
	return &authority{cert: cert, key: signer, pem: pair.cert}, nil
}

// server issues a serving certificate for the given names and addresses. It can also be used by a client, since etcd uses one
// certificate for both.
func (a *authority) server(name string, hosts ...string) (keyPair, error) {
	template := certTemplate(pkix.Name{CommonName: name})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return a.issue(template)
}

// client issues a certificate for a user with groups.
func (a *authority) client(user string, groups ...string) (keyPair, error) {
	template := certTemplate(pkix.Name{CommonName: user, Organization: groups})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

func (a *authority) issue(template *x509.Certificate) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return keyPair{}, err
	}
	return encodePair(der, key)
}

func certTemplate(subject pkix.Name) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(randomBytes(16)),
		Subject:      subject,
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     now.Add(certLifetime),
	}
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: it crashes the program instead
	return b
}

func encodePair(der []byte, key crypto.Signer) (keyPair, error) {
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return keyPair{}, err
	}
	return keyPair{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}

// write writes the pair to dir as name.crt and name.key.
func (p keyPair) write(dir, name string) error {
	if err := os.WriteFile(filepath.Join(dir, name+".crt"), p.cert, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".key"), p.key, 0o600)
}

// writeServiceAccountKeys writes the keys with which the API server signs (sa.key) and verifies (sa.pub) tokens.
func writeServiceAccountKeys(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	files := map[string]*pem.Block{
		"sa.key": {Type: "PRIVATE KEY", Bytes: private},
		"sa.pub": {Type: "PUBLIC KEY", Bytes: public},
	}
	for name, block := range files {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// pki holds all certificates of a control plane, in the directory from which the programs read them. There are three authorities,
// so that the certificate of a user gives no access to etcd or the aggregation layer.
type pki struct {
	dir   string
	users *authority // signs users' and the API server's certificates
}

// Names of the authorities' files.
const (
	caName           = "ca"
	etcdCAName       = "etcd-ca"
	frontProxyCAName = "front-proxy-ca"
)

func newPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	users, err := newAuthority(dir, caName)
	if err != nil {
		return nil, err
	}
	etcd, err := newAuthority(dir, etcdCAName)
	if err != nil {
		return nil, err
	}
	frontProxy, err := newAuthority(dir, frontProxyCAName)
	if err != nil {
		return nil, err
	}
	issued := map[string]func() (keyPair, error){
		"apiserver": func() (keyPair, error) {
			return users.server("kube-apiserver", loopback, "localhost", firstServiceIP,
				"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
		},
		"apiserver-kubelet":  func() (keyPair, error) { return users.client("kube-apiserver-kubelet-client", "system:masters") },
		"scheduler":          func() (keyPair, error) { return users.server("kube-scheduler", loopback, "localhost") },
		"controller-manager": func() (keyPair, error) { return users.server("kube-controller-manager", loopback, "localhost") },
		"etcd":               func() (keyPair, error) { return etcd.server("etcd", loopback, "localhost") },
		"apiserver-etcd":     func() (keyPair, error) { return etcd.client("kube-apiserver") },
		"front-proxy":        func() (keyPair, error) { return frontProxy.client("front-proxy-client") },
	}
	for name, issue := range issued {
		pair, err := issue()
		if err != nil {
			return nil, fmt.Errorf("issue certificate %s: %w", name, err)
		}
		if err := pair.write(dir, name); err != nil {
			return nil, err
		}
	}
	if err := writeServiceAccountKeys(dir); err != nil {
		return nil, err
	}
	return &pki{dir: dir, users: users}, nil
}

// loadPKI is the inverse of newPKI.
func loadPKI(dir string) (*pki, error) {
	users, err := loadAuthority(dir, caName)
	if err != nil {
		return nil, err
	}
	return &pki{dir: dir, users: users}, nil
}

// file returns the path of a file of the PKI.
func (p *pki) file(name string) string { return filepath.Join(p.dir, name) }

package certs

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"sync"
)

// Authorities holds the CA certificates in a file, which sign client certificates. It is safe for concurrent use.
type Authorities struct {
	file   string
	report func(error)

	mu   sync.Mutex
	data []byte // the content in use
	pool *x509.CertPool
	last string // the last reported error
}

// NewAuthorities reads the file once, so that a wrong path is an error at startup. Report is called when the file becomes unusable;
// the last valid authorities stay in use. A nil report ignores that.
func NewAuthorities(file string, report func(error)) (*Authorities, error) {
	a := &Authorities{file: file, report: report}
	return a, a.reload()
}

// Pool returns the authorities in the file. It reads the file on each call; this is cheap compared with the TLS handshake that
// calls it.
func (a *Authorities) Pool() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.reload()
	if err == nil {
		a.last = ""
	} else if err.Error() != a.last { // once, not on every handshake
		a.last = err.Error()
		if a.report != nil {
			a.report(err)
		}
	}
	return a.pool
}

func (a *Authorities) reload() error {
	data, err := readFile(a.file)
	if err != nil || bytes.Equal(data, a.data) {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return fmt.Errorf("%s contains no certificate", a.file)
	}
	a.data, a.pool = data, pool
	return nil
}

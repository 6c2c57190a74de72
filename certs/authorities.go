package certs

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"sync"
)

// Authorities holds the CA certificates of a file, which sign the certificates of clients. It is safe for concurrent use.
type Authorities struct {
	file   string
	report func(error)

	mu   sync.Mutex
	data []byte // what is in use
	pool *x509.CertPool
	last string // what was reported last
}

// NewAuthorities reads the file once, so that a wrong path shows at the start. Report is called when it can no longer be used;
// the last valid authorities stay in use. Nil ignores that.
func NewAuthorities(file string, report func(error)) (*Authorities, error) {
	a := &Authorities{file: file, report: report}
	return a, a.reload()
}

// Pool returns the authorities that are in the file now. It reads the file; this costs little compared with the
// handshake that calls it.
func (a *Authorities) Pool() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.reload()
	if err == nil {
		a.last = ""
	} else if err.Error() != a.last { // once, not at every handshake
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

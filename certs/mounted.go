package certs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/utils/clock"
)

// pollInterval is how often mounted files are compared with what is served. The kubelet itself takes up to a minute to bring
// a changed Secret to the node, and a certificate is renewed weeks before its end, so that a watch would gain nothing.
const pollInterval = 10 * time.Second

// maxFile bounds what is read of a mounted file; a long chain has about ten kilobytes.
const maxFile = 1 << 20

// Mounted serves a certificate from files and takes over what changes in them. It is safe for concurrent use.
type Mounted struct {
	keeper
	certFile, keyFile string
	clock             clock.WithTicker
	report            func(error)
	cert, key         []byte // what is in use
}

// NewMounted reads the files once, so that a wrong path shows at the start. Report is called with the error of files that can no longer be
// used; the last valid certificate is still served. Nil ignores these errors. A nil clock is the real one.
func NewMounted(certFile, keyFile string, clk clock.WithTicker, report func(error)) (*Mounted, error) {
	if clk == nil {
		clk = clock.RealClock{}
	}
	m := &Mounted{keeper: keeper{clock: clk}, certFile: certFile, keyFile: keyFile, clock: clk, report: report}
	_, err := m.Reload()
	return m, err
}

// Run takes over changes until the context ends.
func (m *Mounted) Run(ctx context.Context) error {
	var last string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.clock.After(pollInterval):
		}
		_, err := m.Reload()
		if err == nil {
			last = ""
			continue
		}
		if err.Error() != last && m.report != nil { // once, not every ten seconds
			m.report(err)
		}
		last = err.Error()
	}
}

// Reload compares the files with what is served, takes them over if they differ and are whole, and reports whether it did.
// Run calls it; it must not be called concurrently.
//
// The kubelet replaces all files of a volume at once, other writers may not: a certificate and a key that do not belong
// together are an error, and are tried again later.
func (m *Mounted) Reload() (bool, error) {
	cert, err := readFile(m.certFile)
	if err != nil {
		return false, err
	}
	key, err := readFile(m.keyFile)
	if err != nil {
		return false, err
	}
	if bytes.Equal(cert, m.cert) && bytes.Equal(key, m.key) {
		return false, nil
	}
	pair, err := keyPair(cert, key)
	if err != nil {
		return false, fmt.Errorf("certificate %s with key %s: %w", m.certFile, m.keyFile, err)
	}
	m.cert, m.key = cert, key
	m.set(pair)
	return true, nil
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errors.New(name + ": too large for a certificate file")
	}
	return data, err
}

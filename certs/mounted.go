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

// pollInterval is how often mounted files are compared with the certificate in use. The kubelet takes up to a minute to update a
// changed Secret on the node, and a certificate is renewed weeks before it expires, so a watch has no advantage.
const pollInterval = 10 * time.Second

// maxFile is the maximum size of a mounted file in bytes; a long chain has about 10 KB.
const maxFile = 1 << 20

// Mounted serves a certificate from files and reloads them when they change. It is safe for concurrent use.
type Mounted struct {
	keeper
	certFile, keyFile string
	clock             clock.WithTicker
	report            func(error)
	cert, key         []byte // the content in use
}

// NewMounted reads the files once, so that a wrong path is an error at startup. Report is called with the error if the files become
// unusable; the last valid certificate stays in use. A nil report ignores these errors. A nil clock is the real one.
func NewMounted(certFile, keyFile string, clk clock.WithTicker, report func(error)) (*Mounted, error) {
	if clk == nil {
		clk = clock.RealClock{}
	}
	m := &Mounted{keeper: keeper{clock: clk}, certFile: certFile, keyFile: keyFile, clock: clk, report: report}
	_, err := m.Reload()
	return m, err
}

// Run reloads changed files until the context ends.
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

// Reload loads the files if they have changed and are valid, and reports whether it did. Run calls it; it must not be called
// concurrently.
//
// The kubelet replaces all files of a volume atomically, other writers may not: a certificate and a key that do not match are an
// error, and are read again later.
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

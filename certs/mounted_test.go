package certs

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// files writes a new certificate with its key to dir and returns the bundle that trusts it.
func files(t *testing.T, dir string) []byte {
	t.Helper()
	a, err := newAuthority(start, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := a.issue(start, time.Hour, []string{serverName}, []net.IP{net.IPv6loopback})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return encodeCerts(a.cert.Raw)
}

func TestMountedTakesOverWhatChanges(t *testing.T) {
	dir, clk := t.TempDir(), clocktesting.NewFakeClock(start)
	bundle := files(t, dir)
	m, err := NewMounted(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), clk, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := verify(m, bundle, start); err != nil {
		t.Error(err)
	}
	if changed, err := m.Reload(); changed || err != nil {
		t.Errorf("unchanged files: changed %v, %v", changed, err)
	}
	bundle = files(t, dir)
	if changed, err := m.Reload(); !changed || err != nil {
		t.Errorf("new files: changed %v, %v", changed, err)
	}
	if err := verify(m, bundle, start); err != nil {
		t.Error(err)
	}
}

func TestMountedKeepsTheLastGoodCertificate(t *testing.T) {
	tests := map[string]func(t *testing.T, dir string){
		"KeyOfTheNextCertificate": func(t *testing.T, dir string) {
			cert, err := os.ReadFile(filepath.Join(dir, "tls.crt"))
			if err != nil {
				t.Fatal(err)
			}
			files(t, dir)
			if err := os.WriteFile(filepath.Join(dir, "tls.crt"), cert, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"Gone":  func(t *testing.T, dir string) { _ = os.Remove(filepath.Join(dir, "tls.key")) },
		"Empty": func(t *testing.T, dir string) { _ = os.WriteFile(filepath.Join(dir, "tls.crt"), nil, 0o600) },
		"Huge": func(t *testing.T, dir string) {
			_ = os.WriteFile(filepath.Join(dir, "tls.crt"), make([]byte, maxFile+1), 0o600)
		},
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			bundle := files(t, dir)
			m, err := NewMounted(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), clocktesting.NewFakeClock(start), nil)
			if err != nil {
				t.Fatal(err)
			}
			spoil(t, dir)
			if _, err := m.Reload(); err == nil {
				t.Error("spoilt files draw no error")
			}
			if err := verify(m, bundle, start); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNewMountedRefusesMissingFiles(t *testing.T) {
	if _, err := NewMounted("nowhere/tls.crt", "nowhere/tls.key", nil, nil); err == nil {
		t.Error("accepted")
	}
}

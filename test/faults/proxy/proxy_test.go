//go:build linux

package proxy_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/assay-project/assay/test/faults/proxy"
)

// world is two servers behind a proxy. The first one returns 10,000 bytes and counts, the second one returns "second".
type world struct {
	*proxy.Proxy
	first *httptest.Server
	calls atomic.Int64
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{}
	w.first = httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		w.calls.Add(1)
		_, _ = io.WriteString(rw, strings.Repeat("x", 10000))
	}))
	t.Cleanup(w.first.Close)
	second := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "second") }))
	t.Cleanup(second.Close)
	cert, key := files(t, w.first.TLS.Certificates[0])
	config := func(s *httptest.Server) *rest.Config {
		return &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	}
	var err error
	w.Proxy, err = proxy.New(t.Context(), proxy.Options{Backends: []*rest.Config{config(w.first), config(second)}, CertFile: cert, KeyFile: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// files writes a certificate and its key.
func files(t *testing.T, pair tls.Certificate) (cert, key string) {
	t.Helper()
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// send sends a request on a new connection.
func (w *world) send(ctx context.Context, method, query string) (code int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, w.URL()+"/"+query, nil)
	if err != nil {
		return 0, "", err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true} //nolint:gosec // a test's own server
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, "", err
	}
	data, err := io.ReadAll(res.Body)
	return res.StatusCode, string(data), errors.Join(err, res.Body.Close())
}

func TestFaultsOfRequests(t *testing.T) {
	for name, test := range map[string]struct {
		fault         proxy.Fault
		method, query string
		code          int // 0: an error
		bytes, calls  int
	}{
		"None":            {proxy.Fault{}, "GET", "", 200, 10000, 1},
		"Status":          {proxy.Fault{Share: 1, Status: 429}, "GET", "", 429, -1, 0},
		"ExpiredWatch":    {proxy.Fault{Share: 1, Expired: true}, "GET", "?watch=true", 410, -1, 0},
		"ExpiredNoWatch":  {proxy.Fault{Share: 1, Expired: true}, "GET", "", 200, 10000, 1},
		"LostWrite":       {proxy.Fault{Share: 1, Lose: true}, "PATCH", "", 0, 0, 1},
		"LostWritesOnly":  {proxy.Fault{Share: 1, Lose: true}, "GET", "", 200, 10000, 1},
		"Truncated":       {proxy.Fault{Share: 1, Truncate: 5}, "GET", "", 0, 5, 1},
		"LongerThanShort": {proxy.Fault{Share: 1, Truncate: 10001}, "GET", "", 200, 10000, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			w.Disturb(test.fault)
			code, body, err := w.send(t.Context(), test.method, test.query)
			if (err != nil) != (test.code == 0) || err == nil && code != test.code {
				t.Errorf("got %d and %v, want %d", code, err, test.code)
			}
			if test.bytes >= 0 && len(body) > test.bytes {
				t.Errorf("got %d bytes, want %d", len(body), test.bytes)
			}
			if got := int(w.calls.Load()); got != test.calls {
				t.Errorf("%d requests arrived, want %d", got, test.calls)
			}
		})
	}
}

func TestLateWritesArriveWhenTheyAreDelivered(t *testing.T) {
	w := start(t)
	w.Disturb(proxy.Fault{Share: 1, Late: true})
	for _, path := range []string{"api/v1/nodes/a/status", "api/v1/nodes/b"} {
		if _, _, err := w.send(t.Context(), "PATCH", path); err == nil {
			t.Errorf("the write to %s is answered", path)
		}
	}
	if _, _, err := w.send(t.Context(), "PATCH", "api/v1/pods/a"); err != nil {
		t.Error(err)
	}
	if got := w.calls.Load(); got != 1 {
		t.Errorf("%d requests arrived, want that of the pod", got)
	}
	for _, want := range []int{2, 0} {
		if done, rejected, err := w.Deliver(); done != want || rejected != 0 || err != nil {
			t.Errorf("%d late writes were carried out and %d rejected (%v), want %d", done, rejected, err, want)
		}
	}
	if got := w.calls.Load(); got != 3 {
		t.Errorf("%d requests arrived, want 3", got)
	}
}

func TestAFrozenProxyAnswersWhenItThaws(t *testing.T) {
	w := start(t)
	w.Freeze()
	answered := make(chan error, 1)
	go func() {
		_, _, err := w.send(t.Context(), "GET", "")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("it answers: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	w.Thaw()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

func TestARefusingProxyAcceptsNothing(t *testing.T) {
	w := start(t)
	w.Refuse(true)
	if _, _, err := w.send(t.Context(), "GET", ""); err == nil {
		t.Error("it answers")
	}
	w.Refuse(false)
	if _, _, err := w.send(t.Context(), "GET", ""); err != nil {
		t.Error(err)
	}
}

func TestAnotherServerAnswersIfOneIsAway(t *testing.T) {
	w := start(t)
	w.first.Close()
	if _, body, err := w.send(t.Context(), "GET", ""); err != nil || body != "second" {
		t.Errorf("got %q and %v", body, err)
	}
}

package topology

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// configz runs a kubelet's endpoint, and returns a client of it.
func configz(t *testing.T, answer http.HandlerFunc) *Configz {
	t.Helper()
	server := httptest.NewUnstartedServer(answer)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	dir := t.TempDir()
	c := &Configz{URL: server.URL + "/configz", TokenFile: filepath.Join(dir, "token"), CAFile: filepath.Join(dir, "ca.crt")}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, text := range map[string]string{c.TokenFile: "secret\n", c.CAFile: string(ca)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// running is a part of what a kubelet of Kubernetes 1.36 answers.
const running = `{"kubeletconfig": {"enableServer": true, "port": 10250, "authentication": {"x509": {}, "webhook": {"cacheTTL": "2m0s"}},
  "cpuManagerPolicy": "static", "cpuManagerReconcilePeriod": "10s", "memoryManagerPolicy": "Static", "topologyManagerPolicy": "single-numa-node",
  "topologyManagerScope": "pod", "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "16"}, "reservedMemory": [{"numaNode": 0, "limits": {"memory": "50Mi"}}]}}`

func TestConfigz(t *testing.T) {
	var asked *http.Request
	c := configz(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r
		_, _ = io.WriteString(w, running)
	})
	got, err := c.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := &Kubelet{"static", "Static", "single-numa-node", "pod", map[string]string{"max-allowable-numa-nodes": "16"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if asked.Method != http.MethodGet || asked.URL.Path != "/configz" || asked.Header.Get("Authorization") != "Bearer secret" {
		t.Errorf("request %s %s with %q", asked.Method, asked.URL.Path, asked.Header.Get("Authorization"))
	}
}

// TestNoTokenForAnotherCertificate: the token is sent only to a server with a verified certificate, unless that is switched off by name.
func TestNoTokenForAnotherCertificate(t *testing.T) {
	requests := 0
	c := configz(t, func(w http.ResponseWriter, _ *http.Request) {
		requests++
		_, _ = io.WriteString(w, running)
	})
	other := configz(t, nil)
	// Test servers share a certificate: the one of this server is for another name.
	c.URL = strings.Replace(c.URL, "127.0.0.1", "localhost", 1)
	if _, err := c.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "serverTLSBootstrap") || requests != 0 {
		t.Errorf("error %v and %d requests for a certificate with another name", err, requests)
	}
	if err := os.WriteFile(other.CAFile, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.CAFile = other.CAFile
	if _, err := c.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "contains no PEM certificate") || requests != 0 {
		t.Errorf("error %v and %d requests without a certificate authority", err, requests)
	}
	c.Insecure = true
	if _, err := c.Read(t.Context()); err != nil || requests != 1 {
		t.Errorf("error %v and %d requests without verification", err, requests)
	}
}

func TestAnswersThatAreNotSettings(t *testing.T) {
	elsewhere := configz(t, func(http.ResponseWriter, *http.Request) { t.Error("the token was sent to another server") })
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"unauthorized": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, "does not accept the token"},
		"forbidden":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, "nodes/configz"},
		"redirected":   {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }, "302"},
		"other":        {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"kubeproxy": {}}`) }, "no kubeletconfig"},
		"invalid":      {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"kubeletconfig": [`) }, "/configz"},
		"unknown": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"kubeletconfig": {"topologyManagerPolicy": "sometimes"}}`)
		}, "the kubelet knows none, best-effort"},
		"too long": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxKubeletBytes+1)) }, "more than 1048576"},
	} {
		if k, err := configz(t, tt.answer).Read(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: settings %v, error %v, want %q", name, k, err, tt.want)
		}
	}
	c := configz(t, nil)
	c.TokenFile += ".absent"
	if _, err := c.Read(t.Context()); err == nil || !strings.Contains(err.Error(), c.TokenFile) {
		t.Errorf("error %v without a token", err)
	}
}

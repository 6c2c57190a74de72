package webhook_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/webhook"
)

// TestSilentConnectionsTakeNoSlot: a client that announces a body and does not send it delays no other review.
func TestSilentConnectionsTakeNoSlot(t *testing.T) {
	s, pool := listen(t, nil)
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request:  request(t, []byte(ruleYAML(`{rules: [{name: broken, labels: {a: "{nope}"}}]}`))),
	})
	if err != nil {
		t.Fatal(err)
	}
	const announce = "POST " + webhook.ReviewPath + " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 8388608\r\n\r\n"
	for i := range 1000 {
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if i%4 == 0 {
			continue // no handshake
		}
		secure := tls.Client(conn, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13})
		if _, err := io.WriteString(secure, []string{"P", announce, announce + "{"}[i%4-1]); err != nil {
			t.Fatal(err)
		}
	}
	asked(t, s, pool, body)
}

// asked sends fifty concurrent reviews, each of which must be rejected.
func asked(t *testing.T, s *webhook.Server, pool *x509.CertPool, body []byte) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}}}
	defer c.CloseIdleConnections()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			resp, err := c.Post("https://"+s.Addr()+webhook.ReviewPath+"?timeout=2s", "application/json", bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = resp.Body.Close() }()
			answer, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(answer, []byte(`"allowed":false`)) {
				t.Errorf("got %s (%v): %.200s", resp.Status, err, answer)
			}
		})
	}
	wg.Wait()
}

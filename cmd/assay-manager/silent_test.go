//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/webhook"
)

// TestSilentConnectionsCostNoReview holds 1,000 connections that send nothing, or a byte now and then, while rules are applied. The
// API server has the same source address. It accepts rules if it gets no review, so that the test notices a lost review.
func TestSilentConnectionsCostNoReview(t *testing.T) {
	c := testkit.Cluster(t)
	p := startWebhook(t, c, "--failure-policy=Ignore")
	k := testkit.Client(t, c.User)
	const announce = "POST " + webhook.ReviewPath + " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 8388608\r\n\r\n"
	var open atomic.Int64
	for i := range 1000 {
		attack := []string{"", "POST " + webhook.ReviewPath + " HTTP/1.1\r\nHost: a\r\nX-", announce, announce + "{"}[i%4]
		go func() {
			for t.Context().Err() == nil {
				silent(t, p.serve, attack, &open)
				select {
				case <-t.Context().Done():
				case <-time.After(3 * time.Second): // new connections could close at once if the server rejects them
				}
			}
		}()
	}
	testkit.Eventually(t, "the attack is under way", func(context.Context) error {
		if n := open.Load(); n < 1000 {
			return fmt.Errorf("%d connections were opened", n)
		}
		return nil
	})
	const workers, each = 8, 50
	var lost atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range each {
				refused := i%2 == 1
				o := object(t, map[bool]string{false: whole, true: broken}[refused])
				if err := k.Create(t.Context(), o, client.DryRunAll); refused && !apierrors.IsInvalid(err) || !refused && err != nil {
					lost.Add(1)
					t.Logf("refused should be %v, got %v", refused, err)
				}
			}
		})
	}
	wg.Wait()
	if n := lost.Load(); n > 0 {
		t.Errorf("%d of %d reviews were lost, under %d connections", n, workers*each, open.Load())
	}
	metrics, err := testkit.Get(t.Context(), "http://"+p.metrics+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	var resident float64
	for line := range strings.Lines(metrics) {
		_, _ = fmt.Sscanf(line, "process_resident_memory_bytes %g", &resident)
	}
	t.Logf("the webhook takes %.0f MiB", resident/(1<<20))
}

// silent opens a connection, starts a request and sends a byte now and then until the server closes the connection.
func silent(t *testing.T, address, begin string, open *atomic.Int64) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	open.Add(1)
	if begin == "" {
		_, _ = io.Copy(io.Discard, conn) // no handshake
		return
	}
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}) //nolint:gosec // an attacker does not care
	if _, err := io.WriteString(secure, begin); err != nil {
		return
	}
	gone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, secure)
		close(gone)
	}()
	for slow := begin[len(begin)-1] == '{'; ; {
		select {
		case <-gone:
			return
		case <-t.Context().Done():
			return
		case <-time.After(100 * time.Millisecond):
			if slow {
				_, _ = io.WriteString(secure, " ")
			}
		}
	}
}

//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"github.com/assay-project/assay/internal/testkit"
)

// TestAControllerWaitsForTheAPIServer: if it ended, the kubelet would restart it with growing delays.
func TestAControllerWaitsForTheAPIServer(t *testing.T) {
	c := testkit.Cluster(t)
	away := testkit.FreeAddress(t)
	r := launchController(t, c, testkit.Namespace(t, testkit.Client(t, c.User)), "-kubeconfig="+redirected(t, c.Kubeconfig, c.RESTConfig().Host, "http://"+away))
	running := func() error {
		select {
		case err := <-r.ended:
			r.ended <- err
			return errors.New("the controller has ended")
		default:
			return nil
		}
	}
	testkit.Eventually(t, "the controller is alive and not ready", func(ctx context.Context) error {
		_, dead := testkit.Get(ctx, "http://"+r.health+"/healthz")
		_, err := testkit.Get(ctx, "http://"+r.health+"/readyz")
		if dead != nil || err == nil || !strings.Contains(err.Error(), "waiting for the API server") {
			return errors.Join(dead, err, running())
		}
		return nil
	})
	listener, err := net.Listen("tcp", away)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httptest.Server{Listener: listener, Config: httptest.NewUnstartedServer(forwarding(t, c)).Config}
	proxy.Start()
	t.Cleanup(func() { proxy.CloseClientConnections(); proxy.Close() })
	testkit.Eventually(t, "the controller is ready", func(ctx context.Context) error {
		_, err := testkit.Get(ctx, "http://"+r.health+"/readyz")
		return errors.Join(err, running())
	})
	_ = r.end(syscall.SIGKILL) // the proxy waits for its connections
}

// TestAnExtenderIsAliveWhileItWaits: otherwise its startup probe would fail, and the kubelet would restart it with growing delays.
func TestAnExtenderIsAliveWhileItWaits(t *testing.T) {
	dir := t.TempDir()
	writeCertificate(t, dir, time.Hour)
	for name, f := range map[string]extenderFlags{
		"http":  {address: testkit.FreeAddress(t)},
		"https": {address: testkit.FreeAddress(t), certFile: filepath.Join(dir, "tls.crt"), keyFile: filepath.Join(dir, "tls.key")},
	} {
		t.Run(name, func(t *testing.T) {
			away := testkit.FreeAddress(t)
			waited := make(chan error, 1)
			go func() {
				waited <- awaitServer(t.Context(), &rest.Config{Host: "http://" + away}, f.listen, logr.Discard())
			}()
			transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // as a kubelet
			defer transport.CloseIdleConnections()
			probe := func(path string) (int, error) {
				res, err := (&http.Client{Transport: transport}).Get(name + "://" + f.address + path)
				if err != nil {
					return 0, err
				}
				return res.StatusCode, res.Body.Close()
			}
			testkit.Eventually(t, "the extender is alive and not ready", func(context.Context) error {
				alive, err := probe("/healthz")
				ready, failed := probe("/readyz")
				if err != nil || failed != nil || alive != http.StatusOK || ready != http.StatusServiceUnavailable {
					return fmt.Errorf("/healthz %d, /readyz %d: %w", alive, ready, errors.Join(err, failed))
				}
				return nil
			})
			listener, err := net.Listen("tcp", away)
			if err != nil {
				t.Fatal(err)
			}
			server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}}
			server.Start()
			defer server.Close()
			if err := <-waited; err != nil {
				t.Fatal(err)
			}
			if listener, err = f.listen(t.Context()); err != nil {
				t.Fatalf("the address of the extender is still in use: %v", err)
			}
			_ = listener.Close()
		})
	}
}

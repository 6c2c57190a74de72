//go:build linux

package main

import (
	"context"
	"errors"
	"net"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

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

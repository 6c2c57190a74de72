package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

const (
	// awaitInterval is the interval at which an unavailable API server is tried. There are only a few replicas.
	awaitInterval = 2 * time.Second
	// awaitTimeout is the timeout of one attempt.
	awaitTimeout = 5 * time.Second
)

// listen opens a listener for the probes of a process that waits; nil if it has none.
type listen func(context.Context) (net.Listener, error)

// onPort returns a listen for a port; nil if it is 0.
func onPort(port int) listen {
	if port == 0 {
		return nil
	}
	return func(ctx context.Context) (net.Listener, error) {
		return (&net.ListenConfig{}).Listen(ctx, "tcp", address(port))
	}
}

// awaitServer waits until the API server answers, or the context ends. Meanwhile the process is alive and not ready. If it ended
// instead, as the manager of controller-runtime does, or failed its startup probe, the kubelet would restart it with a delay that grows
// to five minutes, and labels would be that late after an outage.
func awaitServer(ctx context.Context, config *rest.Config, probes listen, log logr.Logger) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	err = answers(ctx, client)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	log.Error(err, "Waiting for the API server")
	if probes != nil {
		listener, err := probes(ctx)
		if err != nil {
			return err
		}
		server := &http.Server{Handler: aliveOnly(), ReadHeaderTimeout: awaitTimeout}
		go func() { _ = server.Serve(listener) }()
		defer func() { _ = server.Close() }()
	}
	_ = wait.PollUntilContextCancel(ctx, awaitInterval, false, func(ctx context.Context) (bool, error) {
		return answers(ctx, client) == nil, nil
	}) // the error is that of the context
	return nil
}

// answers returns an error if the API server is unavailable. A server that rejects the request answers.
func answers(ctx context.Context, client discovery.DiscoveryInterface) error {
	ctx, cancel := context.WithTimeout(ctx, awaitTimeout)
	defer cancel()
	err := client.RESTClient().Get().AbsPath("/api").Do(ctx).Error()
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError && !apierrors.IsTooManyRequests(err) {
		return nil
	}
	return err
}

// aliveOnly serves the health endpoints of a process that waits for the API server.
func aliveOnly() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "waiting for the API server", http.StatusServiceUnavailable)
	})
	return mux
}

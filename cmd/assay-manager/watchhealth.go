package main

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/assay-project/assay/internal/watchhealth"
)

// pingSettings are environment variables that configure how client-go detects dead connections, and their defaults here: an idle
// connection is pinged after 10 seconds instead of 30, and closed after 5 more seconds without a response. A ping is not an API
// request.
var pingSettings = map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "10", "HTTP2_PING_TIMEOUT_SECONDS": "5"}

// The default timeouts of client-go.
const dialTimeout, keepAlive = 30 * time.Second, 30 * time.Second

// watches are the watches of the manager that is currently running.
var (
	watches     atomic.Pointer[watchhealth.Monitor]
	watchStalls = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "assay_watch_stalls_total",
		Help: "Stalled watches of the API server that were opened again.",
	}, []string{"resource"})
	watchClosed = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "assay_watch_closed_seconds",
		Help: "Time in seconds since the longest closed watch was closed; 0 if all are open.",
	}, func() float64 {
		if m := watches.Load(); m != nil {
			return m.Closed().Seconds()
		}
		return 0
	})
)

func init() { ctrlmetrics.Registry.MustRegister(watchStalls, watchClosed) }

// monitor detects and reopens stalled watches of all clients that are created from the configuration after this call, until the
// context ends. A patience of 0 means the default.
func monitor(ctx context.Context, config *rest.Config, patience time.Duration, log logr.Logger) *watchhealth.Monitor {
	for name, value := range pingSettings {
		_ = os.Setenv(name, cmp.Or(os.Getenv(name), value)) // fails only for invalid names
	}
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext)
	config.Dial = dialer.DialContext
	m := watchhealth.New(watchhealth.Options{
		Patience: patience, Reconnect: dialer.CloseAll,
		Report: func(s watchhealth.Stall) {
			watchStalls.WithLabelValues(s.Resource).Inc()
			log.Info("Reopening a stalled watch", "resource", s.Resource, "silent", s.For, "unanswered", s.Opening)
		},
	})
	config.Wrap(m.RoundTripper)
	watches.Store(m)
	go m.Run(ctx)
	return m
}

// both returns a check that passes if both checks pass. Nil checks always pass.
func both(a, b func() error) func() error {
	if a == nil {
		return b
	}
	return func() error {
		if err := a(); err != nil {
			return err
		}
		return b()
	}
}

// healthCheck converts a check for the manager's health server.
func healthCheck(check func() error) func(*http.Request) error {
	return func(*http.Request) error { return check() }
}

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

// pingSettings are environment variables that configure how client-go detects connections that are dead but not closed, with the
// values that apply unless the user has set them: an idle connection is pinged after 10 seconds instead of 30, and closed after
// 5 more without an answer. A ping is not an API request.
var pingSettings = map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "10", "HTTP2_PING_TIMEOUT_SECONDS": "5"}

// The times that client-go dials with by default.
const dialTimeout, keepAlive = 30 * time.Second, 30 * time.Second

// watches are those of the manager that runs in this process at the moment.
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

// monitor detects stalled watches of all clients that are created from the configuration after this call, and opens them again,
// until the context ends. A patience of 0 means the default.
func monitor(ctx context.Context, config *rest.Config, patience time.Duration, log logr.Logger) *watchhealth.Monitor {
	for name, value := range pingSettings {
		_ = os.Setenv(name, cmp.Or(os.Getenv(name), value)) // fails for bad names only
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

// both is fine if both checks are; nil checks are.
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

// healthCheck makes a check of the manager's health server.
func healthCheck(check func() error) func(*http.Request) error {
	return func(*http.Request) error { return check() }
}

// Package refusals logs clients that may not call the extender.
package refusals

import (
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

const (
	// every is the interval at which a client is logged once. A scheduler with an invalid certificate calls the extender for every
	// pod.
	every = 10 * time.Minute
	// maximum is the maximum number of different clients that are logged in this interval, so that unknown clients cannot fill the
	// log.
	maximum = 50
)

// Log logs rejected clients. It is safe for concurrent use.
type Log struct {
	log   logr.Logger
	clock clock.PassiveClock
	Count prometheus.Counter

	mu    sync.Mutex
	since time.Time
	told  map[[2]string]bool
}

// New returns an empty Log.
func New(log logr.Logger, clk clock.PassiveClock) *Log {
	return &Log{log: log, clock: clk, Count: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "assay_extender_refused_total",
		Help: "Requests and TLS handshakes of unauthorized clients. The log contains the client and the reason.",
	})}
}

// Report counts a rejected request, and logs it unless the client was logged recently.
func (r *Log) Report(from string, why error) {
	r.Count.Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.clock.Now(); r.told == nil || now.Sub(r.since) >= every {
		r.since, r.told = now, map[[2]string]bool{}
	}
	key := [2]string{from, why.Error()}
	if r.told[key] || len(r.told) >= maximum {
		return
	}
	r.told[key] = true
	r.log.Info("Rejected extender request: unauthorized client", "from", from, "why", why.Error())
	if len(r.told) == maximum {
		r.log.Info("Counting further rejected requests without logging them", "for", every)
	}
}

package main

import (
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

const (
	// refusalsEvery is how often the log says of somebody that he was refused. A scheduler with a wrong certificate asks for
	// every pod.
	refusalsEvery = 10 * time.Minute
	// maxRefusals is how many different refusals the log takes in that time: strangers must not fill it.
	maxRefusals = 50
)

// refusals tells the administrator of those who may not ask the extender. It is safe for concurrent use.
type refusals struct {
	log   logr.Logger
	clock clock.PassiveClock
	count prometheus.Counter

	mu    sync.Mutex
	since time.Time
	told  map[[2]string]bool
}

func newRefusals(log logr.Logger, clk clock.PassiveClock) *refusals {
	return &refusals{log: log, clock: clk, count: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "assay_extender_refused_total",
		Help: "Questions and TLS handshakes of those who may not ask. The log says who and why.",
	})}
}

// tell counts a refusal, and has the log say so unless it has just done it.
func (r *refusals) tell(from string, why error) {
	r.count.Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.clock.Now(); r.told == nil || now.Sub(r.since) >= refusalsEvery {
		r.since, r.told = now, map[[2]string]bool{}
	}
	key := [2]string{from, why.Error()}
	if r.told[key] || len(r.told) >= maxRefusals {
		return
	}
	r.told[key] = true
	text := "somebody may not ask the extender"
	if len(r.told) == maxRefusals {
		text += "; others are only counted for a while"
	}
	r.log.Info(text, "from", from, "why", why.Error())
}

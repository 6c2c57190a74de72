package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// fence rejects writes of a process whose Lease may have been taken over. A leader that was stopped, with its virtual machine for
// example, may run for some time before it notices: it could read a Node that the next leader has written, and compute labels for it
// from its own older facts. The resourceVersion of a write does not prevent that.
//
// Another replica takes the Lease over when it has not seen it renewed for its duration, so no earlier than that duration after the
// last renewal was sent. A write that is sent before then, and arrives later, has the resourceVersion of a Node that the next leader has
// not written yet.
type fence struct {
	next  http.RoundTripper
	lease *leaseTime
}

// leaseTime knows how long the Lease of this process is valid. It is safe for concurrent use.
type leaseTime struct {
	life time.Duration

	mu      sync.Mutex
	renewed time.Time // when the last successful renewal was sent, by the monotonic clock
	day     time.Time // the same by the time of day
}

// wrap returns a transport with a fence.
func (l *leaseTime) wrap(next http.RoundTripper) http.RoundTripper { return &fence{next, l} }

// renew records that a renewal was sent.
func (l *leaseTime) renew(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed, l.day = sent, sent.Round(0)
}

// valid reports whether no other replica can have the Lease.
func (l *leaseTime) valid(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	// The monotonic clock stands still while the machine is suspended, and the time of day can be set.
	return now.Sub(l.renewed) < l.life && now.Round(0).Sub(l.day) < l.life
}

// leases and events are parts of the paths of Leases and Events. Every replica may write them; the only Lease that a controller writes is
// that of the leader.
const leases, events = "/apis/coordination.k8s.io/", "/events"

// RoundTrip implements http.RoundTripper.
func (f *fence) RoundTrip(r *http.Request) (*http.Response, error) {
	now := time.Now()
	switch {
	case r.Method == http.MethodGet:
		return f.next.RoundTrip(r)
	case strings.Contains(r.URL.Path, leases):
		response, err := f.next.RoundTrip(r)
		if err == nil && response.StatusCode/100 == 2 {
			f.lease.renew(now)
		}
		return response, err
	case r.Method == http.MethodPost || strings.Contains(r.URL.Path, events) || f.lease.valid(now):
		return f.next.RoundTrip(r) // creating an object that exists fails
	}
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return nil, fmt.Errorf("%s %s: this replica has not renewed its Lease for %s, and another one may be the leader", r.Method, r.URL.Path, f.lease.life)
}

// WrappedRoundTripper returns the underlying transport, for client-go.
func (f *fence) WrappedRoundTripper() http.RoundTripper { return f.next }

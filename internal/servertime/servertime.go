// Package servertime returns the ages of objects, although the clocks of a program and of the API server can differ.
package servertime

import (
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Clock reads the time of the API server from the header Date of its responses. It is safe for concurrent use.
type Clock struct {
	own  clock.PassiveClock
	last atomic.Pointer[reading]
}

// reading is what the API server's clock and that of the program said at one moment.
type reading struct{ server, own time.Time }

// New returns a Clock of a program with a clock of its own.
func New(own clock.PassiveClock) *Clock { return &Clock{own: own} }

// RoundTripper returns a transport that notes the time of each response.
func (c *Clock) RoundTripper(next http.RoundTripper) http.RoundTripper { return transport{c, next} }

type transport struct {
	clock *Clock
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	out, err := t.next.RoundTrip(r)
	if err == nil {
		if date, wrong := http.ParseTime(out.Header.Get("Date")); wrong == nil {
			t.clock.last.Store(&reading{server: date, own: t.clock.own.Now()})
		}
	}
	return out, err
}

// WrappedRoundTripper returns the underlying transport, for client-go.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// Age returns how old an object is that the API server created at a time: the lesser age of those by the program's clock and by the API
// server's, and never a negative one. A clock that is wrong makes the object too young, unless both are ahead of the clock that created it.
//
// The clocks can jump later: compute the age of an object once, and add the time since then.
func (c *Clock) Age(created time.Time) time.Duration {
	now := c.own.Now()
	age := now.Sub(created)
	if last := c.last.Load(); last != nil {
		age = min(age, last.server.Add(now.Sub(last.own)).Sub(created))
	}
	return max(0, age)
}

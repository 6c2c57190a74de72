package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type responder func(*http.Request) (*http.Response, error)

func (f responder) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestALeaderWritesOnlyWhileItsLeaseIsValid: after a pause, it may not know that another replica has taken over.
func TestALeaderWritesOnlyWhileItsLeaseIsValid(t *testing.T) {
	const (
		node  = "/api/v1/nodes/n/status"
		lease = "/apis/coordination.k8s.io/v1/namespaces/assay-system/leases/l"
		life  = 15 * time.Second
	)
	synctest.Test(t, func(t *testing.T) {
		code, took := http.StatusOK, time.Duration(0)
		transport := (&leaseTime{life: life}).wrap(responder(func(*http.Request) (*http.Response, error) {
			time.Sleep(took)
			return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(""))}, nil
		}))
		send := func(method, path string) error {
			r, err := http.NewRequestWithContext(t.Context(), method, "https://server"+path, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			response, err := transport.RoundTrip(r)
			if err == nil {
				_ = response.Body.Close()
			}
			return err
		}
		writes := func(when string, want bool) {
			t.Helper()
			for _, method := range []string{http.MethodPatch, http.MethodPut, http.MethodDelete} {
				if err := send(method, node); (err == nil) != want {
					t.Errorf("%s, %s: %v; it must be sent: %t", when, method, err, want)
				}
			}
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				if err := send(method, node); err != nil {
					t.Errorf("%s, %s: %v", when, method, err)
				}
			}
			if err := send(http.MethodPatch, "/apis/events.k8s.io/v1/namespaces/n/events/e"); err != nil {
				t.Errorf("%s, an Event: %v", when, err)
			}
		}
		renews := func() {
			t.Helper()
			if err := send(http.MethodPut, lease); err != nil {
				t.Error(err)
			}
		}
		writes("before it leads", false)
		renews()
		writes("as the leader", true)
		time.Sleep(life - time.Second)
		writes("just before another replica can take over", true)
		code = http.StatusConflict
		renews()
		time.Sleep(time.Second)
		writes("after a renewal that failed", false)
		code, took = http.StatusOK, 5*time.Second
		renews()
		took = 0
		time.Sleep(life - 5*time.Second)
		writes("as long after a slow renewal was sent", false)
		renews()
		writes("after another renewal", true)
	})
}

// TestALeaseEndsWhileTheMachineIsSuspended: its monotonic clock stands still, and the time of day does not.
func TestALeaseEndsWhileTheMachineIsSuspended(t *testing.T) {
	l, now := &leaseTime{life: time.Minute}, time.Now()
	l.renew(now)
	if !l.valid(now) {
		t.Error("a Lease that was just renewed is not valid")
	}
	l.day = l.day.Add(-time.Hour)
	if l.valid(now) {
		t.Error("the Lease is valid an hour later")
	}
}

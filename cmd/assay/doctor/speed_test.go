package doctor

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// TestReportsASlowAPIServer: what is late because of it was reported, and not the cause.
func TestReportsASlowAPIServer(t *testing.T) {
	for name, test := range map[string]struct {
		took []time.Duration
		want string
	}{
		"Fast":      {[]time.Duration{20 * time.Millisecond}, ""},
		"Slow once": {[]time.Duration{3 * time.Second, 20 * time.Millisecond}, ""},
		"Slow":      {[]time.Duration{3 * time.Second, 2 * time.Second, 4 * time.Second}, "the API server took 2s or more for each of 3 small requests"},
	} {
		t.Run(name, func(t *testing.T) {
			e := lists(t, map[string]any{"leases": coordinationv1.LeaseList{}})
			now, calls := time.Now(), 0
			e.now = func() time.Time {
				if calls++; calls%2 == 0 {
					now = now.Add(test.took[calls/2-1])
				}
				return now
			}
			if err := e.speed(t.Context()); err != nil {
				t.Fatal(err)
			}
			if test.want == "" {
				if len(e.found) > 0 {
					t.Errorf("got %v, want no finding", e.found)
				}
				return
			}
			e.shows(t, Error, test.want)
		})
	}
}

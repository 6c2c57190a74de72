package certs

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// TestFailedPassesBackOff: a webhook whose configuration was missing tried again, and logged it, every two seconds for as long as it was.
func TestFailedPassesBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began, at := time.Now(), []time.Duration(nil)
		s := newStore()
		s.down = true
		r := replica(t, s, nil, func(o *Options) {
			o.Clock, o.Life, o.AuthorityLife = clock.RealClock{}, DefaultLife, DefaultAuthorityLife
			o.Report = func(error) {
				if at = append(at, time.Since(began)); len(at) == 8 {
					cancel()
				}
			}
		})
		if err := r.Run(ctx); err != nil {
			t.Fatal(err)
		}
		var pauses []time.Duration
		for i := 1; i < len(at); i++ {
			pauses = append(pauses, (at[i] - at[i-1]).Round(time.Second))
		}
		want := []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute}
		if !slices.Equal(pauses, want) {
			t.Errorf("it tries again after %v, want %v", pauses, want)
		}
	})
}

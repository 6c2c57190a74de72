package flap_test

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/assay-project/assay/controller/flap"
)

func TestLetsGoOnceItIsQuiet(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	c := flap.NewChanges(clock)
	for i := range flap.Limit {
		if c.Of("n").Held("label a", clock.Now()) > 0 {
			t.Fatalf("held after %d changes", i)
		}
		c.Add("n", []string{"label a"})
		clock.SetTime(clock.Now().Add(time.Second))
	}
	wait := c.Of("n").Held("label a", clock.Now())
	if wait != flap.Window-time.Second {
		t.Errorf("held for %s", wait)
	}
	if c.Of("n").Held("label b", clock.Now()) > 0 {
		t.Error("another key is held")
	}
	clock.SetTime(clock.Now().Add(wait))
	if c.Of("n").Held("label a", clock.Now()) > 0 {
		t.Error("held although it is quiet")
	}
}

// TestAKeyIsHeldUntilTheTimeThatItsEventNames: with writes 20 s apart, the first of the three is older than Window long before that time.
func TestAKeyIsHeldUntilTheTimeThatItsEventNames(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	c := flap.NewChanges(clock)
	start := clock.Now()
	for i := range flap.Limit {
		clock.SetTime(start.Add(time.Duration(i) * flap.Window / 3))
		c.Add("n", []string{"label a"})
	}
	until := clock.Now().Add(c.Of("n").Held("label a", clock.Now()))
	c.Add("n", []string{"label b"}) // forgets what is too old
	for clock.SetTime(clock.Now().Add(time.Second)); clock.Now().Before(until); clock.SetTime(clock.Now().Add(time.Second)) {
		if c.Of("n").Held("label a", clock.Now()) == 0 {
			t.Fatalf("free after %s, want %s", clock.Now().Sub(start), until.Sub(start))
		}
		c.Add("n", []string{"label b"})
	}
	if got := c.Of("n").Held("label a", clock.Now()); got != 0 {
		t.Errorf("held for another %s at the time that the Event names", got)
	}
}

func TestCorrectionsPauseLongerAndLonger(t *testing.T) {
	c := flap.Corrections{}
	now := time.Now()
	for i := range flap.CorrectionLimit {
		if !c.Held("label a", "ours").IsZero() {
			t.Fatalf("held after %d corrections", i)
		}
		c.Add("label a", "ours", now)
	}
	for _, minutes := range []int{1, 2, 4, 8, 10, 10} {
		pause := time.Duration(minutes) * time.Minute
		if got := c.Held("label a", "ours").Sub(now); got != pause {
			t.Errorf("a pause of %s, want %s", got, pause)
		}
		now = now.Add(pause)
		c.Expire(now)
		c.Add("label a", "ours", now)
	}
	if !c.Held("label a", "new").IsZero() {
		t.Error("a new value is held")
	}
	c.Expire(now.Add(flap.CorrectionWindow + 1))
	if c.Of("label a", "ours") != 0 {
		t.Error("remembered forever")
	}
}

func TestTenNodesASecondTakeTheirTurn(t *testing.T) {
	var turns flap.Turns
	now := time.Now()
	var last time.Time
	for range 5000 {
		last = turns.Take(now)
	}
	if got := last.Sub(now).Round(time.Second); got != 500*time.Second {
		t.Errorf("5000 nodes take their turns in %s, want 500s", got)
	}
	if later := now.Add(time.Hour); turns.Take(later) != later {
		t.Error("a node has to wait although no other one does")
	}
}

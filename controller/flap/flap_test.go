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

func TestCorrectsThreeTimesAnHour(t *testing.T) {
	c := flap.Corrections{}
	now := time.Now()
	for i := range flap.CorrectionLimit {
		if _, held := c.Held("label a", "ours", now); held {
			t.Fatalf("held after %d corrections", i)
		}
		c.Add("label a", "ours", now)
		now = now.Add(time.Minute)
	}
	wait, held := c.Held("label a", "ours", now)
	if !held || wait != flap.CorrectionWindow-flap.CorrectionLimit*time.Minute {
		t.Errorf("held %v, for %s", held, wait)
	}
	if _, held := c.Held("label a", "new", now); held {
		t.Error("a new value is held")
	}
	if now = now.Add(wait); !c.About("label a", "ours") {
		t.Error("forgotten within the hour")
	}
	if _, held := c.Held("label a", "ours", now); held {
		t.Error("held forever")
	}
	c.Expire(now.Add(time.Hour))
	if c.About("label a", "ours") {
		t.Error("remembered forever")
	}
}

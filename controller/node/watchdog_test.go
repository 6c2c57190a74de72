package node

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestWatchdogBarksAtAPassThatHangs(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w := NewWatchdog(clock)
	end := w.begin("n")
	if err := w.Check(nil); err != nil {
		t.Error(err)
	}
	clock.SetTime(clock.Now().Add(2 * stuckAfter))
	if err := w.Check(nil); err == nil {
		t.Error("silent")
	}
	end()
	if err := w.Check(nil); err != nil {
		t.Error(err)
	}
}

func TestDamperLetsGoOnceItIsQuiet(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	d := newDamper(clock)
	for i := range flapLimit {
		if _, held := d.held("n", "label a"); held {
			t.Fatalf("held after %d changes", i)
		}
		d.changed("n", []string{"label a"})
		clock.SetTime(clock.Now().Add(time.Second))
	}
	wait, held := d.held("n", "label a")
	if !held || wait != flapWindow-time.Second {
		t.Errorf("held %v, for %s", held, wait)
	}
	if _, held := d.held("n", "label b"); held {
		t.Error("another key is held")
	}
	clock.SetTime(clock.Now().Add(wait))
	if _, held := d.held("n", "label a"); held {
		t.Error("held although it is quiet")
	}
}

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

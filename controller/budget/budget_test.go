package budget_test

import (
	"fmt"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/assay-project/assay/controller/budget"
)

func newBreaker(b budget.Budget) (*budget.Breaker, *clocktesting.FakePassiveClock) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	return budget.NewBreaker(b, clock), clock
}

func TestAllowsTheLargerOfNumberAndShare(t *testing.T) {
	for name, tc := range map[string]struct{ nodes, want int }{"Few": {20, 10}, "Many": {1000, 50}} {
		t.Run(name, func(t *testing.T) {
			b, _ := newBreaker(budget.Default)
			got := 0
			for i := range tc.nodes {
				if ok, _ := b.Allow(fmt.Sprint(i), tc.nodes); ok {
					got++
				}
			}
			if got != tc.want {
				t.Errorf("%d of %d nodes may lose something, want %d", got, tc.nodes, tc.want)
			}
		})
	}
}

func TestHoldsAndLetsGo(t *testing.T) {
	b, clock := newBreaker(budget.Budget{Nodes: 1, Window: 10 * time.Minute, Hold: 5 * time.Minute})
	if ok, _ := b.Allow("a", 1); !ok {
		t.Fatal("the first is held")
	}
	if ok, _ := b.Allow("a", 1); !ok {
		t.Error("a node that counts already is held")
	}
	ok, again := b.Allow("b", 1)
	if ok || again != 5*time.Minute {
		t.Fatalf("the second: %v, again in %s", ok, again)
	}
	clock.SetTime(clock.Now().Add(4 * time.Minute))
	if ok, again := b.Allow("b", 1); ok || again != time.Minute {
		t.Errorf("after four minutes: %v, again in %s", ok, again)
	}
	if held, since := b.Held(); held != 1 || !since.Equal(time.Unix(1000, 0)) {
		t.Errorf("%d held since %s", held, since)
	}
	clock.SetTime(clock.Now().Add(time.Minute))
	if ok, _ := b.Allow("b", 1); !ok {
		t.Error("a wish that persists is held still")
	}
}

func TestAWishThatIsWithdrawnStartsAnew(t *testing.T) {
	b, clock := newBreaker(budget.Budget{Window: time.Hour, Hold: time.Minute})
	b.Allow("a", 1)
	clock.SetTime(clock.Now().Add(time.Minute))
	b.Withdraw("a")
	if ok, _ := b.Allow("a", 1); ok {
		t.Error("it was not wished for all the time")
	}
}

// A key whose removal was held was wanted again, and the removal of another key of the node inherited its hold time (found by seed 972
// of the simulator).
func TestAnotherKeyOfTheNodeHasItsOwnHoldTime(t *testing.T) {
	b, clock := newBreaker(budget.Budget{Window: time.Hour, Hold: 5 * time.Minute})
	b.Allow("a", 1, "first")
	clock.SetTime(clock.Now().Add(time.Minute))
	b.Allow("a", 1, "second")
	clock.SetTime(clock.Now().Add(4 * time.Minute))
	if ok, again := b.Allow("a", 1, "second"); ok || again != time.Minute {
		t.Errorf("after four minutes: %t, again in %s", ok, again)
	}
	if held, since := b.Held(); held != 1 || !since.Equal(time.Unix(1060, 0)) {
		t.Errorf("%d held since %s", held, since)
	}
	clock.SetTime(clock.Now().Add(time.Minute))
	if ok, _ := b.Allow("a", 1, "second", "third"); !ok {
		t.Error("a wish that persists is held still")
	}
}

func TestForgetsAfterTheWindow(t *testing.T) {
	b, clock := newBreaker(budget.Budget{Nodes: 1, Window: time.Minute, Hold: time.Hour})
	b.Allow("a", 1)
	clock.SetTime(clock.Now().Add(time.Minute))
	if ok, _ := b.Allow("b", 1); ok {
		t.Error("a node that lost keys within the window does not count")
	}
	b.Withdraw("b")
	clock.SetTime(clock.Now().Add(time.Second))
	if ok, _ := b.Allow("b", 1); !ok {
		t.Error("what is long ago counts still")
	}
}

func TestConfirmLetsEverythingGo(t *testing.T) {
	b, _ := newBreaker(budget.Budget{Nodes: 0, Window: time.Hour, Hold: time.Hour})
	b.Allow("a", 1)
	b.Allow("b", 1)
	if got := b.Confirm(); len(got) != 2 {
		t.Errorf("confirmed for %v", got)
	}
	for _, node := range []string{"a", "b"} {
		if ok, _ := b.Allow(node, 1); !ok {
			t.Errorf("%s is held still", node)
		}
	}
	if ok, _ := b.Allow("c", 1); ok {
		t.Error("what comes later is let go too")
	}
}

func TestWhatIsNotKnownIsHeldHoweverFewNodesAreConcerned(t *testing.T) {
	b, clock := newBreaker(budget.Budget{Nodes: 10, Window: time.Hour, Hold: time.Minute})
	if ok, again := b.AllowUnattributed("a"); ok || again != time.Minute {
		t.Fatalf("the first time: %v, again in %s", ok, again)
	}
	clock.SetTime(clock.Now().Add(time.Minute))
	if ok, _ := b.AllowUnattributed("a"); !ok {
		t.Error("a wish that persists is held still")
	}
	b.AllowUnattributed("b")
	b.Confirm()
	if ok, _ := b.AllowUnattributed("b"); !ok {
		t.Error("held although an administrator has confirmed it")
	}
}

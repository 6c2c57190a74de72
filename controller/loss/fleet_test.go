package loss_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/controller/loss"
)

const (
	fleetNodes = 200
	fleetGrace = 5 * time.Minute
	fleetEvery = 30 * time.Second
	fleetMost  = 10 // a twentieth
)

// fleet is a model of nodes whose links fail and come back, of the controllers that see it, and of what may happen then.
type fleet struct {
	t       *testing.T
	clock   *clocktesting.FakePassiveClock
	tracker *loss.Tracker
	gate    *budget.Gate

	down    map[string]time.Time // since when
	tainted map[string]bool
	last    time.Time // when a node was tainted
	total   int
}

func newFleet(t *testing.T) *fleet {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	f := &fleet{t: t, clock: clock, down: map[string]time.Time{}, tainted: map[string]bool{}}
	f.gate = budget.NewGate(budget.Evictions{Every: fleetEvery, Share: float64(fleetMost) / fleetNodes}, clock)
	f.restart()
	return f
}

// restart replaces the controller, which then checks all nodes.
func (f *fleet) restart() {
	f.tracker = loss.NewTracker(f.clock)
	for i := range fleetNodes {
		f.check(strconv.Itoa(i))
	}
	f.tracker.SetSynced()
}

func (f *fleet) check(node string) {
	if _, down := f.down[node]; down {
		f.tracker.Set(node, []loss.Loss{{Object: "link", Value: "link", Grace: fleetGrace, Had: true}})
	} else {
		f.tracker.Set(node, nil)
	}
}

func (f *fleet) set(node string, up bool) {
	if _, down := f.down[node]; down == !up {
		return
	}
	if f.down[node] = f.clock.Now(); up {
		delete(f.down, node)
	}
	f.check(node)
}

// pass does what the node controller does with each node, and checks it.
func (f *fleet) pass() {
	f.t.Helper()
	waiting, _ := f.tracker.Waiting()
	for _, node := range waiting {
		f.check(node)
	}
	now := f.clock.Now()
	for i := range fleetNodes {
		node := strconv.Itoa(i)
		v := f.tracker.Of(node)
		if f.tainted[node] && len(v.Lost) == 0 {
			delete(f.tainted, node)
		}
		if f.tainted[node] || len(v.Due) == 0 {
			continue
		}
		ok, _ := f.gate.Allow(node, "", f.look)
		f.gate.Passed(node)
		if !ok {
			continue
		}
		since, down := f.down[node]
		switch {
		case !down || now.Sub(since) < fleetGrace:
			f.t.Errorf("node %s is tainted after it lacks the link for %s", node, now.Sub(since))
		case f.total > 0 && now.Sub(f.last) < fleetEvery:
			f.t.Errorf("two nodes are tainted within %s", now.Sub(f.last))
		}
		f.tainted[node], f.last = true, now
		f.total++
	}
	if len(f.tainted) > fleetMost {
		f.t.Errorf("%d nodes are tainted at once", len(f.tainted))
	}
	for node := range f.tainted {
		if _, down := f.down[node]; !down {
			f.t.Errorf("node %s is tainted and has the link", node)
		}
	}
}

func (f *fleet) look() budget.Fleet {
	out := budget.Fleet{Nodes: fleetNodes, Zones: map[string]string{}}
	for node := range f.tainted {
		out.Zones[node] = ""
	}
	return out
}

func (f *fleet) wait(d time.Duration) {
	for end := f.clock.Now().Add(d); f.clock.Now().Before(end); {
		f.clock.SetTime(f.clock.Now().Add(5 * time.Second))
		f.pass()
	}
}

// TestALossOfTheWholeFleetIsPaced: 200 nodes lose a feature at once.
func TestALossOfTheWholeFleetIsPaced(t *testing.T) {
	f := newFleet(t)
	for i := range fleetNodes {
		f.set(strconv.Itoa(i), false)
	}
	f.wait(fleetGrace - 5*time.Second)
	if f.total != 0 {
		t.Errorf("%d nodes are tainted within the grace", f.total)
	}
	f.wait(3 * fleetEvery)
	if f.total < 2 || f.total > 4 {
		t.Errorf("%d nodes are tainted after three intervals", f.total)
	}
	f.wait(time.Hour)
	if f.total != fleetMost {
		t.Errorf("%d nodes are tainted after an hour, want %d", f.total, fleetMost)
	}
	for i := range fleetNodes {
		f.set(strconv.Itoa(i), true)
	}
	f.wait(time.Hour)
	if len(f.tainted) > 0 || f.total != fleetMost {
		t.Errorf("%d nodes are tainted although they have the feature, %d were", len(f.tainted), f.total)
	}
}

// TestAFlappingLinkMovesNoPod: links that fail for less than the grace, for hours.
func TestAFlappingLinkMovesNoPod(t *testing.T) {
	f := newFleet(t)
	for range 12 {
		for i := range fleetNodes {
			f.set(strconv.Itoa(i), false)
		}
		f.wait(fleetGrace - 5*time.Second)
		for i := range fleetNodes {
			f.set(strconv.Itoa(i), true)
		}
		f.wait(5 * time.Second)
	}
	if f.total != 0 {
		t.Errorf("%d nodes were tainted", f.total)
	}
}

// TestRandomLossesAndRestarts lets links fail and come back, and the controller restart, in random order: pass checks each step.
func TestRandomLossesAndRestarts(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random, f := rand.New(rand.NewPCG(seed, 0)), newFleet(t)
			for range 100 {
				switch random.IntN(10) {
				case 0:
					f.restart()
				case 1, 2:
					f.wait(time.Duration(random.Int64N(int64(2 * fleetGrace))))
				default:
					for range random.IntN(30) {
						f.set(strconv.Itoa(random.IntN(fleetNodes)), random.IntN(2) == 0)
					}
				}
			}
			if f.total == 0 {
				t.Error("no node was ever tainted: the test shows nothing")
			}
		})
	}
}

package loss

import (
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// lacks is a step of a test: after a time, a node lacks what these objects require.
type lacks struct {
	after   time.Duration
	objects []string
	// due and lost are the objects of the verdict afterwards, notified says whether OnChange is called.
	due, lost []string
	notified  bool
}

const grace = 5 * time.Minute

func TestALossIsDueAfterItsGrace(t *testing.T) {
	a, b, ab := []string{"a"}, []string{"b"}, []string{"a", "b"}
	for name, steps := range map[string][]lacks{
		"ForGood": {
			{objects: a, lost: a, notified: true}, {after: grace - 1, objects: a, lost: a}, {after: 1, objects: a, due: a, lost: a, notified: true},
			{after: time.Hour, objects: a, due: a, lost: a},
		},
		"BackInTime":     {{objects: a, lost: a, notified: true}, {after: grace - 1, notified: true}, {after: grace}},
		"BackAfterwards": {{objects: a, lost: a, notified: true}, {after: grace, objects: a, due: a, lost: a, notified: true}, {after: 1, notified: true}},
		// The first check after the end of the grace finds the features.
		"BackAtTheEnd": {{objects: a, lost: a, notified: true}, {after: grace, notified: true}},
		"Flaps": {
			{objects: a, lost: a, notified: true}, {after: grace - 1, notified: true}, {after: 1, objects: a, lost: a, notified: true},
			{after: grace - 1, objects: a, lost: a}, {after: 1, objects: a, due: a, lost: a, notified: true},
		},
		"EachObjectForItself": {
			{objects: a, lost: a, notified: true}, {after: grace / 2, objects: ab, lost: ab, notified: true},
			{after: grace / 2, objects: ab, due: a, lost: ab, notified: true}, {after: grace / 2, objects: b, due: b, lost: b, notified: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
			tracker, notified := NewTracker(clock), false
			tracker.SetSynced()
			tracker.OnChange(func(string) { notified = true })
			for i, s := range steps {
				clock.SetTime(clock.Now().Add(s.after))
				notified = false
				tracker.Set("n", losses(s.objects))
				v := tracker.Of("n")
				if due, lost := objects(v.Due), objects(v.Lost); !slices.Equal(due, s.due) || !slices.Equal(lost, s.lost) || notified != s.notified || v.Unknown {
					t.Errorf("step %d: due %q, lost %q, notified %t, unknown %t; want due %q, lost %q, notified %t", i, due, lost, notified, v.Unknown, s.due, s.lost, s.notified)
				}
			}
		})
	}
}

// TestALossOfWhatANodeNeverHadKeepsATaintAndAddsNone: it is in Lost, never in Due, and no one waits for its end.
func TestALossOfWhatANodeNeverHadKeepsATaintAndAddsNone(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	tracker := NewTracker(clock)
	tracker.SetSynced()
	for range 2 {
		tracker.Set("n", []Loss{{Object: "never", Value: "never", Grace: grace}})
		if v := tracker.Of("n"); len(v.Due) > 0 || !slices.Equal(objects(v.Lost), []string{"never"}) {
			t.Errorf("due %q, lost %q", objects(v.Due), objects(v.Lost))
		}
		clock.SetTime(clock.Now().Add(grace))
		if nodes, next := tracker.Waiting(); len(nodes) > 0 || next != 0 {
			t.Errorf("waiting for %q, %s", nodes, next)
		}
	}
}

// TestARestartNeverShortensAGrace: the new process knows nothing until it has checked all nodes.
func TestARestartNeverShortensAGrace(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	tracker := NewTracker(clock)
	if v := tracker.Of("n"); !v.Unknown {
		t.Errorf("before the nodes are checked: %+v", v)
	}
	tracker.Set("n", losses([]string{"a"}))
	tracker.SetSynced()
	if v := tracker.Of("n"); v.Unknown || len(v.Due) > 0 || len(v.Lost) != 1 {
		t.Errorf("after the first check: %+v", v)
	}
	if v := tracker.Of("other"); v.Unknown || len(v.Lost) > 0 {
		t.Errorf("a node that lacks nothing: %+v", v)
	}
}

// TestAGraceStartsAgainAfterTheFeaturesWereUnknown: the worker's NodeFeature was deleted.
func TestAGraceStartsAgainAfterTheFeaturesWereUnknown(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	tracker := NewTracker(clock)
	tracker.SetSynced()
	tracker.Set("n", losses([]string{"a"}))
	clock.SetTime(clock.Now().Add(grace))
	tracker.SetUnknown("n")
	if v := tracker.Of("n"); !v.Unknown || len(v.Due) > 0 {
		t.Errorf("while they are unknown: %+v", v)
	}
	tracker.Set("n", losses([]string{"a"}))
	if v := tracker.Of("n"); v.Unknown || len(v.Due) > 0 || len(v.Lost) != 1 {
		t.Errorf("when they are known again: %+v", v)
	}
}

func TestWaitingNamesTheNodesToCheck(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	tracker := NewTracker(clock)
	tracker.SetSynced()
	if nodes, next := tracker.Waiting(); len(nodes) > 0 || next != 0 {
		t.Errorf("without losses: %q, %s", nodes, next)
	}
	tracker.Set("b", losses([]string{"a"}))
	clock.SetTime(clock.Now().Add(time.Minute))
	tracker.Set("a", losses([]string{"a"}))
	if nodes, next := tracker.Waiting(); len(nodes) > 0 || next != grace-time.Minute {
		t.Errorf("in their grace: %q, %s", nodes, next)
	}
	clock.SetTime(clock.Now().Add(grace - time.Minute))
	if nodes, next := tracker.Waiting(); !slices.Equal(nodes, []string{"b"}) || next != time.Minute {
		t.Errorf("after the first grace: %q, %s", nodes, next)
	}
	tracker.Set("b", losses([]string{"a"}))
	if nodes, next := tracker.Waiting(); len(nodes) > 0 || next != time.Minute {
		t.Errorf("after the check: %q, %s", nodes, next)
	}
}

func losses(names []string) (out []Loss) {
	for _, name := range names {
		out = append(out, Loss{Object: name, Value: name, Grace: grace, Had: true})
	}
	return out
}

func objects(list []Loss) (out []string) {
	for _, l := range list {
		out = append(out, l.Object)
	}
	return out
}

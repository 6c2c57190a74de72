package compile

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/assay-project/assay/rules/requirements"
)

// fleet is the labels that a node which meets all requests gets, and how often they change.
type fleet struct {
	*places
	clock  time.Time
	labels map[string]identity
	writes int
}

func newFleet(limits RequestLimits) *fleet {
	f := &fleet{places: newPlaces(limits), clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), labels: map[string]identity{}}
	f.now = func() time.Time { return f.clock }
	return f
}

// settle decides, and writes the node.
func (f *fleet) settle() {
	f.decide()
	next := map[string]identity{}
	for rule, place := range f.taken {
		if place.until.IsZero() {
			next[rule] = place.of
		}
	}
	if !maps.Equal(f.labels, next) {
		f.labels, f.writes = next, f.writes+1
	}
}

func (f *fleet) request(namespace, name, uid, required string) candidate {
	var key requirements.Key
	copy(key[:], required)
	return candidate{
		rule: requirements.RuleName(namespace, name), of: identity{types.UID(uid), key},
		meta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.Time{Time: f.clock}},
	}
}

// TestAnHourOfLoopingWritesEachNodeTwelveTimes: a tenant creates, edits, deletes and switches requests every few seconds.
func TestAnHourOfLoopingWritesEachNodeTwelveTimes(t *testing.T) {
	rule := requirements.RuleName("a", "r")
	for name, loop := range map[string]func(f *fleet, i int){
		"create and delete": func(f *fleet, i int) {
			f.put(f.request("a", "r", fmt.Sprint(i), "x"))
			f.settle()
			f.clock = f.clock.Add(4 * time.Second)
			f.drop(rule)
		},
		"edit": func(f *fleet, i int) { f.put(f.request("a", "r", "1", fmt.Sprint(i%2))) },
		"Never and Auto": func(f *fleet, i int) {
			if f.drop(rule); i%2 == 0 {
				f.put(f.request("a", "r", "1", "x"))
			}
		},
		"new names": func(f *fleet, i int) {
			f.put(f.request("a", fmt.Sprint("r", i), fmt.Sprint(i), "x"))
			f.drop(requirements.RuleName("a", fmt.Sprint("r", i-1)))
		},
		"an older one again and again": func(f *fleet, i int) {
			for n := range 5 {
				f.put(f.request("a", fmt.Sprint("young", n), fmt.Sprint(n), "x"))
			}
			old := f.request("a", "old", "old", "x")
			old.meta.CreationTimestamp.Time = time.Unix(0, 0)
			if f.drop(old.rule); i%2 == 0 {
				f.put(old)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(RequestLimits{Total: 50, PerNamespace: 5})
			f.loaded = true
			end := f.clock.Add(time.Hour)
			for i := 0; f.clock.Before(end); i++ {
				loop(f, i)
				f.settle()
				f.clock = f.clock.Add(5 * time.Second)
			}
			if f.writes > 12 {
				t.Errorf("the node was written %d times", f.writes)
			}
			t.Logf("%d writes", f.writes)
			// Another namespace is not affected, and this one gets labels again.
			f.put(f.request("b", "r", "b", "x"))
			f.settle()
			if _, ok := f.labels[requirements.RuleName("b", "r")]; !ok {
				t.Error("the request of another namespace is not materialized")
			}
			f.clock = f.clock.Add(max(f.wait(), time.Hour))
			f.put(f.request("a", "last", "last", "x"))
			f.settle()
			if len(f.labels) < 2 {
				t.Errorf("an hour later only %v are materialized", f.labels)
			}
		})
	}
}

// TestRequestsThatWereMaterializedKeepTheirLabels: a controller that starts does not count them as new.
func TestRequestsThatWereMaterializedKeepTheirLabels(t *testing.T) {
	f := newFleet(RequestLimits{Total: 20})
	for i := range 9 {
		c := f.request("a", fmt.Sprint("r", i), fmt.Sprint(i), "x")
		c.labeled = f.clock.Add(-time.Minute)
		f.put(c)
	}
	f.loaded = true
	f.put(f.request("a", "new", "new", "x"))
	f.settle()
	if len(f.labels) != 9 {
		t.Errorf("%d requests are materialized, want those 9 that were", len(f.labels))
	}
	if r := f.refusal(requirements.RuleName("a", "new")); r == nil || r.Reason != ReasonTooOften {
		t.Errorf("the new one is %+v", r)
	}
	if f.wait() != time.Hour-time.Minute {
		t.Errorf("it waits %s", f.wait())
	}
	f.clock = f.clock.Add(f.wait())
	if f.settle(); len(f.labels) != 10 {
		t.Errorf("%d requests are materialized in the end", len(f.labels))
	}
}

func TestTheOldestRequestsHaveThePlaces(t *testing.T) {
	f := newFleet(RequestLimits{Total: 3, PerNamespace: 2})
	for _, name := range []string{"a/1", "a/2", "a/3", "b/1", "c/1"} {
		f.put(f.request(name[:1], name[2:], name, "x"))
		f.clock = f.clock.Add(time.Second)
	}
	f.settle()
	want := func(names ...string) {
		t.Helper()
		var rules []string
		for _, name := range names {
			rules = append(rules, requirements.RuleName(name[:1], name[2:]))
		}
		if diff := cmp.Diff(rules, slices.Sorted(maps.Keys(f.labels))); diff != "" {
			t.Error(diff)
		}
	}
	want("a/1", "a/2", "b/1")
	f.drain()
	f.drop(requirements.RuleName("a", "1"))
	f.settle()
	want("a/2", "a/3", "b/1")
	if diff := cmp.Diff([]string{requirements.RuleName("a", "1"), requirements.RuleName("a", "3")}, f.drain()); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	if r := f.refusal(requirements.RuleName("c", "1")); r == nil || r.Reason != ReasonTooManyRequests {
		t.Errorf("the youngest is %+v", r)
	}
}

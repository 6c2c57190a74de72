package discovery

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/host"
)

// TestSlowSourceIsTakenWhenItReturns: a source always takes five seconds, so that no discovery that waits for two ever gets a result.
func TestSlowSourceIsTakenWhenItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := finds("a", "l", "1")
		find, runs := slow.find, 0
		slow.find = func(ctx context.Context) (Result, error) { runs++; time.Sleep(5 * time.Second); return find(ctx) }
		r := NewRunner(host.Host{}, []Source{slow, finds("b", "m", "1"), deriver{&fake{name: "custom"}}}, Everything)
		first := r.Run(t.Context())
		if diff := cmp.Diff([]string{"a"}, first.Missing); diff != "" || first.Labels["m"] == "" || first.Labels["l"] != "" {
			t.Fatalf("missing sources %s, labels %v", diff, first.Labels)
		}
		<-r.Returned()
		second := r.Run(t.Context(), "none")
		if !second.Changed || len(second.Missing) != 0 || len(second.Problems) != 0 || second.Labels["l"] != "1" || second.Labels["saw-a.flag"] == "" || runs != 1 {
			t.Errorf("changed %t, missing %q, problems %v, labels %v, %d runs", second.Changed, second.Missing, second.Problems, second.Labels, runs)
		}
		time.Sleep(time.Minute)
		if runs != 1 {
			t.Errorf("%d runs, and nothing asked for one", runs)
		}
	})
}

// TestEventDuringASlowRunIsNotLost: a device arrives while its source is waiting for another one.
func TestEventDuringASlowRunIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var value atomic.Value
		value.Store("before")
		src := &fake{name: "a", find: func(context.Context) (Result, error) {
			r := NewResult()
			r.Labels["l"] = value.Load().(string)
			if r.Labels["l"] == "before" {
				time.Sleep(5 * time.Second)
			}
			return r, nil
		}}
		r := NewRunner(host.Host{}, []Source{src}, Everything)
		r.Run(t.Context())
		value.Store("after")
		if report := r.Run(t.Context(), "a"); len(report.Problems) != 1 || !errors.Is(report.Problems[0].Err, errBusy) {
			t.Errorf("problems %v, want one", report.Problems)
		}
		<-r.Returned()
		if report := r.Run(t.Context(), "none"); report.Labels["l"] != "after" {
			t.Errorf("labels %v, want those of after the event", report.Labels)
		}
	})
}

func TestReadsThatFailAtTheDeadlineAreNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &fake{name: "a", find: func(ctx context.Context) (Result, error) { <-ctx.Done(); return NewResult(), ctx.Err() }}
		r := NewRunner(host.Host{}, []Source{src}, Everything)
		r.Run(t.Context())
		<-r.Returned()
		if report := r.Run(t.Context(), "none"); !slices.Equal(report.Missing, []string{"a"}) || len(report.Problems) != 1 {
			t.Errorf("missing %q, problems %v", report.Missing, report.Problems)
		}
	})
}

func TestErrorIsAnAnswer(t *testing.T) {
	src := &fake{name: "a", find: func(context.Context) (Result, error) { return Result{}, errors.New("no") }}
	report := Run(t.Context(), host.Host{}, []Source{src, finds("b", "l", "1")})
	if len(report.Missing) != 0 || !slices.Equal(report.Unfound, []string{"a"}) {
		t.Errorf("missing %q, without a result %q", report.Missing, report.Unfound)
	}
}

// TestProblemOfASlowSourceStaysWhileOthersRun: a discovery of another source does not resolve it.
func TestProblemOfASlowSourceStaysWhileOthersRun(t *testing.T) {
	src := &fake{name: "a", find: func(context.Context) (Result, error) { return Result{}, errors.New("no") }}
	r := NewRunner(host.Host{}, []Source{src, finds("b", "l", "1")}, Everything)
	r.Run(t.Context())
	if report := r.Run(t.Context(), "b"); len(report.Problems) != 1 {
		t.Errorf("problems %v, want that of the first source", report.Problems)
	}
}

// unreadIn returns the sources that a report names as not read.
func unreadIn(r *Report) []string {
	return slices.Sorted(maps.Keys(r.Features.Flags[nfdv1alpha1.UnreadFeature].Elements))
}

// TestAReportNamesTheSourcesThatWereNotRead: they do not answer or fail, and nothing is known that an earlier process found.
func TestAReportNamesTheSourcesThatWereNotRead(t *testing.T) {
	works := false
	sometimes := &fake{name: "a", find: func(context.Context) (Result, error) {
		if !works {
			return Result{}, errors.New("no")
		}
		return NewResult(), nil
	}}
	list := []Source{sometimes, finds("b", "l", "1"), deriver{&fake{name: "custom"}}}
	r := NewRunner(host.Host{}, list, Everything)
	if diff := cmp.Diff([]string{"a", "custom"}, unreadIn(r.Run(t.Context()))); diff != "" {
		t.Errorf("a source fails: %s", diff)
	}
	before := NewResult()
	before.Flags("b.flag", []string{"F"})
	before.Flags(nfdv1alpha1.UnreadFeature, []string{"a", "custom"})
	r.Restore(&before.Features, nil) // of a process that has not read it either
	if diff := cmp.Diff([]string{"a", "custom"}, unreadIn(r.Run(t.Context(), "none"))); diff != "" {
		t.Errorf("an earlier process has not read it: %s", diff)
	}
	before.Flags("a.flag", []string{"F"})
	r.Restore(&before.Features, nil)
	if got := unreadIn(r.Run(t.Context(), "none")); got != nil {
		t.Errorf("an earlier process has read it: %q", got)
	}
	again := NewRunner(host.Host{}, list, Everything)
	again.Run(t.Context())
	works = true
	if got := unreadIn(again.Run(t.Context(), "a")); got != nil {
		t.Errorf("it has answered that there is nothing: %q", got)
	}
}

package discovery

import (
	"context"
	"errors"
	"testing"

	"github.com/assay-project/assay/discovery/host"
)

// glancer is a source controlled by a test; it counts its discoveries.
type glancer struct {
	seen, found string
	blind       bool
	err         error
	runs        int
}

func (*glancer) Name() string { return "g" }

func (g *glancer) Glance(context.Context, host.Host) (Result, bool) {
	r := NewResult()
	r.Attributes("g", map[string]string{"seen": g.seen})
	return r, !g.blind
}

func (g *glancer) Discover(context.Context, host.Host) (Result, error) {
	g.runs++
	r := NewResult()
	r.Labels["found"] = g.found
	return r, g.err
}

func TestPollLeavesOutASourceThatSeesNothingNew(t *testing.T) {
	g := &glancer{seen: "1", found: "1"}
	r := NewRunner(host.Host{}, []Source{g}, Everything)
	r.Run(t.Context())
	for range 3 {
		if report := r.Poll(t.Context()); g.runs != 1 || report.Labels["found"] != "1" {
			t.Fatalf("%d discoveries, labels %v", g.runs, report.Labels)
		}
	}
	g.seen, g.found = "2", "2"
	if report := r.Poll(t.Context()); !report.Changed || report.Labels["found"] != "2" {
		t.Errorf("labels %v after a change", report.Labels)
	}
	if r.Run(t.Context()); g.runs != 3 {
		t.Errorf("%d discoveries, want one more when asked for one", g.runs)
	}
}

func TestPollSeesAChangeThatWasUndoneAfterAnEvent(t *testing.T) {
	g := &glancer{seen: "1", found: "1"}
	r := NewRunner(host.Host{}, []Source{g}, Everything)
	r.Run(t.Context())
	g.seen, g.found = "2", "2"
	r.Run(t.Context(), "g")
	g.seen, g.found = "1", "1"
	if report := r.Poll(t.Context()); report.Labels["found"] != "1" {
		t.Errorf("labels %v, want those of before", report.Labels)
	}
}

func TestPollRunsASourceThatFailedOrCannotTell(t *testing.T) {
	g := &glancer{err: errors.New("no")}
	r := NewRunner(host.Host{}, []Source{g}, Everything)
	r.Run(t.Context())
	if r.Poll(t.Context()); g.runs != 2 {
		t.Errorf("%d discoveries of one that failed, want 2", g.runs)
	}
	g.err, g.blind = nil, true
	r.Poll(t.Context())
	if r.Poll(t.Context()); g.runs != 4 {
		t.Errorf("%d discoveries of one that cannot tell, want 4", g.runs)
	}
}

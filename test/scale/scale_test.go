//go:build linux

package main

import (
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// TestFleet runs all phases with a small fleet, and checks the number of requests, which does not depend on the machine.
func TestFleet(t *testing.T) {
	c := testkit.PrivateCluster(t, cluster.Options{FakeNodes: true, Core: true})
	manager := filepath.Join(t.TempDir(), "assay-manager")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", manager, "../../cmd/assay-manager").CombinedOutput(); err != nil {
		t.Fatalf("build assay-manager: %v\n%s", err, out)
	}
	const nodes, changes, shapes = 15, 3, 5 // request counts do not depend on it
	r, err := measure(t.Context(), c, options{
		nodes: nodes, changes: changes, shapes: shapes, idle: 2 * time.Second, parallel: 8, manager: manager, progress: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := r.table(&table); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())

	phases := map[string]*phaseResult{}
	created := 0
	for _, p := range r.Phases {
		phases[p.Name] = p
		created += p.Requests["POST nodeshapes"]
	}
	if created != shapes || r.Shapes != shapes || r.ShapeBytes > 16<<10 {
		t.Errorf("%d NodeShapes were created and there are %d, the largest of %d bytes; want %d", created, r.Shapes, r.ShapeBytes, shapes)
	}
	for _, want := range []struct {
		phase, request string
		count          int
	}{
		{phasePublish, "POST nodefeatures", nodes},
		{phasePublish, "PATCH nodefeatures", 0},
		{phaseLabel, "PATCH nodes", 0},
		{phaseIdle, "GET nodefeatures", 0},
		{phaseIdle, "LIST nodefeatures", 0},
		{phaseIdle, "PATCH nodefeatures", 0},
		{phaseIdle, "PATCH nodes/status", 0},
		{phaseChange, "PATCH nodefeatures", changes},
		{phaseChange, "GET nodefeatures", 0},
		{phaseChange, "PATCH nodes/status", changes},
		{phaseRuleNone, "GET nodes", 0},
		{phaseRuleNone, "PATCH nodes/status", 0},
		{phaseRuleAll, "PATCH nodes/status", nodes},
		{phaseController, "PATCH nodes/status", 0},
		{phaseController, "PATCH nodes", 0},
		{phaseWorkers, "GET nodefeatures", nodes},
		{phaseWorkers, "PATCH nodefeatures", 0},
		{phaseWorkers, "POST nodefeatures", 0},
		{phasePods, "PATCH nodefeatures", nodes},
		{phaseReplaced, "POST nodefeatures", 1},
	} {
		p := phases[want.phase]
		if p == nil {
			t.Fatalf("no phase %q", want.phase)
		}
		if got := p.Requests[want.request]; got != want.count {
			t.Errorf("%s: %d requests %s, want %d", want.phase, got, want.request, want.count)
		}
	}
}

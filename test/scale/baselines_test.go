//go:build linux

package main

import (
	"io"
	"strings"
	"testing"

	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// TestSevenDeviants plants deviants in a small fleet. Each phase fails if the status of the baseline does not become exactly what it must be.
func TestSevenDeviants(t *testing.T) {
	c := testkit.PrivateCluster(t, cluster.Options{FakeNodes: true, Core: true})
	r, err := measure(t.Context(), c, options{
		nodes: minBaselineNodes, rules: 10, shapes: baselineTypes, baselines: true, parallel: 8, manager: testkit.Program(t, "assay-manager"), progress: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := r.table(&table); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())
}

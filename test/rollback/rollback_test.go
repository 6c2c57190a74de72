//go:build linux

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// TestRollBackAndForth replaces programs by the same version: the short form of `make test-rollback`, which does not build an older version.
func TestRollBackAndForth(t *testing.T) {
	testkit.Program(t, "assay-worker")
	bin := filepath.Dir(testkit.Program(t, "assay-manager"))
	var out strings.Builder
	c := testkit.PrivateCluster(t, cluster.Options{FakeNodes: true, Core: true})
	const few = 3
	err := options{from: bin, to: bin, nodes: few, out: &out}.run(t.Context(), c, t.TempDir())
	t.Log(out.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, c.Log(controller))
	}
}

func TestAKeyThatWasMissingIsReported(t *testing.T) {
	first, second := map[string]string{"label a": "1", "label b": "1"}, map[string]string{"label b": "1"}
	all := map[string]map[string]string{"n": first}
	h := &history{all: map[string][]map[string]string{"n": {second, first, first}}, older: all, newer: all}
	var out strings.Builder
	if err := h.judge(&out); err != nil {
		t.Errorf("a key that came once, and stayed: %v", err)
	}
	h.all["n"] = []map[string]string{first, second, first}
	if err := h.judge(&out); err == nil || !strings.Contains(err.Error(), "n: label a was missing in version 2 of 3") {
		t.Errorf("a key that was missing for a time: %v", err)
	}
}

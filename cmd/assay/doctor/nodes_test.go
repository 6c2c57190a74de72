package doctor

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/clustertest"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
	"github.com/assay-project/assay/settings"
)

func lacks(node string, kind keys.Kind, key, wanted string) difference {
	return difference{node, plan.Step{Op: plan.Add, Kind: kind, Key: key, New: wanted}}
}

// TestNodesWithOneCauseAreOneFinding: 20 Nodes that lack the same label were five findings and "15 more Nodes differ".
func TestNodesWithOneCauseAreOneFinding(t *testing.T) {
	var list []difference
	for i := range 20 {
		list = append(list, lacks(fmt.Sprintf("n%02d", i), keys.Label, "example.com/a", "b"))
	}
	list = append(list, lacks("other", keys.Label, "example.com/c", "d"))
	found := describeDifferences("nodes", list)
	const first = `20 Nodes differ from what their rules give (n00, n01, n02, n03, n04, and 15 more), and the controller reports no reason: label example.com/a is missing, and rules give "b"`
	const second = `Node other differs from what its rules give, and the controller reports no reason: label example.com/c is missing, and rules give "d"`
	if len(found) != 2 || found[0].Message != first || found[1].Message != second {
		t.Errorf("got %q", found)
	}
}

// TestADifferenceOfATaintIsNamed: a hundred flags of the processor hid it, because labels come first in the alphabet.
func TestADifferenceOfATaintIsNamed(t *testing.T) {
	list := []difference{lacks("n", keys.Taint, "example.com/a:NoSchedule", "")}
	for i := range 100 {
		list = append(list, lacks("n", keys.Label, fmt.Sprintf("feature.node.kubernetes.io/cpu-cpuid.F%02d", i), "true"))
	}
	slices.Reverse(list)
	slices.SortFunc(list, compareDifferences)
	if found := describeDifferences("nodes", list)[0].Message; !strings.Contains(found, "taint example.com/a:NoSchedule is missing") {
		t.Error(found)
	}
}

// A pool with more devices than rules read gave no label, and only a metric counted its slices.
func TestAPoolOverTheLimitIsReported(t *testing.T) {
	c, err := (&cluster.Flags{Kubeconfig: clustertest.Serve(t, clustertest.PoolOverTheLimit())}).Connect()
	if err != nil {
		t.Fatal(err)
	}
	w := world.New(settings.Default(), "assay-system")
	if err := w.ReadCluster(t.Context(), c, world.Want{Nodes: true, Devices: true}, io.Discard); err != nil {
		t.Fatal(err)
	}
	w.Settle(io.Discard)
	found := devicesOver("nodes", w, []string{"a"})
	if len(found) != 1 || found[0].Level != Warning || !strings.Contains(found[0].Message, "a: "+clustertest.DevicesOverTheLimit) {
		t.Errorf("findings of doctor %v", found)
	}
}

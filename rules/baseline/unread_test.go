package baseline_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/baseline"
	"github.com/assay-project/assay/rules/facts"
)

// TestASourceThatWasNotReadIsNotADeviation: after a boot, a worker publishes without a source that does not answer. The node looked as if its
// driver were gone, and deviated until the source answered (found by seed 301 of the simulator).
func TestASourceThatWasNotReadIsNotADeviation(t *testing.T) {
	b := compile(t, h100)
	unread := func(n baseline.Node, sources ...string) baseline.Node {
		n.Input.Facts = facts.Merge(nil, n.Input.Facts, facts.FromMap(map[string]facts.Feature{nfdv1alpha1.UnreadFeature: {Flags: facts.NewFlags(sources...)}}, nil))
		return n
	}
	nodes := fleet(6)
	at := m{"type": "p5", "zone": "a"}
	nodes[1] = unread(node("n1", at, m{"system.dmiid.bios_version": "2.1"}), "gpu")        // everything else is as on the others
	nodes[2] = unread(node("n2", at, m{"system.dmiid.bios_version": "1.9"}), "gpu", "usb") // what is known deviates
	nodes[3] = unread(node("n3", at, m{"gpu.driver.version": "580.2"}), "system")
	nodes[4] = unread(nodes[4], "usb") // no check reads it
	r := b.Fleet(nodes)
	if diff := cmp.Diff([][]string{{"n0", "n4", "n5"}, {"n2"}, {"n1", "n3"}}, [][]string{r.Conforming, r.Deviating, r.Unknown}); diff != "" {
		t.Error(diff)
	}
	var got []string
	for _, d := range r.Deviations {
		got = append(got, d.Node+" "+d.Check+": "+d.Message)
	}
	for _, c := range r.Checks {
		got = append(got, fmt.Sprintf("%s: %d unknown", c.Name, c.Unknown))
	}
	want := []string{"n2 bios: 1.9; 4 of 5 nodes with zone=a have 2.1", "driver: 2 unknown", "bios: 1 unknown"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	nodes[2] = nodes[0]
	nodes[2].Input.Node.Name = "n2"
	if got, want := b.Fleet(nodes).Condition().Message, "the features of 2 of 6 nodes are unknown: n1 (the worker has not read the source gpu since the node booted), "+
		"n3 (the worker has not read the source system since the node booted)"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}

package gather_test

import (
	"testing"

	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/gather"
)

// Go iterates over a map in random order; the label must not depend on it.
func TestGatherGivesOneResultForALabelInBothSpellings(t *testing.T) {
	const key = "feature.node.kubernetes.io/plain"
	published := []gather.Published{{Name: "vendor", Facts: facts.Merge(nil), Labels: map[string]string{"plain": "bare", key: "spelled"}}}
	for range 100 {
		if got := gather.Merge(gather.Policy{}, gather.Node{}, published, nil).Labels[key]; got != "spelled" {
			t.Fatalf("%s is %q, want the value of the key that is spelled out", key, got)
		}
	}
}

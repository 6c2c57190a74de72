package doctor

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/assay-project/assay/charts"
)

// TestEveryPolicyIsChecked: a policy that the chart gets later is checked too.
func TestEveryPolicyIsChecked(t *testing.T) {
	var want, got []string
	for file := range maps.Keys(charts.Policies(charts.PolicySettings{})) {
		want = append(want, "assay-"+strings.TrimSuffix(file, ".yaml"))
	}
	for _, p := range protects {
		got = append(got, p.name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("checked are %q, the chart has %q", got, want)
	}
}

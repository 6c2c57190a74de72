package hosts_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/local"
)

// TestAFeatureThatIsWithheldHasNoLabels breaks each file of each source, and each directory of the kernel: a label of a feature that is
// unknown would say more than the feature.
func TestAFeatureThatIsWithheldHasNoLabels(t *testing.T) {
	features := readPage(t)
	check := func(where string, report *discovery.Report) {
		t.Helper()
		known := names(report)
		for _, label := range slices.Sorted(maps.Keys(report.Labels)) {
			of := slices.DeleteFunc(slices.Sorted(maps.Keys(features)), func(feature string) bool { return !features[feature].hasLabel(label) })
			if !slices.ContainsFunc(of, func(feature string) bool { return known[feature] }) {
				t.Errorf("%s: label %s, but none of the features %q", where, label, of)
			}
		}
	}
	files, _ := matrixFiles(t)
	for _, f := range files {
		if f.source == local.Name {
			continue // its labels have names of their own
		}
		for _, state := range states {
			h := machine(t, f.machine)
			state.set(h.FS.(*host.Tree), f)
			check(f.source+": "+state.name+" "+f.pattern, runSource(t, h, f.source))
		}
	}
	for _, name := range machines() {
		for _, dir := range []string{"sys", "proc"} {
			h := open(t, name)
			h.FS.(*host.Tree).Remove(dir)
			check(name+" without /"+dir, discover(t, h))
		}
	}
}

package arch

import (
	"slices"
	"strings"
	"testing"

	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/rules/review"
)

// TestEverySourceCanBeConfigured names the lists that a new source is missing from. Sources and rules do not import one another, so
// neither list can be made of the other; what a worker reads is compared with the same list by its own tests.
func TestEverySourceCanBeConfigured(t *testing.T) {
	features := lint.FeatureNames()
	for _, s := range builtin.Sources(builtin.DefaultConfig()) {
		if !slices.Contains(review.WorkerKeys["sources"], s.Name()) {
			t.Errorf("WorkerKeys of rules/review has no source %s: a configuration that names it is rejected", s.Name())
		}
		if !slices.ContainsFunc(features, func(f string) bool { return strings.HasPrefix(f, s.Name()+".") }) {
			t.Errorf("the catalog of rules/lint has no feature of the source %s: rules that read it draw warnings", s.Name())
		}
	}
}

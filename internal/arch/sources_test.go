package arch

import (
	"slices"
	"strings"
	"testing"

	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/rules/review"
)

// TestEverySourceCanBeConfigured checks that all lists contain all sources. discovery and rules must not import each other, so
// their lists cannot be generated from one another. Tests of the worker compare its list as well.
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

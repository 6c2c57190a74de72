package arch

import (
	"slices"
	"strings"
	"testing"

	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/internal/config/workerconfig"
	"github.com/assay-project/assay/rules/dictionary"
)

// TestEverySourceCanBeConfigured checks that all lists contain all sources. discovery and rules must not import each other, so
// their lists cannot be generated from one another. Tests of the worker compare its list as well.
func TestEverySourceCanBeConfigured(t *testing.T) {
	features, keys := dictionary.Names(), workerconfig.Default().Keys().Names()
	for _, s := range builtin.Sources(builtin.DefaultConfig()) {
		if !slices.Contains(keys, "sources."+s.Name()) {
			t.Errorf("the worker's configuration has no source %s: a configuration that names it draws warnings", s.Name())
		}
		if !slices.ContainsFunc(features, func(f string) bool { return strings.HasPrefix(f, s.Name()+".") }) {
			t.Errorf("rules/dictionary has no feature of the source %s: rules that read it draw warnings", s.Name())
		}
	}
}

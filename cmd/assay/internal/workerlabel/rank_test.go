package workerlabel_test

import (
	"testing"

	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/rules/keys"
)

// TestLabelsOfEachSourceHaveARank: those of a source without one would be as important as those of rules.
func TestLabelsOfEachSourceHaveARank(t *testing.T) {
	for _, s := range builtin.Sources(builtin.Config{}) {
		if !keys.RanksSource(s.Name()) {
			t.Errorf("rules/keys/importance.go has no rank for the source %s", s.Name())
		}
	}
}

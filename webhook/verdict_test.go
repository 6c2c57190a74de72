package webhook

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/assay-project/assay/rules/warning"
)

// TestWarningsAreShortenedOnlyIfTheAPIServerWouldCutThem: one long warning is shown as it is, with its path. If all warnings together
// are too long, each is shortened, and keeps the annotation that it is about.
func TestWarningsAreShortenedOnlyIfTheAPIServerWouldCutThem(t *testing.T) {
	const path = "spec.jobTemplate.spec.template.metadata.annotations[assay.dev/required-features].matchFeatures[0].matchExpressions[vendor].value[0]"
	long := func(i int) warning.Warning {
		return warning.Warning{Path: path, Message: fmt.Sprintf("%d ", i) + strings.Repeat("long ", 80)}
	}
	one := long(0)
	if got, want := worst([]warning.Warning{one}), []string{path + ": " + one.Message}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	var many []warning.Warning
	for i := range maxWarnings {
		many = append(many, long(i))
	}
	got := worst(many)
	if len(got) != len(many) {
		t.Fatalf("%d warnings, want %d", len(got), len(many))
	}
	for i, w := range got {
		if n := len([]rune(w)); n > maxWarningLen {
			t.Errorf("%d characters: %s", n, w)
		}
		if !strings.Contains(w, fmt.Sprintf("metadata.annotations[assay.dev/required-features]…[vendor].value[0]: %d long", i)) {
			t.Errorf("got %s", w)
		}
	}
}

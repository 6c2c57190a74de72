package rules_test

import (
	"testing"

	"github.com/assay-project/assay/rules"
)

// TestPlaceHidesKeysOfTheAuthor: positions in lists are not secret, names in maps can be.
func TestPlaceHidesKeysOfTheAuthor(t *testing.T) {
	for path, want := range map[string]string{
		"spec.rules[0].labels[secret]": "spec.rules[0].labels", "spec.rules[9].taints[10].key": "spec.rules[9].taints[10].key",
		"spec.rules": "spec.rules", "vars[a][0]": "vars",
	} {
		if got := rules.Place(path); got != want {
			t.Errorf("%s is shown as %s, want %s", path, got, want)
		}
	}
}

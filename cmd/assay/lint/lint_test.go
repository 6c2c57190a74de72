package lint

import (
	"strings"
	"testing"

	"github.com/assay-project/assay/rules/manifest"
)

// TestLintHasALimitOfRules counts those of all documents.
func TestLintHasALimitOfRules(t *testing.T) {
	const document = "---\napiVersion: nfd.k8s-sigs.io/v1alpha1\nkind: NodeFeatureRule\nmetadata: {name: a}\nspec: {rules: [{name: a}, {name: b}]}\n"
	files := []*manifest.File{manifest.Parse("a", []byte(document+document)), manifest.Parse("b", []byte(document))}
	if err := tooManyRules(files, 6); err != nil {
		t.Error(err)
	}
	const want = "6 rules in 2 files: at most 5 are reviewed at once: run the command for each directory or file"
	if err := tooManyRules(files, 5); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

package docs_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/rules/dictionary"
)

// TestFeatureTables compares the tables of features.md with rules/dictionary, from which -update writes them.
func TestFeatureTables(t *testing.T) {
	const file = "features.md"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(page), "\n### ")
	for i, section := range sections[1:] {
		name, _, _ := strings.Cut(section, "\n")
		start := strings.Index(section, "\n| element |")
		if table := featureTable(dictionary.Find(name)); start >= 0 {
			end := start + strings.Index(section[start:]+"\n\n", "|\n\n") + len("|\n")
			sections[i+1] = section[:start+1] + table + section[min(end, len(section)):]
		} else if table != "" {
			t.Errorf("%s: the section of %s has no table", file, name)
		}
	}
	want := strings.Join(sections, "\n### ")
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, string(page)); diff != "" && !*update {
		t.Errorf("%s differs from rules/dictionary; -update writes it (-want +got):\n%s", file, diff)
	}
}

// featureTable returns the table of the elements of a feature, or "" if it has none.
func featureTable(f *dictionary.Feature) string {
	var b strings.Builder
	if f == nil {
		return ""
	}
	for _, e := range f.Elements {
		name := e.Name
		if e.Pattern() {
			name = "…"
		}
		if e.Means != "" {
			b.WriteString("| `" + name + "` | " + e.Says() + " | " + e.Means + " |\n")
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "| element | value | meaning |\n|---|---|---|\n" + b.String()
}

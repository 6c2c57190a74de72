package charts_test

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/charts"
)

var update = flag.Bool("update", false, "write the version of the definitions and the digest of their fields")

// TestTheVersionFollowsTheFields compares the fields of all definitions with those of their version. A program takes a definition with a lower
// version for an older one of Assay, which may lack fields, so the version increases with each change of the fields.
func TestTheVersionFollowsTheFields(t *testing.T) {
	const file = "testdata/definitions.txt"
	var fields []string
	for name, data := range charts.CRDs() {
		var crd struct {
			Metadata struct{ Annotations map[string]string }
			Spec     map[string]any
		}
		if err := yaml.Unmarshal(data, &crd); err != nil {
			t.Fatal(err)
		}
		if got := crd.Metadata.Annotations[assayv1alpha1.DefinitionVersionAnnotation]; got != fmt.Sprint(assayv1alpha1.DefinitionVersion) {
			t.Errorf("%s has version %q, want %d; run make generate", name, got, assayv1alpha1.DefinitionVersion)
		}
		fields = append(fields, properties(name, crd.Spec)...)
	}
	slices.Sort(fields)
	got := fmt.Sprintf("version %d\n%d fields %x\n", assayv1alpha1.DefinitionVersion, len(fields), sha256.Sum256([]byte(strings.Join(fields, "\n"))))
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the definitions have\n%sand %s\n%sincrease DefinitionVersion if a release has that version, add new fields to since in internal/definition, "+
			"and run make generate and go test ./charts -update", got, file, want)
	}
}

// properties returns the paths of the properties of a schema.
func properties(path string, v any) (out []string) {
	switch v := v.(type) {
	case map[string]any:
		for key, child := range v {
			if fields, ok := child.(map[string]any); ok && key == "properties" {
				for name := range fields {
					out = append(out, path+"."+name)
				}
			}
			out = append(out, properties(path+"."+key, child)...)
		}
	case []any:
		for i, child := range v {
			out = append(out, properties(fmt.Sprintf("%s[%d]", path, i), child)...)
		}
	}
	return out
}

package builtin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/assembly/directory"
	"github.com/assay-project/assay/rules"
)

func TestStatusShowsNothingSensitive(t *testing.T) {
	dir := t.TempDir()
	const rule = `
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: policy}
spec:
  sensitive: true
  rules:
    - name: owner
      conditions: [{op: eq, args: {values: ["{node}", hunter2]}}]
      labels: {example.com/owner: platform}
`
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(rule), 0o644); err != nil {
		t.Fatal(err)
	}
	set, _ := directory.New(dir, assembly.NewRegistry(rules.Options{})).State()
	if len(set.Problems) > 0 {
		t.Fatal(set.Problems)
	}
	for key, value := range data(set, set) {
		if strings.Contains(value, "hunter2") {
			t.Errorf("%s is %s", key, value)
		}
	}
	if text := data(set, set)[KeyRules]; !strings.Contains(text, `"owner"`) || !strings.Contains(text, "a.yaml") {
		t.Errorf("rules are %s", text)
	}
}

package workerconfig_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/internal/config/workerconfig"
	"github.com/assay-project/assay/rules/schema"
)

// sample returns a value for a schema, using the default or an example of each field.
func sample(t *testing.T, path string, s, definitions map[string]any) any {
	t.Helper()
	if ref, ok := s["$ref"].(string); ok {
		merged := map[string]any{}
		for _, part := range []map[string]any{definitions[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any), s} {
			for key, value := range part {
				if key != "$ref" {
					merged[key] = value
				}
			}
		}
		return sample(t, path, merged, definitions)
	}
	if properties, ok := s["properties"].(map[string]any); ok {
		out := map[string]any{}
		for name, p := range properties {
			out[name] = sample(t, path+"."+name, p.(map[string]any), definitions)
		}
		return out
	}
	if examples, ok := s["examples"].([]any); ok {
		return examples[0]
	}
	value, ok := s["default"]
	if !ok {
		t.Errorf("%s has neither a default nor an example", path)
	}
	return value
}

// names returns the keys in a schema, sorted.
func names(s, definitions map[string]any, path string) (out []string) {
	if ref, ok := s["$ref"].(string); ok {
		s = definitions[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any)
	}
	properties, _ := s["properties"].(map[string]any)
	for name, p := range properties {
		out = append(append(out, path+name), names(p.(map[string]any), definitions, path+name+".")...)
	}
	slices.Sort(out)
	return out
}

func TestReadsTheKeysOfTheSchema(t *testing.T) {
	data, err := schema.Of(schema.WorkerConfiguration)
	if err != nil {
		t.Fatal(err)
	}
	var s map[string]any
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(workerconfig.Default().Keys().Names(), names(s, s["definitions"].(map[string]any), "")); diff != "" {
		t.Errorf("keys (-read +schema):\n%s", diff)
	}
	config, err := yaml.Marshal(sample(t, "", s, s["definitions"].(map[string]any)))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "worker.conf")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	_, warnings, err := workerconfig.Load(file, "", workerconfig.Override{})
	if err != nil {
		t.Errorf("the worker rejects an example of its schema: %v\n%s", err, config)
	}
	for _, w := range warnings {
		if !strings.Contains(w, "deprecated") && !strings.Contains(w, "klog") {
			t.Errorf("the worker warns of an example of its schema: %s", w)
		}
	}
}

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/rules/schema"
)

// sample returns a value for a schema: the default or an example of each field.
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

func TestReadsEveryKeyOfTheSchema(t *testing.T) {
	data, err := schema.Of(schema.WorkerConfiguration)
	if err != nil {
		t.Fatal(err)
	}
	var s map[string]any
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	config, err := yaml.Marshal(sample(t, "", s, s["definitions"].(map[string]any)))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "worker.conf")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	_, warnings, err := loadConfig(&options{configFile: file})
	if err != nil {
		t.Errorf("the worker rejects an example of its schema: %v\n%s", err, config)
	}
	for _, w := range warnings {
		if !strings.Contains(w, "deprecated") && !strings.Contains(w, "klog") {
			t.Errorf("the worker warns of an example of its schema: %s", w)
		}
	}
}

package managerconfig_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/internal/config/managerconfig"
	"github.com/assay-project/assay/rules/schema"
)

func TestReadsTheKeysOfTheSchema(t *testing.T) {
	data, err := schema.Of(schema.ControllerConfiguration)
	if err != nil {
		t.Fatal(err)
	}
	var s map[string]any
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(managerconfig.Default().Keys().Names(), names(s, "")); diff != "" {
		t.Errorf("keys (-read +schema):\n%s", diff)
	}
}

// names returns the keys in a schema, sorted.
func names(s map[string]any, path string) (out []string) {
	properties, _ := s["properties"].(map[string]any)
	for name, p := range properties {
		out = append(append(out, path+name), names(p.(map[string]any), path+name+".")...)
	}
	slices.Sort(out)
	return out
}

package schemacheck_test

import (
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/internal/schemacheck"
)

// TestCreateDropsNulls checks that null is not an error where the API server drops it: in fields and maps, but not in lists.
func TestCreateDropsNulls(t *testing.T) {
	for spec, accepted := range map[string]bool{
		`{description: null, rules: [{name: a, labels: null}]}`:       true,
		`{rules: [{name: a, labels: {example.com/a: null, b: "c"}}]}`: true,
		`{rules: [null]}`: false,
		`{rules: null}`:   false, // treated as absent
	} {
		object := map[string]any{}
		text := "{apiVersion: nfd.k8s-sigs.io/v1alpha1, kind: NodeFeatureRule, metadata: {name: a}, spec: " + spec + "}"
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		if errs := schemacheck.Create(object); (len(errs) == 0) != accepted {
			t.Errorf("%s: %v", spec, errs)
		}
	}
}

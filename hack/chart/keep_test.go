package chart

import "testing"

// TestDefinitionsStay checks the annotation that makes Helm keep an object when the release is uninstalled.
func TestDefinitionsStay(t *testing.T) {
	for values, want := range map[string]string{`{}`: "keep", `{crds: {keep: false}}`: ""} {
		definitions := 0
		for _, object := range objects(t, mustRender(t, set(t, values))) {
			if object["kind"] != "CustomResourceDefinition" {
				continue
			}
			definitions++
			metadata, _ := object["metadata"].(map[string]any)
			annotations, _ := metadata["annotations"].(map[string]any)
			if got, _ := annotations["helm.sh/resource-policy"].(string); got != want {
				t.Errorf("%s: %v: resource-policy is %q, want %q", values, metadata["name"], got, want)
			}
		}
		if definitions == 0 {
			t.Errorf("%s: there are no definitions", values)
		}
	}
}

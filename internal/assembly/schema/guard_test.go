package schema

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/charts"
)

// definition returns this version's CRD without some fields.
func definition(t *testing.T, without ...[]string) map[string]any {
	t.Helper()
	var crd map[string]any
	if err := yaml.Unmarshal(charts.CRDs()["nfd.k8s-sigs.io_nodefeaturerules.yaml"], &crd); err != nil {
		t.Fatal(err)
	}
	version := crd["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	for _, path := range without {
		path = append([]string{"schema", "openAPIV3Schema", "properties", "spec"}, path...)
		unstructured.RemoveNestedField(version, path...)
	}
	return crd
}

func TestCompare(t *testing.T) {
	rule := func(field string) []string { return []string{"properties", "rules", "items", "properties", field} }
	for name, test := range map[string]struct {
		served map[string]any
		want   []string
	}{
		"Ours": {served: definition(t)},
		"WithoutSomeFields": {
			served: definition(t, []string{"properties", "phase"}, rule("conditions"), rule("loop")),
			want:   []string{"spec.phase", "spec.rules[].conditions", "spec.rules[].loop"},
		},
		"WithoutFieldsOfFields": {
			served: definition(t, []string{"properties", "basedOn", "items", "properties", "exclude"}),
			want:   []string{"spec.basedOn[].exclude"},
		},
		"KeepsEverything": {served: yamlMap(t, `{spec: {versions: [{name: v1alpha1, schema: {openAPIV3Schema: {properties: {spec: {x-kubernetes-preserve-unknown-fields: true}}}}}]}}`)},
		"WithoutOurVersion": {
			served: yamlMap(t, `{spec: {versions: [{name: v9}]}}`),
			want: []string{"spec.basedOn", "spec.description", "spec.featureSources", "spec.minimumVersion", "spec.nodeSelector",
				"spec.phase", "spec.priority", "spec.rules", "spec.rulesFrom", "spec.scope", "spec.sensitive"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := compare(test.served)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("missing (-want +got):\n%s", diff)
			}
		})
	}
}

func yamlMap(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

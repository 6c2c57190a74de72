package schemacheck_test

import (
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/api/featureset"
	"github.com/assay-project/assay/charts"
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

// TestEveryKindIsChecked checks that objects of each kind of the chart are validated.
func TestEveryKindIsChecked(t *testing.T) {
	for file, data := range charts.CRDs() {
		crd := apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, &crd); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		object := map[string]any{"kind": crd.Spec.Names.Kind, "metadata": map[string]any{"name": "a"}, "spce": map[string]any{}}
		if errs := schemacheck.Create(object); len(errs) == 0 {
			t.Errorf("%s: the unknown field spce of a %s is not reported", file, crd.Spec.Names.Kind)
		}
	}
}

// TestLimitsOfFeatureSets checks that the largest features of real machines fit in a NodeFeatureSet, and all that the webhook accepts,
// and that the schema limits elements and values where neither webhook nor policies do.
func TestLimitsOfFeatureSets(t *testing.T) {
	elements := func(n int, name func(int) string, value any) map[string]any {
		out := map[string]any{}
		for i := range n {
			out[name(i)] = value
		}
		return out
	}
	numbered := func(format string) func(int) string {
		return func(i int) string { return fmt.Sprintf(format, i) }
	}
	attributes := func(n int, format, value string) map[string]any {
		return map[string]any{"attributes": map[string]any{"kernel.config": map[string]any{"elements": elements(n, numbered(format), value)}}}
	}
	instances := func(n, each int) map[string]any {
		list := make([]any, n)
		for i := range list {
			list[i] = map[string]any{"attributes": elements(each, numbered("attribute_%02d"), "0000:3b:00.2")}
		}
		return map[string]any{"instances": map[string]any{"pci.device": map[string]any{"elements": list}}}
	}
	for name, test := range map[string]struct {
		features map[string]any
		want     string // empty: valid
	}{
		"KernelConfig":     {attributes(20_000, "CONFIG_NETFILTER_XT_%05d", "y"), ""},
		"VirtualFunctions": {instances(500, 20), ""},
		"LongestValue":     {attributes(1, "a%d", strings.Repeat("x", featureset.MaxBytes)), ""},
		"ShortestElements": {attributes(featureset.MaxElements, "%d", ""), ""},
		"LongValue":        {attributes(1, "a%d", strings.Repeat("x", 1400<<10)), "may not be more than 262144"},
		"ManyAttributes":   {attributes(100_000, "%d", ""), "must have at most 43690"},
		"ManyInstances":    {instances(100_000, 0), "must have at most 43690"},
		"ManyOfAnInstance": {instances(1, 100_000), "must have at most 43690"},
		"ManyFlags": {map[string]any{"flags": map[string]any{"cpu.cpuid": map[string]any{
			"elements": elements(100_000, numbered("%d"), map[string]any{}),
		}}}, "must have at most 43690"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := schemacheck.Create(map[string]any{
				"apiVersion": "assay.dev/v1alpha1", "kind": "NodeFeatureSet",
				"metadata": map[string]any{"name": "a", "namespace": "b"}, "spec": map[string]any{"features": test.features},
			})
			if test.want == "" && len(errs) > 0 || test.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Detail, test.want)) {
				t.Errorf("want %q, got %d errors: %.300s", test.want, len(errs), errs.ToAggregate())
			}
		})
	}
}

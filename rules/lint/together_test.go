package lint_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/lint"
)

func TestTogether(t *testing.T) {
	two := func(feature, a, b string) string {
		term := func(e string) string {
			return "{matchFeatures: [{feature: " + feature + ", matchExpressions: {x: " + e + "}}]}"
		}
		return "[" + term(a) + ", " + term(b) + "]"
	}
	const module, config, pci, unknown = "kernel.loadedmodule", "Kernel.Config", "pci.device", "vendor.thing"
	for name, tc := range map[string]struct{ rules, want string }{
		"ExistsAndNot":     {two(module, "{op: Exists}", "{op: DoesNotExist}"), "requires the element"},
		"NotAndExists":     {two(module, "{op: DoesNotExist}", "{op: Exists}"), "requires that the element does not exist"},
		"OtherValues":      {two(config, "{op: In, value: [y]}", "{op: In, value: [m]}"), "requires other values"},
		"Excluded":         {two(config, "{op: In, value: [y]}", "{op: NotIn, value: [y, m]}"), "requires one of these values"},
		"Opposite":         {two(config, "{op: IsTrue}", "{op: IsFalse}"), "requires the opposite"},
		"SomeValuesShared": {two(config, "{op: In, value: [y, m]}", "{op: In, value: [m]}"), ""},
		"SomeExcluded":     {two(config, "{op: In, value: [y, m]}", "{op: NotIn, value: [y]}"), ""},
		"NotInAndMissing":  {two(config, "{op: NotIn, value: [y]}", "{op: DoesNotExist}"), ""},
		"OtherInstances":   {two(pci, "{op: In, value: [a]}", "{op: In, value: [b]}"), ""},
		"UnknownFeature":   {two(unknown, "{op: In, value: [a]}", "{op: In, value: [b]}"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var list []nfdv1alpha1.Rule
			if err := yaml.UnmarshalStrict([]byte(tc.rules), &list); err != nil {
				t.Fatal(err)
			}
			got := lint.Together(field.NewPath("rules"), list)
			switch {
			case tc.want == "" && len(got) > 0:
				t.Errorf("got %v, want no warning: a node can match", got)
			case tc.want != "" && (len(got) != 1 || !strings.HasSuffix(got[0].Message, tc.want) || got[0].Path != "rules[1].matchFeatures[0].matchExpressions[x]"):
				t.Errorf("got %v, want a warning that ends with %q", got, tc.want)
			}
		})
	}
}

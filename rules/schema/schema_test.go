package schema_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/schema"
	"github.com/assay-project/assay/settings"
)

func compile(t *testing.T, kind string) *jsonschema.Schema {
	t.Helper()
	data, err := schema.Of(kind, settings.Schema())
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// documents returns the YAML documents of a kind in files.
func documents(t *testing.T, kind string, patterns ...string) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, error %v", pattern, len(files), err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for i, text := range strings.Split("\n"+string(data), "\n---") {
				var value any
				data, err := yaml.YAMLToJSON([]byte(text))
				if err != nil {
					continue // some files are invalid YAML on purpose
				}
				if value, err = jsonschema.UnmarshalJSON(bytes.NewReader(data)); err != nil {
					t.Fatal(file, err)
				}
				if fields, ok := value.(map[string]any); ok && fields["kind"] == kind {
					out[file+strings.Repeat("#", i)] = value
				}
			}
		}
	}
	return out
}

func TestAcceptsWhatWorks(t *testing.T) {
	s := compile(t, "NodeFeatureRule")
	for file, document := range documents(t, "NodeFeatureRule", "../../examples/*.yaml", "../../library/*.yaml") {
		if err := s.Validate(document); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestRejectsWhatASchemaCan(t *testing.T) {
	s := compile(t, "nodefeaturerules")
	for name, test := range map[string]struct{ rule, at string }{
		"MisspelledField":          {`{name: r, label: {a: b}}`, ""},
		"MisspelledFieldOfMatcher": {`{name: r, matchFeatures: [{feature: cpu.cpuid, matchExpression: {AVX: {op: Exists}}}]}`, "/matchFeatures/0"},
		"LowerCaseOperator":        {`{name: r, matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AVX: {op: exists}}}]}`, "/matchFeatures/0/matchExpressions/AVX/op"},
		"ScalarValue":              {`{name: r, matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: In, value: "10de"}}}]}`, "/matchFeatures/0/matchExpressions/vendor/value"},
		"NumberAsValue":            {`{name: r, matchFeatures: [{feature: kernel.version, matchExpressions: {major: {op: Gt, value: [5]}}}]}`, "/matchFeatures/0/matchExpressions/major/value/0"},
		"InWithoutValue":           {`{name: r, matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: In}}}]}`, "/matchFeatures/0/matchExpressions/vendor"},
		"ExistsWithValue":          {`{name: r, matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: Exists, value: ["1"]}}}]}`, "/matchFeatures/0/matchExpressions/vendor/value"},
		"GtWithTwoValues":          {`{name: r, matchFeatures: [{feature: kernel.version, matchExpressions: {major: {op: Gt, value: ["1", "2"]}}}]}`, "/matchFeatures/0/matchExpressions/major/value"},
		"BooleanLabel":             {`{name: r, labels: {a: true}}`, "/labels/a"},
		"UnknownCondition":         {`{name: r, labels: {a: b}, conditions: [{op: equal, args: {values: [1, 2]}}]}`, "/conditions/0/op"},
		"UnknownAction":            {`{name: r, actions: [{op: set-label, args: {}}]}`, "/actions/0/op"},
		"UnknownTaintEffect":       {`{name: r, taints: [{key: a/b, effect: NoRun}]}`, "/taints/0/effect"},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.Validate(ruleObject(t, test.rule))
			if want := "at '/spec/rules/0" + test.at + "': "; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got the error %v, want one %s", test.rule, err, want)
			}
		})
	}
	for name, rule := range map[string]string{
		"OtherPublishersFeature": `{name: r, labels: {a: b}, matchFeatures: [{feature: vendor.thing, matchExpressions: {x: {op: Exists}}}]}`,
		"InvertedCondition":      `{name: r, labels: {a: b}, conditions: [{op: "!is-true", args: ["{x}"]}]}`,
		"CamelCaseCondition":     `{name: r, labels: {a: b}, conditions: [{op: IsTrue, args: {value: "{x}"}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			if err := s.Validate(ruleObject(t, rule)); err != nil {
				t.Errorf("rejects %s: %v", rule, err)
			}
		})
	}
}

func ruleObject(t *testing.T, rule string) any {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte("{apiVersion: nfd.k8s-sigs.io/v1alpha1, kind: NodeFeatureRule, metadata: {name: o}, spec: {rules: [" + rule + "]}}"))
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// Editors show the description of a field on hover, so every field must have one.
func TestEveryFieldIsDescribed(t *testing.T) {
	kinds, err := schema.Kinds(settings.Schema())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(kinds, "NodeFeatureRule") || len(kinds) < 6 {
		t.Fatalf("kinds %v", kinds)
	}
	for _, kind := range kinds {
		compile(t, kind)
		data, err := schema.Of(kind, settings.Schema())
		if err != nil {
			t.Fatal(err)
		}
		var s map[string]any
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatal(err)
		}
		properties, _ := s["properties"].(map[string]any)
		for _, part := range []string{"spec", "status"} { // a NodeShape has only a status
			if fields, ok := properties[part].(map[string]any); ok {
				properties, _ = fields["properties"].(map[string]any)
				break
			}
		}
		for name, field := range properties {
			if text, _ := field.(map[string]any)["description"].(string); text == "" {
				t.Errorf("%s: %s has no description", kind, name)
			}
		}
	}
}

func TestNamesTheKindsForAnUnknownOne(t *testing.T) {
	_, err := schema.Of("rule")
	if err == nil || !strings.Contains(err.Error(), "NodeFeatureRule") {
		t.Errorf("error %v", err)
	}
}

var update = flag.Bool("update", false, "write testdata/rejected.txt")

// testdata/rejected.txt lists the objects that the schema rejects. Only the review can find errors in names, values, expressions
// and templates.
func TestRejectsObjectsThatUsersGetWrong(t *testing.T) {
	const golden = "testdata/rejected.txt"
	var rejected []string
	for _, kind := range []string{"NodeFeatureRule", "NodeFeatureGroup", "NodeFeatureRequest", "NodeFeatureRuleTemplate"} {
		s := compile(t, kind)
		for file, document := range documents(t, kind, "../../webhook/testdata/wrong/*.yaml", "../../cmd/assay-manager/testdata/wrong/*.yaml") {
			if s.Validate(document) != nil {
				rejected = append(rejected, strings.TrimPrefix(file, "../../"))
			}
		}
	}
	slices.Sort(rejected)
	got := strings.Join(rejected, "\n") + "\n"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); go test ./rules/schema -update writes it:\n%s", golden, diff)
	}
}

// The CRDs are generated from the types. This test fails if a new field is missing because `make generate` was not run.
func TestSchemaHasEveryField(t *testing.T) {
	data, err := schema.Of("NodeFeatureRule")
	if err != nil {
		t.Fatal(err)
	}
	type properties = map[string]struct {
		Properties map[string]any
		Items      struct{ Properties map[string]any }
	}
	var document struct {
		Properties struct {
			Spec struct{ Properties properties }
		}
	}
	if err := json.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	spec := document.Properties.Spec.Properties
	for _, field := range jsonNames(reflect.TypeFor[nfdv1alpha1.NodeFeatureRuleSpec]()) {
		if _, ok := spec[field]; !ok {
			t.Errorf("the schema has no spec.%s: run make generate", field)
		}
	}
	for _, field := range jsonNames(reflect.TypeFor[nfdv1alpha1.Rule]()) {
		if spec["rules"].Items.Properties[field] == nil {
			t.Errorf("the schema has no spec.rules[].%s: run make generate", field)
		}
	}
}

func jsonNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

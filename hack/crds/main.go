// Command crds adds to generated CustomResourceDefinitions what markers on Go types cannot express.
//
// It adds the operators of matchers, which rules declare: their names, and a CEL rule for each on the number of its values. Below
// matchAny there are no CEL rules, and only Compile counts values: the API server estimates the maximum cost of all rules in a CRD, and
// rejects a CRD above its budget of ten million for a rule and a hundred million in total. With the limits of the types there can be a
// million expressions in matchFeatures, for which one comparison for each operator fits into the budget, but 64 million in matchAny.
//
// And it limits the size of the features of a NodeFeatureSet, whose type is that of a NodeFeature, which has no such limits in Node
// Feature Discovery. It writes the version of the schemas into an annotation of each, and the labels by which the
// definitions are found.
package main

import (
	"fmt"
	"os"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	"github.com/assay-project/assay/rules"
)

func main() {
	for _, name := range os.Args[1:] {
		if err := complete(name); err != nil {
			fmt.Fprintf(os.Stderr, "crds: %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

func complete(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return err
	}
	if err := unstructured.SetNestedField(crd, strconv.Itoa(assayv1alpha1.DefinitionVersion),
		"metadata", "annotations", assayv1alpha1.DefinitionVersionAnnotation); err != nil {
		return err
	}
	// Helm deletes no object with this annotation that a release no longer contains.
	if err := unstructured.SetNestedField(crd, "keep", "metadata", "annotations", "helm.sh/resource-policy"); err != nil {
		return err
	}
	labels := map[string]any{"app.kubernetes.io/name": "assay", "app.kubernetes.io/part-of": "assay"}
	if err := unstructured.SetNestedMap(crd, labels, "metadata", "labels"); err != nil {
		return err
	}
	walk(crd, false)
	if names, _, _ := unstructured.NestedMap(crd, "spec", "names"); names["kind"] == assayv1alpha1.NodeFeatureSetGVK.Kind {
		limit(crd)
	}
	out, err := yaml.Marshal(crd)
	if err != nil {
		return err
	}
	// Helm 3 prints the files of a chart one after the other.
	return os.WriteFile(name, append([]byte("---\n"), out...), 0o644)
}

// walk modifies a schema and all schemas in it. Below a property named matchAny it adds no CEL rules.
func walk(v any, belowAny bool) {
	switch v := v.(type) {
	case map[string]any:
		if op := operatorOf(v); op != nil {
			op["enum"] = operatorNames()
			if !belowAny {
				v["x-kubernetes-validations"] = valueCounts()
			}
		}
		for key, child := range v {
			walk(child, belowAny || key == "matchAny")
		}
	case []any:
		for _, child := range v {
			walk(child, belowAny)
		}
	}
}

// operatorOf returns the schema of op in a schema of MatchExpression, or nil in another one: conditions have args instead of a value.
func operatorOf(schema map[string]any) map[string]any {
	properties, _ := schema["properties"].(map[string]any)
	op, _ := properties["op"].(map[string]any)
	if properties["value"] == nil {
		return nil
	}
	return op
}

func operatorNames() []any {
	var names []any
	for _, operator := range rules.MatchOperators() {
		names = append(names, string(operator.Op))
	}
	return names
}

// valueCounts returns a CEL rule for each operator on the number of its values.
func valueCounts() []any {
	var out []any
	for _, o := range rules.MatchOperators() {
		rule, message := "!has(self.value)", "leave value out, or write op: In to compare"
		if o.Max > 0 {
			rule, message = "has(self.value) && self.value.size() "+count(o), "did you write values: instead of value:?"
			if o.Ordered && o.Max == 1 {
				message = "did you write values: instead of value:, or mean a range (GtLt, GeLe)?"
			}
		}
		out = append(out, map[string]any{
			"rule":    fmt.Sprintf("self.op != '%s' || %s", o.Op, rule),
			"message": fmt.Sprintf("%s takes %s; %s", o.Op, o.Values, message),
		})
	}
	return out
}

func count(o rules.MatchOperator) string {
	if o.Min < o.Max {
		return fmt.Sprintf(">= %d", o.Min)
	}
	return fmt.Sprintf("== %d", o.Min)
}

// limit adds the limits of a set to the elements of its features and their values. A CEL rule limits the number of features.
func limit(v any) {
	switch v := v.(type) {
	case map[string]any:
		if value, ok := v["additionalProperties"].(map[string]any); ok && value["required"] == nil {
			v["maxProperties"] = featureset.MaxElements
			if value["type"] == "string" {
				value["maxLength"] = featureset.MaxBytes
			}
		}
		if v["type"] == "array" {
			v["maxItems"] = featureset.MaxElements
		}
		for _, child := range v {
			limit(child)
		}
	case []any:
		for _, child := range v {
			limit(child)
		}
	}
}

// Command crds adds to generated CustomResourceDefinitions what markers on Go types cannot express.
//
// It adds the list of operators of matchers, which rules declare. And it removes the CEL rules below matchAny: the API server
// estimates the maximum cost of all rules in a CRD, and rejects a CRD above its budget. With the limits of the types there can be a
// million expressions in matchFeatures, for which the rules of MatchExpression fit into the budget, but 64 million in matchAny.
// Markers apply to types, which both fields share.
//
// And it limits the size of the features of a NodeFeatureSet, whose type is that of a NodeFeature, which has no such limits in Node
// Feature Discovery.
package main

import (
	"bytes"
	"fmt"
	"os"

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
	walk(crd, false)
	if names, _, _ := unstructured.NestedMap(crd, "spec", "names"); names["kind"] == assayv1alpha1.NodeFeatureSetGVK.Kind {
		limit(crd)
	}
	out, err := yaml.Marshal(crd)
	if err != nil {
		return err
	}
	if bytes.HasPrefix(data, []byte("---\n")) {
		out = append([]byte("---\n"), out...)
	}
	return os.WriteFile(name, out, 0o644)
}

// walk modifies a schema and all schemas in it. Below a property named matchAny it drops the CEL rules.
func walk(v any, belowAny bool) {
	switch v := v.(type) {
	case map[string]any:
		if belowAny {
			delete(v, "x-kubernetes-validations")
		}
		if properties, ok := v["properties"].(map[string]any); ok {
			listOperators(properties)
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

// listOperators adds the list of operators to schemas of MatchExpression: those of conditions have args instead of a value.
func listOperators(properties map[string]any) {
	op, ok := properties["op"].(map[string]any)
	if !ok || properties["value"] == nil {
		return
	}
	var names []any
	for _, operator := range rules.MatchOperators() {
		names = append(names, string(operator.Op))
	}
	op["enum"] = names
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

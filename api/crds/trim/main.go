// Command trim removes the CEL rules below matchAny from generated CustomResourceDefinitions.
//
// The API server adds up what the rules of a definition could cost at the most, and refuses a definition above its budget. By
// the bounds of the types there can be a million expressions in matchFeatures, which the rules of MatchExpression can
// afford, but 64 million in matchAny. Markers are on types, and both places share theirs.
package main

import (
	"bytes"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

func main() {
	for _, name := range os.Args[1:] {
		if err := trim(name); err != nil {
			fmt.Fprintf(os.Stderr, "trim: %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

func trim(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return err
	}
	walk(crd, false)
	out, err := yaml.Marshal(crd)
	if err != nil {
		return err
	}
	if bytes.HasPrefix(data, []byte("---\n")) {
		out = append([]byte("---\n"), out...)
	}
	return os.WriteFile(name, out, 0o644)
}

// walk visits everything and drops rules once it is below a property named matchAny.
func walk(v any, below bool) {
	switch v := v.(type) {
	case map[string]any:
		if below {
			delete(v, "x-kubernetes-validations")
		}
		for key, child := range v {
			walk(child, below || key == "matchAny")
		}
	case []any:
		for _, child := range v {
			walk(child, below)
		}
	}
}

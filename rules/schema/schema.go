// Package schema generates JSON Schemas of Assay's kinds for editors.
//
// The schemas are generated from the CustomResourceDefinitions. Constraints that these cannot express are added from the lists of
// the rule engine: operators and their numbers of values, actions and their arguments, features and their elements. The dialect is
// draft 7, which yaml-language-server and CRD catalogs support.
package schema

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/charts"
)

// dialect is the JSON Schema dialect that yaml-language-server supports.
const dialect = "http://json-schema.org/draft-07/schema#"

// object is a schema as it is marshaled.
type object = map[string]any

// definition holds the fields of a CustomResourceDefinition that this package needs.
type definition struct {
	Spec struct {
		Group string `json:"group"`
		Scope string `json:"scope"`
		Names struct {
			Kind   string `json:"kind"`
			Plural string `json:"plural"`
		} `json:"names"`
		Versions []struct {
			Name   string `json:"name"`
			Schema struct {
				OpenAPIV3Schema object `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

//go:embed worker.yaml
var worker []byte

// WorkerConfiguration is the name of the schema of the worker's configuration file.
const WorkerConfiguration = "WorkerConfiguration"

// Kinds returns the sorted names of the kinds and configuration files that have a schema. More are schemas that the caller has, with their
// names as titles.
func Kinds(more ...map[string]any) ([]string, error) {
	all, err := definitions()
	names := append(slices.Collect(maps.Keys(all)), WorkerConfiguration)
	for _, s := range more {
		names = append(names, s["title"].(string)) //nolint:forcetypeassert // see above
	}
	slices.Sort(names)
	return names, err
}

// Of returns the JSON Schema of a kind, indented. The kind may be in lower case or plural. More are those of Kinds.
func Of(kind string, more ...map[string]any) ([]byte, error) {
	if strings.EqualFold(kind, WorkerConfiguration) {
		var out object
		if err := yaml.Unmarshal(worker, &out); err != nil {
			return nil, err
		}
		more = append(slices.Clone(more), out)
	}
	for _, s := range more {
		if strings.EqualFold(kind, s["title"].(string)) { //nolint:forcetypeassert // see Kinds
			s = maps.Clone(s)
			s["$schema"] = dialect
			return json.MarshalIndent(s, "", "  ")
		}
	}
	all, err := definitions()
	if err != nil {
		return nil, err
	}
	for name, d := range all {
		if strings.EqualFold(kind, name) || strings.EqualFold(kind, d.Spec.Names.Plural) {
			return json.MarshalIndent(d.schema(), "", "  ")
		}
	}
	kinds, err := Kinds(more...)
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("unknown kind %q: use one of %s", kind, strings.Join(kinds, ", "))
}

func definitions() (map[string]*definition, error) {
	out := map[string]*definition{}
	for file, data := range charts.CRDs() {
		d := &definition{}
		if err := yaml.Unmarshal(data, d); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out[d.Spec.Names.Kind] = d
	}
	return out, nil
}

// schema returns the complete schema of a kind.
func (d *definition) schema() object {
	version := d.Spec.Versions[0]
	out := convert(version.Schema.OpenAPIV3Schema)
	out["$schema"] = dialect
	out["title"] = d.Spec.Names.Kind
	out["required"] = []string{"apiVersion", "kind", "metadata", "spec"}
	properties := out["properties"].(object) //nolint:forcetypeassert // every kind has fields
	properties["apiVersion"] = object{"const": d.Spec.Group + "/" + version.Name, "description": "The API group and version."}
	properties["kind"] = object{"const": d.Spec.Names.Kind, "description": "The kind."}
	properties["metadata"] = metadata(d.Spec.Scope == "Namespaced")
	return out
}

// metadata allows all fields of ObjectMeta and describes the common ones.
func metadata(namespaced bool) object {
	strings := object{"type": "object", "additionalProperties": object{"type": "string"}}
	var namespace any = false // not allowed
	if namespaced {
		namespace = object{"type": "string", "description": "The namespace of the object.", "maxLength": 63}
	}
	return object{
		"type": "object",
		"properties": object{
			"name":        object{"type": "string", "description": "The name of the object.", "maxLength": 253, "pattern": `^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`},
			"namespace":   namespace,
			"labels":      strings,
			"annotations": strings,
		},
	}
}

// copied lists the keywords that OpenAPI schemas and JSON Schema share.
var copied = []string{
	"description", "type", "enum", "default", "format", "pattern", "minimum", "maximum", "minLength", "maxLength",
	"minItems", "maxItems", "minProperties", "maxProperties", "required", "uniqueItems",
}

// convert converts a structural schema to a JSON Schema. Like the API server with strict validation, the schema rejects unknown
// fields, unless the field preserves them.
func convert(in object) object {
	out := object{}
	for _, key := range copied {
		if v, ok := in[key]; ok {
			out[key] = v
		}
	}
	if text, ok := out["description"].(string); ok {
		out["description"] = strings.ReplaceAll(text, "\n", " ")
	}
	if in["nullable"] == true {
		out["type"] = []any{in["type"], "null"}
	}
	if in["x-kubernetes-int-or-string"] == true {
		out["type"] = []any{"integer", "string"}
	}
	if items, ok := in["items"].(object); ok {
		out["items"] = convert(items)
	}
	switch values := in["additionalProperties"].(type) {
	case object:
		out["additionalProperties"] = convert(values)
	case bool:
		out["additionalProperties"] = values
	}
	if properties, ok := in["properties"].(object); ok {
		converted := object{}
		for name, p := range properties {
			converted[name] = convert(p.(object)) //nolint:forcetypeassert // a structural schema
		}
		out["properties"] = converted
		if out["additionalProperties"] == nil && in["x-kubernetes-preserve-unknown-fields"] != true {
			out["additionalProperties"] = false
		}
		enrich(converted, out)
	}
	return out
}

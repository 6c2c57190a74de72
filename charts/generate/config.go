package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/assay-project/assay/rules/schema"
	"github.com/assay-project/assay/settings"
)

// object is a JSON Schema of any form.
type object = map[string]any

// configuration returns the schema of a configuration file as part of another schema: without references. A value may be null, as
// programs accept it: a key whose values are all comments.
//
// The schema is stricter than the programs, which accept numbers as strings, and unknown keys with a warning: Helm changes numbers such as
// 0300 before a program sees them.
func configuration(kind string) (object, error) {
	data, err := schema.Of(kind, settings.Schema())
	if err != nil {
		return nil, err
	}
	var root object
	if err := json.Unmarshal(data, &root); err != nil {
		return nil, err
	}
	definitions, _ := root["definitions"].(object)
	for _, key := range []string{"$schema", "title", "definitions"} {
		delete(root, key)
	}
	return inline(root, definitions), nil
}

// inline replaces references in a schema, and allows null.
func inline(s, definitions object) object {
	out := object{}
	if ref, ok := s["$ref"].(string); ok {
		maps.Copy(out, definitions[strings.TrimPrefix(ref, "#/definitions/")].(object))
	}
	maps.Copy(out, s)
	delete(out, "$ref")
	if below, ok := out["properties"].(object); ok {
		below = maps.Clone(below)
		for name, p := range below {
			below[name] = inline(p.(object), definitions)
		}
		out["properties"] = below
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if below, ok := out[key].(object); ok {
			out[key] = inline(below, definitions)
		}
	}
	if list, ok := out["anyOf"].([]any); ok {
		list = slices.Clone(list)
		for i, p := range list {
			list[i] = inline(p.(object), definitions)
		}
		out["anyOf"] = list
	}
	if t, ok := out["type"].(string); ok {
		out["type"] = []any{t, "null"}
	}
	if list, ok := out["enum"].([]any); ok {
		out["enum"] = append(slices.Clone(list), nil)
	}
	return explained(out)
}

// explained replaces a schema whose pattern has a description: instead of a value that does not match, the description is required, so that
// Helm shows it.
func explained(s object) object {
	text, ok := s[wanted].(string)
	core := object{}
	for _, key := range []string{"pattern", "anyOf", wanted} {
		if v, ok := s[key]; ok {
			core[key] = v
			delete(s, key)
		}
	}
	delete(core, wanted)
	if list, isAny := core["anyOf"].([]any); isAny {
		for i, p := range list {
			p := p.(object)
			if then, conditional := p["then"].(object); conditional {
				text, ok = then["const"].(string), true
				not := p["if"].(object)["not"].(object)
				if p["type"] != nil {
					not["type"] = p["type"]
				}
				list[i] = not
			}
		}
	}
	if !ok {
		maps.Copy(s, core)
		return s
	}
	s["if"], s["then"] = object{"not": core}, object{"const": text}
	return s
}

// open returns a schema that accepts unknown keys.
func open(s object) object {
	out := maps.Clone(s)
	if out["additionalProperties"] == false {
		delete(out, "additionalProperties")
	}
	if below, ok := out["properties"].(object); ok {
		below = maps.Clone(below)
		for name, p := range below {
			below[name] = open(p.(object))
		}
		out["properties"] = below
	}
	return out
}

// wanted is the keyword of the description of a pattern.
const wanted = "patternErrorMessage"

// quantity is the form of a quantity of Kubernetes.
const quantity = `^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$`

// resources returns the schema of resource requirements.
func resources(about string) object {
	list := object{"type": []any{"object", "null"}, "additionalProperties": explained(object{
		"type": []any{"string", "number", "null"}, "pattern": quantity, wanted: "a quantity such as 100m, 1 or 128Mi",
	})}
	return object{
		"description": about, "type": []any{"object", "null"}, "additionalProperties": false, "properties": object{
			"requests": list, "limits": list, "claims": object{"type": []any{"array", "null"}},
		},
	}
}

package main

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/assay-project/assay/settings"
)

// property is the used part of JSON Schema (draft 7, which Helm 3 and 4 support).
type property struct {
	Schema      string               `json:"$schema,omitempty"`
	Title       string               `json:"title,omitempty"`
	Description string               `json:"description,omitempty"`
	Type        any                  `json:"type,omitempty"`
	Enum        []string             `json:"enum,omitempty"`
	Minimum     *int                 `json:"minimum,omitempty"`
	Maximum     *int                 `json:"maximum,omitempty"`
	Pattern     string               `json:"pattern,omitempty"`
	Items       *property            `json:"items,omitempty"`
	Properties  map[string]*property `json:"properties,omitempty"`
	Additional  *bool                `json:"additionalProperties,omitempty"`

	config map[string]any // the schema of a configuration, which replaces all fields
}

// MarshalJSON implements json.Marshaler.
func (p *property) MarshalJSON() ([]byte, error) {
	if p.config != nil {
		return json.Marshal(p.config)
	}
	type plain property
	return json.Marshal((*plain)(p))
}

// schema returns values.schema.json. It is strict: it rejects keys that values.yaml does not have, except below values that
// accept any key.
func (v *value) schema() ([]byte, error) {
	root, err := v.property()
	if err != nil {
		return nil, err
	}
	root.Schema, root.Title, root.Type = "http://json-schema.org/draft-07/schema#", "Values of Assay's chart", "object"
	data, err := json.MarshalIndent(root, "", "  ")
	return append(data, '\n'), err
}

func (v *value) property() (*property, error) {
	if v.settings() {
		schema := settings.Properties()
		schema["description"], schema["type"] = v.about, []string{"object", "null"}
		return &property{config: schema}, nil
	}
	p := &property{Description: v.about, Pattern: v.hints["pattern"]}
	if v.path != "" {
		types, err := v.types()
		if err != nil {
			return nil, err
		}
		p.Type = types
		if len(types) == 1 {
			p.Type = types[0]
		}
	}
	p.Enum = list(v.hints["enum"])
	if pattern := v.hints["items"]; pattern != "" {
		p.Items = &property{Type: "string", Pattern: pattern}
	}
	var err error
	if p.Minimum, err = v.number("min"); err != nil {
		return nil, err
	}
	if p.Maximum, err = v.number("max"); err != nil {
		return nil, err
	}
	if len(v.below) == 0 {
		return p, nil
	}
	p.Additional, p.Properties = new(bool), map[string]*property{}
	for _, child := range v.below {
		if p.Properties[child.name], err = child.property(); err != nil {
			return nil, err
		}
		if alias := child.hints["alias"]; alias != "" {
			p.Properties[alias] = p.Properties[child.name].alias(child.name)
		}
	}
	for _, name := range list(v.hints["accepts"]) {
		p.Properties[name] = &property{Description: "Accepted from Node Feature Discovery, without a meaning."}
	}
	return p, nil
}

// alias returns the property for an alias of a value, which is null unless set.
func (p *property) alias(of string) *property {
	types, ok := p.Type.([]string)
	if !ok {
		types = []string{p.Type.(string), "null"}
	}
	return &property{Description: "Another name of " + of + ", which wins where both are set.", Type: types}
}

// list splits the value of a hint at commas.
func list(hint string) []string {
	return strings.FieldsFunc(hint, func(r rune) bool { return r == ',' || r == ' ' })
}

func (v *value) number(hint string) (*int, error) {
	text, ok := v.hints[hint]
	if !ok {
		return nil, nil
	}
	n, err := strconv.Atoi(text)
	return &n, err
}

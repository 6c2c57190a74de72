package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/assay-project/assay/internal/config"
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
	If          *property            `json:"if,omitempty"`
	Then        *property            `json:"then,omitempty"`
	Not         *property            `json:"not,omitempty"`
	Pattern     string               `json:"pattern,omitempty"`
	Const       string               `json:"const,omitempty"`
	Items       *property            `json:"items,omitempty"`
	Properties  map[string]*property `json:"properties,omitempty"`
	Additional  *bool                `json:"additionalProperties,omitempty"`

	other map[string]any // a schema with other keywords, which replaces all fields
}

// MarshalJSON implements json.Marshaler.
func (p *property) MarshalJSON() ([]byte, error) {
	if p.other != nil {
		return json.Marshal(p.other)
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
	if name, ok := v.hints["config"]; ok {
		schema, err := configuration(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.path, err)
		}
		schema["description"] = v.about
		if known, ok := schema["properties"].(object); ok && v.settings() {
			delete(known, ofChart)
		}
		return &property{other: schema}, nil
	}
	if _, ok := v.hints["resources"]; ok {
		return &property{other: resources(v.about)}, nil
	}
	p := &property{Description: v.about}
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
	if _, ok := v.hints["duration"]; ok {
		p.must(duration)
	}
	if pattern := v.hints["pattern"]; pattern != "" {
		p.must(form{pattern, v.hints["wanted"]})
	}
	if pattern := v.hints["items"]; pattern != "" {
		p.Items = &property{Type: "string"}
		p.Items.must(form{pattern, v.hints["wanted"]})
	}
	p.Enum = list(v.hints["enum"])
	for _, name := range list(v.hints["durations"]) {
		interval := &property{Type: []string{"string", "null"}}
		interval.must(duration)
		p.Properties = map[string]*property{name: interval}
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
		if of := child.hints["like"]; of != "" {
			p.Properties[child.name].Properties = p.Properties[of].lenient()
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

// form is the regular expression of a string and what it means.
type form struct{ pattern, wanted string }

var duration = form{"^$|" + config.DurationPattern, config.DurationForm}

// must rejects strings of another form. Helm's message about a pattern shows the pattern; a constant that is required instead of a string
// with a wrong form makes it say what is wanted.
func (p *property) must(f form) {
	p.If = &property{Type: "string", Not: &property{Pattern: f.pattern}}
	p.Then = &property{Const: f.wanted}
}

// lenient returns the properties below p that more than their type restricts, for values of another chart: with null, and unknown keys
// below them.
func (p *property) lenient() map[string]*property {
	out := map[string]*property{}
	for name, below := range p.Properties {
		switch {
		case below.other != nil:
			out[name] = &property{other: open(below.other)}
		case below.If != nil && below.Type == "string":
			out[name] = &property{Description: below.Description, Type: []string{"string", "null"}, If: below.If, Then: below.Then}
		}
	}
	return out
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

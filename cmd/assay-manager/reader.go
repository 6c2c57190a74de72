package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// maxConfigBytes bounds a configuration: a ConfigMap holds at most 1 MiB.
	maxConfigBytes = 1 << 20
	// maxConfigDepth bounds how deep it is nested, aliases included. The deepest key we know lies four deep.
	maxConfigDepth = 16
)

// reader lays a YAML document over a struct. It collects all mistakes, each with its line and column, rather than stop at the
// first; unknown keys are warnings, as long as NFD's users have keys that we do not know.
type reader struct {
	origin   string
	errs     []error
	warnings []string
}

// value is a field that reads itself from text.
type value interface{ set(text string) error }

func (r *reader) read(data []byte, into any) {
	if len(data) > maxConfigBytes {
		r.errs = append(r.errs, fmt.Errorf("%s: %d bytes are more than the %d that a configuration may have", r.origin, len(data), maxConfigBytes))
		return
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		// The YAML library knows the line only.
		r.errs = append(r.errs, fmt.Errorf("%s: %s", r.origin, strings.TrimPrefix(err.Error(), "yaml: ")))
		return
	}
	if len(doc.Content) > 0 {
		r.overlay(doc.Content[0], reflect.ValueOf(into).Elem(), "", maxConfigDepth)
	}
}

func (r *reader) fail(n *yaml.Node, path, format string, args ...any) {
	if path != "" {
		path += ": "
	}
	r.errs = append(r.errs, fmt.Errorf("%s:%d:%d: %s%s", r.origin, n.Line, n.Column, path, fmt.Sprintf(format, args...)))
}

func (r *reader) overlay(n *yaml.Node, v reflect.Value, path string, depth int) {
	if depth == 0 {
		r.fail(n, path, "nested too deep")
		return
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if s, ok := v.Addr().Interface().(value); ok {
		r.text(n, s, path)
		return
	}
	switch v.Addr().Interface().(type) {
	case **metav1.LabelSelector:
		r.selector(n, v, path)
		return
	case *ignored:
		r.warnings = append(r.warnings, fmt.Sprintf("%s:%d: %s has no effect any more", r.origin, n.Line, path))
		return
	}
	if v.Kind() == reflect.Struct {
		r.mapping(n, v, path, depth)
		return
	}
	if err := n.Decode(v.Addr().Interface()); err != nil {
		r.fail(n, path, "must be %s, not %s", kindInWords(v.Type()), shown(n))
	}
}

func (r *reader) text(n *yaml.Node, s value, path string) {
	if n.Kind != yaml.ScalarNode {
		r.fail(n, path, "must be a text, not %s", shown(n))
		return
	}
	if err := s.set(n.Value); err != nil {
		r.fail(n, path, "%v", err)
	}
}

// mapping reads the keys of a struct. Case does not matter, as in NFD.
func (r *reader) mapping(n *yaml.Node, v reflect.Value, path string, depth int) {
	if n.Kind != yaml.MappingNode {
		if path == "" {
			path = "the configuration"
		}
		r.fail(n, path, "must be keys with values, not %s", shown(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		field := fieldNamed(v, key.Value)
		switch {
		case !field.IsValid():
			r.warnings = append(r.warnings, fmt.Sprintf("%s:%d:%d: %s is not known and has no effect", r.origin, key.Line, key.Column, at))
		case seen[strings.ToLower(key.Value)]:
			r.fail(key, at, "is there twice")
		default:
			seen[strings.ToLower(key.Value)] = true
			r.overlay(n.Content[i+1], field, at, depth-1)
		}
	}
}

func fieldNamed(v reflect.Value, key string) reflect.Value {
	return v.FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, key) })
}

func (r *reader) selector(n *yaml.Node, v reflect.Value, path string) {
	var tree any
	s := &metav1.LabelSelector{}
	err := n.Decode(&tree)
	if err == nil {
		var data []byte
		if data, err = json.Marshal(tree); err == nil {
			d := json.NewDecoder(strings.NewReader(string(data)))
			d.DisallowUnknownFields()
			err = d.Decode(s)
		}
	}
	if err == nil {
		_, err = metav1.LabelSelectorAsSelector(s)
	}
	if err != nil {
		r.fail(n, path, "must be a label selector: %v", err)
		return
	}
	v.Set(reflect.ValueOf(s))
}

func kindInWords(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list of texts"
	case reflect.Map:
		return "names with true or false"
	}
	return "a text"
}

func shown(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "keys with values"
	case yaml.SequenceNode:
		return "a list"
	}
	return fmt.Sprintf("%q", n.Value)
}

// ignored is a key that NFD has or had, and that means nothing here.
type ignored struct{}

// duration is a time.Duration as NFD writes it: 1h30m.
type duration time.Duration

func (d *duration) set(text string) error {
	parsed, err := time.ParseDuration(text)
	if err != nil || parsed < 0 {
		return fmt.Errorf("%q is no duration; write one like 90s, 10m or 1h", text)
	}
	*d = duration(parsed)
	return nil
}

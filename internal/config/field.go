package config

import (
	"fmt"
	"reflect"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/yamltree"
)

// Section returns a field that contains keys.
func Section(keys Keys) Field { return Field{keys: keys} }

// Into returns a field whose value is stored in a variable: a string, boolean, number or duration, or lists and maps of these. Null
// does not change the variable; a list or map replaces the previous one.
func Into[T any](variable *T) Field {
	return Parsed(func(v T) error {
		*variable = v
		return nil
	})
}

// Parsed returns a field whose value is passed to a function. The function's error is reported at the position of the value.
func Parsed[T any](set func(T) error) Field {
	return Field{read: func(r *reader, n *yaml.Node, path string) {
		if yamltree.IsNull(n) {
			return
		}
		var v T
		before := r.errs
		r.value(n, reflect.ValueOf(&v).Elem(), path)
		if r.errs > before {
			return
		}
		if err := set(v); err != nil {
			r.errorf(n, path, "%v", err)
		}
	}}
}

// Advised returns a field with warnings about strings in its value that have no effect as they are. advise returns the warning about a
// string, or "" if there is none.
func Advised(f Field, advise func(text string) string) Field {
	return Field{keys: f.keys, read: func(r *reader, n *yaml.Node, path string) {
		before := r.errs
		f.read(r, n, path)
		if r.errs == before {
			r.advise(n, path, advise)
		}
	}}
}

func (r *reader) advise(n *yaml.Node, path string, advise func(text string) string) {
	switch {
	case n.Kind == yaml.SequenceNode:
		for i, item := range n.Content {
			r.advise(item, path+"["+strconv.Itoa(i)+"]", advise)
		}
	case n.Kind == yaml.ScalarNode && !yamltree.IsNull(n):
		if text := advise(n.Value); text != "" {
			r.warnf(n, path, "%s", text)
		}
	}
}

// Tree returns a field whose node is passed to a function; nil for null.
func Tree(set func(n *yaml.Node) error) Field {
	return Field{read: func(r *reader, n *yaml.Node, path string) {
		if yamltree.IsNull(n) {
			n = nil
		}
		if err := set(n); err != nil {
			r.errorf(n, path, "%v", err)
		}
	}}
}

// Deprecated returns a field with an old name. Using it causes a warning with the new name.
func Deprecated(instead string, f Field) Field {
	return Field{keys: f.keys, read: func(r *reader, n *yaml.Node, path string) {
		r.warnf(n, path, "deprecated: write %s", instead)
		f.read(r, n, path)
	}}
}

// Ignored returns a field that has no effect. Using it causes a warning with the reason.
func Ignored(why string) Field {
	return Field{read: func(r *reader, n *yaml.Node, path string) {
		if !yamltree.IsNull(n) {
			r.warnf(n, path, "has no effect: %s", why)
		}
	}}
}

// DurationPattern is the regular expression of the strings that Duration accepts, for JSON Schemas. Durations of more than a century have
// its form too, and are errors.
const DurationPattern = `^(\+?0|\+?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`

// DurationForm says what DurationPattern means.
const DurationForm = "a duration such as 90s, 10m or 1h"

// Duration parses a duration. Negative durations are errors.
func Duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("invalid duration %q: use for example 90s, 10m or 1h", short(text))
	}
	return d, nil
}

var durationType = reflect.TypeFor[time.Duration]()

// value reads a node into a variable.
func (r *reader) value(n *yaml.Node, v reflect.Value, path string) {
	switch {
	case yamltree.IsNull(n):
	case v.Type() == durationType:
		if n.Kind != yaml.ScalarNode {
			r.expected(n, path, DurationForm)
			return
		}
		d, err := Duration(n.Value)
		if err != nil {
			r.errorf(n, path, "%v", err)
		}
		v.SetInt(int64(d))
	case v.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			r.value(item, v.Index(i), path+"["+strconv.Itoa(i)+"]")
		}
	case v.Kind() == reflect.Map && n.Kind == yaml.MappingNode:
		v.Set(reflect.MakeMap(v.Type()))
		for i := 0; i+1 < len(n.Content); i += 2 {
			item := reflect.New(v.Type().Elem()).Elem()
			r.value(n.Content[i+1], item, join(path, n.Content[i].Value))
			v.SetMapIndex(reflect.ValueOf(n.Content[i].Value), item)
		}
	case v.Kind() == reflect.String && n.Kind == yaml.ScalarNode:
		v.SetString(n.Value)
	case n.Kind != yaml.ScalarNode || v.Kind() == reflect.String || n.Decode(v.Addr().Interface()) != nil:
		r.expected(n, path, kind(v.Type(), ""))
	}
}

// kind describes a type; s is a plural ending for the elements of lists and maps.
func kind(t reflect.Type, s string) string {
	article := "a "
	if s != "" {
		article = ""
	}
	switch t.Kind() {
	case reflect.Slice:
		return article + "list" + s + " of " + kind(t.Elem(), "s")
	case reflect.Map:
		return article + "map" + s + " of " + kind(t.Elem(), "s")
	case reflect.Bool:
		if s != "" {
			return "booleans"
		}
		return "true or false"
	case reflect.Int:
		return article + "whole number" + s
	case reflect.Float64:
		return article + "number" + s
	}
	return article + "string" + s
}

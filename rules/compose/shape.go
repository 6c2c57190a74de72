package compose

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/yamltree"
)

// FieldError is an error at a position of a document.
type FieldError struct {
	Document     string
	Line, Column int
	Path         string
	Problem      string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s: %s", e.Document, e.Line, e.Column, e.Path, e.Problem)
}

// CheckFields returns an error for each unknown field of the document's spec. The API server would drop a misspelled field, and a
// rule without a matcher matches more nodes.
func (d *YAML) CheckFields() error {
	w := shapeWalker{origin: func(*yaml.Node) string { return d.ID }}
	w.walk(d.Spec, specType, "spec")
	return w.problems.orNil()
}

// checkShape returns an error for each field that is unknown or has a value of the wrong type.
func checkShape(spec *yaml.Node, origin func(*yaml.Node) string) Errors {
	w := shapeWalker{origin: origin, types: true}
	w.walk(spec, specType, "spec")
	return w.problems
}

var specType = reflect.TypeFor[nfdv1alpha1.NodeFeatureRuleSpec]()

// notInCluster are fields that files may have in addition to those of the API.
var notInCluster = map[reflect.Type][]string{
	reflect.TypeFor[nfdv1alpha1.TemplateSource](): {"file"},
}

// shapeWalker compares a tree with a Go type by its JSON names.
type shapeWalker struct {
	origin   func(*yaml.Node) string
	types    bool // whether to report wrong types as well as unknown fields
	problems Errors
}

func (w *shapeWalker) report(n *yaml.Node, path, format string, args ...any) {
	w.problems = append(w.problems, &FieldError{Document: w.origin(n), Line: n.Line, Column: n.Column, Path: path, Problem: fmt.Sprintf(format, args...)})
}

func (w *shapeWalker) walk(n *yaml.Node, t reflect.Type, path string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == rawJSON || yamltree.IsNull(n) {
		return
	}
	var want string
	switch t.Kind() {
	case reflect.Struct:
		if _, custom := reflect.New(t).Interface().(json.Unmarshaler); custom {
			want = "string" // a time
			break
		}
		if n.Kind == yaml.MappingNode {
			w.fields(n, t, path)
			return
		}
		want = "map"
	case reflect.Map:
		if n.Kind == yaml.MappingNode {
			for i := 0; i < len(n.Content); i += 2 {
				w.walk(n.Content[i+1], t.Elem(), path+"["+n.Content[i].Value+"]")
			}
			return
		}
		want = "map"
	case reflect.Slice:
		if n.Kind == yaml.SequenceNode {
			for i, item := range n.Content {
				w.walk(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
			}
			return
		}
		want = "list"
	case reflect.String:
		want = "string"
	case reflect.Bool:
		want = "boolean"
	default:
		want = "number"
	}
	if got := yamltree.Type(n); w.types && got != want {
		hint := ""
		if want == "string" && n.Kind == yaml.ScalarNode {
			hint = "; quote it"
		}
		w.report(n, path, "expected a %s, found a %s%s", want, got, hint)
	}
}

func (w *shapeWalker) fields(n *yaml.Node, t reflect.Type, path string) {
	known := slices.Clone(notInCluster[t])
	types := map[string]reflect.Type{}
	for _, f := range fieldsOf(t) {
		known = append(known, f.name)
		types[f.name] = t.Field(f.index).Type
	}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		field := path + "." + key.Value
		switch {
		case t == specType && key.Value == "basedOn": // has its own notation, see parseRef
		case types[key.Value] != nil:
			w.walk(value, types[key.Value], field)
		case !slices.Contains(known, key.Value):
			w.report(key, field, "unknown field%s", yamltree.DidYouMean(key.Value, known))
		}
	}
}

package manifest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/yamltree"
)

// Decode decodes into out, a pointer to the type of the document's kind, and returns a problem for each field that is unknown or of
// the wrong type. It omits these fields, so that the others can still be checked.
func (d *Document) Decode(out any) []Problem { return d.DecodeNode(d.Root, "", out) }

// DecodeNode is like Decode, for a part of the document with the given path.
func (d *Document) DecodeNode(n *yaml.Node, path string, out any) []Problem {
	w := &walker{doc: d}
	clean := w.walk(n, reflect.TypeOf(out).Elem(), path)
	if clean == nil {
		return w.problems
	}
	if err := json.Unmarshal(yamltree.JSON(clean), out); err != nil {
		w.problem(n, Error, "type", path, "%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return w.problems
}

// walker compares a tree with a Go type by its JSON names.
type walker struct {
	doc      *Document
	problems []Problem
}

func (w *walker) problem(n *yaml.Node, s Severity, code, path, format string, args ...any) {
	at := yamltree.At(n)
	if n == w.doc.Root {
		at.Column = 0
	}
	w.problems = append(w.problems, Problem{
		Position: at, Severity: s, Code: code, Path: w.doc.prefix + path, Object: w.doc.Title(), Message: fmt.Sprintf(format, args...),
	})
}

// wrong records an error and marks the node, so that consequences of the error are not reported.
func (w *walker) wrong(n *yaml.Node, code, path, format string, args ...any) *yaml.Node {
	w.problem(n, Error, code, path, format, args...)
	w.doc.bad[n] = true
	return nil
}

// Announcement begins the last part of messages about input that assay lint can rewrite.
const Announcement = "; assay lint --fix "

// fixable is the last part of messages about short forms.
const fixable = Announcement + "writes it out"

var (
	baseType       = reflect.TypeFor[nfdv1alpha1.Base]()
	ruleType       = reflect.TypeFor[nfdv1alpha1.Rule]()
	termType       = reflect.TypeFor[nfdv1alpha1.FeatureMatcherTerm]()
	setType        = reflect.TypeFor[nfdv1alpha1.MatchExpressionSet]()
	expressionType = reflect.TypeFor[nfdv1alpha1.MatchExpression]()
	valueType      = reflect.TypeFor[nfdv1alpha1.MatchValue]()
	unmarshaler    = reflect.TypeFor[json.Unmarshaler]()
)

// walk returns the tree without the parts of the wrong type, or nil if nothing is left.
func (w *walker) walk(n *yaml.Node, t reflect.Type, path string) *yaml.Node {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if why := w.tagged(n); why != "" {
		return w.wrong(n, "yaml-tag", path, "%s", why)
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return w.opaque(n, path)
	}
	if yamltree.IsNull(n) {
		return w.null(n, t, path)
	}
	switch t.Kind() {
	case reflect.Struct:
		return w.object(n, t, path)
	case reflect.Map:
		return w.mapping(n, t, path)
	case reflect.Slice:
		return w.list(n, t, path)
	case reflect.String:
		return w.text(n, path)
	case reflect.Bool:
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
			return w.wrong(n, "type", path, "expected true or false, found %s", yamltree.Describe(n))
		}
	case reflect.Interface:
	default:
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" && n.ShortTag() != "!!float" {
			return w.wrong(n, "type", path, "expected a number, found %s", yamltree.Describe(n))
		}
	}
	return n
}

// opaque reports only values that YAML misreads.
func (w *walker) opaque(n *yaml.Node, path string) *yaml.Node {
	for i, c := range n.Content {
		if why := w.tagged(c); why != "" {
			w.problem(c, Error, "yaml-tag", path, "%s", why)
		} else if n.Kind == yaml.MappingNode && i%2 == 1 {
			w.opaque(c, path+"."+n.Content[i-1].Value)
		} else if n.Kind == yaml.SequenceNode {
			w.opaque(c, fmt.Sprintf("%s[%d]", path, i))
		}
	}
	return n
}

func (w *walker) null(n *yaml.Node, t reflect.Type, path string) *yaml.Node {
	if t == expressionType {
		return w.wrong(n, "type", path, "an empty expression matches any value; write {op: Exists}%s", fixable)
	}
	if t.Kind() == reflect.String && strings.HasSuffix(path, "]") && n.Value == "" {
		w.problem(n, Warning, "type", path, `the value is missing, so the API server drops the key; write "" for an empty string`)
	}
	return n
}

// braces returns the start of a line, up to the brace that closes the first one.
func braces(line string) string {
	open := 0
	for i, r := range line {
		switch r {
		case '{':
			open++
		case '}':
			if open--; open == 0 {
				return line[:i+1]
			}
		}
	}
	return strings.TrimSpace(line)
}

// hasValues reports whether a map in braces has values, so that its author meant a map and not a string expression.
func hasValues(n *yaml.Node) bool {
	for i := 1; i < len(n.Content); i += 2 {
		if !yamltree.IsNull(n.Content[i]) {
			return true
		}
	}
	return false
}

func (w *walker) text(n *yaml.Node, path string) *yaml.Node {
	if n.Kind == yaml.MappingNode && n.Style&yaml.FlowStyle != 0 && !hasValues(n) {
		source := braces(w.doc.file.text.From(yamltree.At(n)))
		return w.wrong(n, "type", path, "expected a string, but YAML reads { as a map; quote it: %q", source)
	}
	if n.Kind != yaml.ScalarNode {
		return w.wrong(n, "type", path, "expected a string, found %s", yamltree.Describe(n))
	}
	if n.ShortTag() != "!!str" && n.ShortTag() != "!!timestamp" {
		return w.wrong(n, "type", path, "expected a string, found %s; quote it: %q", yamltree.Describe(n), n.Value)
	}
	if yamltree.OldBoolean(n) {
		return w.wrong(n, "type", path, "kubectl reads %s as a boolean; quote it: %q", n.Value, n.Value)
	}
	return n
}

func (w *walker) list(n *yaml.Node, t reflect.Type, path string) *yaml.Node {
	if n.Kind != yaml.SequenceNode {
		hint := ""
		if t == valueType && n.Kind == yaml.ScalarNode {
			hint = fixable
		}
		return w.wrong(n, "type", path, "expected a list, found %s%s", yamltree.Describe(n), hint)
	}
	out := *n
	out.Content = make([]*yaml.Node, len(n.Content))
	for i, item := range n.Content {
		out.Content[i] = w.walk(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		if out.Content[i] == nil { // keeps the indexes of the other items
			out.Content[i] = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
		}
	}
	return &out
}

func (w *walker) mapping(n *yaml.Node, t reflect.Type, path string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		hint := ""
		if t == setType && n.Kind == yaml.SequenceNode && plain(n) {
			hint = fixable
		}
		return w.wrong(n, "type", path, "expected a map, found %s%s", yamltree.Describe(n), hint)
	}
	out := *n
	out.Content = nil
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		field := path + "[" + key.Value + "]"
		if yamltree.OldBoolean(key) {
			w.wrong(key, "type", field, "kubectl reads the key %s as a boolean; quote it: %q", key.Value, key.Value)
			continue
		}
		if clean := w.walk(value, t.Elem(), field); clean != nil {
			out.Content = append(out.Content, key, clean)
		}
	}
	return &out
}

func (w *walker) object(n *yaml.Node, t reflect.Type, path string) *yaml.Node {
	if t == baseType && n.Kind == yaml.ScalarNode {
		return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{
			{Kind: yaml.ScalarNode, Tag: "!!str", Value: "name"}, {Kind: yaml.ScalarNode, Tag: "!!str", Value: n.Value},
		}}
	}
	if n.Kind != yaml.MappingNode {
		hint := ""
		if t == expressionType && plain(n) {
			hint = fixable
		}
		return w.wrong(n, "type", path, "expected a map of fields, found %s%s", yamltree.Describe(n), hint)
	}
	known := fieldsOf(t)
	out := *n
	out.Content = nil
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		field := strings.TrimPrefix(path+"."+key.Value, ".")
		ft, ok := known.types[key.Value]
		if !ok {
			w.unknown(n, key, t, known.names, field)
			continue
		}
		if clean := w.walk(value, ft, field); clean != nil {
			out.Content = append(out.Content, key, clean)
		}
	}
	return &out
}

// plain reports whether a value is a scalar or a list of scalars, which can be converted to the long form.
func plain(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode ||
		n.Kind == yaml.SequenceNode && !slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return c.Kind != yaml.ScalarNode })
}

// valueOf returns the value of a key in a mapping.
func valueOf(mapping, key *yaml.Node) *yaml.Node {
	return mapping.Content[slices.Index(mapping.Content, key)+1]
}

// unknown reports an unknown field. The API server would drop it, and a rule without a matcher matches more nodes.
func (w *walker) unknown(parent, key *yaml.Node, t reflect.Type, names []string, path string) {
	hint := yamltree.DidYouMean(key.Value, names)
	switch {
	case t == baseType && (key.Value == "file" || key.Value == "url"):
		at := valueOf(parent, key)
		w.wrong(key, "base", path, "only assay template reads the base %s: use the output of assay template copy --embed-all FILE", at.Value)
		return
	case t == termType && strings.Contains(key.Value, "."):
		hint = "; the short form of a term is for the worker's configuration, here it is feature: and matchExpressions:" + fixable
	case t == expressionType && key.Value == "values":
		hint = "; did you mean value?" + Announcement + "renames it"
	case t == ruleType && key.Value == "matchOn":
		hint = "; matchOn is for the worker's configuration"
		if list := valueOf(parent, key); list.Kind == yaml.SequenceNode && !plain(list) {
			hint += fixable
		}
	case t == ruleType && (key.Value == "value" || key.Value == "feature"):
		hint = "; it belongs into an entry of matchFeatures"
	}
	w.wrong(key, "unknown-field", path, "unknown field %q%s", key.Value, hint)
	if t == termType || t == expressionType { // without the unknown field, it would have another meaning
		w.doc.bad[parent] = true
	}
}

// fieldSet holds the fields of a struct, including those of embedded structs.
type fieldSet struct {
	names []string
	types map[string]reflect.Type
}

var fieldCache sync.Map // reflect.Type -> *fieldSet

func fieldsOf(t reflect.Type) *fieldSet {
	if cached, ok := fieldCache.Load(t); ok {
		return cached.(*fieldSet)
	}
	s := &fieldSet{types: map[string]reflect.Type{}}
	for i := range t.NumField() {
		f := t.Field(i)
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case f.Anonymous && name == "" || rest == "inline":
			inner := fieldsOf(f.Type)
			s.names = append(s.names, inner.names...)
			for n, t := range inner.types {
				s.types[n] = t
			}
		case name != "":
			s.names = append(s.names, name)
			s.types[name] = f.Type
		}
	}
	slices.Sort(s.names)
	fieldCache.Store(t, s)
	return s
}

package manifest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/suggest"
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
		// walk has checked each value alone, so the decoder has only its own limits left.
		w.problem(n, Error, "type", path, "the object cannot be decoded: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return w.problems
}

// CheckSpec returns an error for each field of the spec of a NodeFeatureRule that is unknown or has a value of the wrong type. The spec is
// that of a file for assay template: its bases have a notation of their own and are not checked, and templates can be in other files.
// file returns the name of the file that a node comes from.
func CheckSpec(spec *yaml.Node, file func(*yaml.Node) string) []Problem {
	w := &walker{doc: newDocument(&File{}, spec, ""), fileOf: file}
	w.walk(spec, specType, "spec")
	return slices.DeleteFunc(w.problems, func(p Problem) bool { return p.Severity != Error })
}

// walker compares a tree with a Go type by its JSON names.
type walker struct {
	doc      *Document
	fileOf   func(*yaml.Node) string // set for the spec of a file for assay template
	problems []Problem
	levels   []level              // structs around the current node, outermost first
	first    map[string]*repeated // problems that later entries of a list may have too
}

func (w *walker) problem(n *yaml.Node, s Severity, code, path, format string, args ...any) {
	at := yamltree.At(n)
	if n == w.doc.Root {
		at.Column = 0
	}
	p := Problem{
		Position: at, Severity: s, Code: code, Path: w.doc.prefix + path, Object: w.doc.Title(), Message: fmt.Sprintf(format, args...),
	}
	if w.fileOf != nil {
		p.File = w.fileOf(n)
	}
	w.problems = append(w.problems, p)
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
	specType       = reflect.TypeFor[nfdv1alpha1.NodeFeatureRuleSpec]()
	sourceType     = reflect.TypeFor[nfdv1alpha1.TemplateSource]()
	baseType       = reflect.TypeFor[nfdv1alpha1.Base]()
	ruleType       = reflect.TypeFor[nfdv1alpha1.Rule]()
	termType       = reflect.TypeFor[nfdv1alpha1.FeatureMatcherTerm]()
	setType        = reflect.TypeFor[nfdv1alpha1.MatchExpressionSet]()
	expressionType = reflect.TypeFor[nfdv1alpha1.MatchExpression]()
	valueType      = reflect.TypeFor[nfdv1alpha1.MatchValue]()
	conditionType  = reflect.TypeFor[nfdv1alpha1.Condition]()
	alternative    = reflect.TypeFor[nfdv1alpha1.MatchAnyElem]()
	selectorType   = reflect.TypeFor[metav1.LabelSelector]()
	durationType   = reflect.TypeFor[metav1.Duration]()
	timeType       = reflect.TypeFor[metav1.Time]()
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
	if t == durationType && !yamltree.IsNull(n) {
		return w.duration(n, path)
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return w.opaque(n, t, path)
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
		return w.number(n, t, path)
	}
	return n
}

func (w *walker) number(n *yaml.Node, t reflect.Type, path string) *yaml.Node {
	switch {
	case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" && n.ShortTag() != "!!float":
		return w.wrong(n, "type", path, "expected a number, found %s", yamltree.Describe(n))
	case json.Unmarshal(yamltree.JSON(n), reflect.New(t).Interface()) != nil:
		return w.wrong(n, "type", path, "expected a whole number of %d bits, found %s", t.Bits(), n.Value)
	}
	return n
}

// duration checks a duration, which the API server accepts in the form of the CRDs only.
func (w *walker) duration(n *yaml.Node, path string) *yaml.Node {
	if err := CheckDuration(n.Value); err != nil || n.Kind != yaml.ScalarNode {
		if n.Kind != yaml.ScalarNode {
			return w.wrong(n, "type", path, "expected a duration such as 90s, 10m or 1h, found %s", yamltree.Describe(n))
		}
		return w.wrong(n, "type", path, "%s", err)
	}
	return n
}

// opaque reports values that YAML misreads, and those that the type does not decode.
func (w *walker) opaque(n *yaml.Node, t reflect.Type, path string) *yaml.Node {
	w.misread(n, path)
	if json.Unmarshal(yamltree.JSON(n), reflect.New(t).Interface()) == nil {
		return n
	}
	if t == timeType {
		return w.wrong(n, "type", path, "expected a time such as 2026-01-31T12:00:00Z, found %s", yamltree.Describe(n))
	}
	return w.wrong(n, "type", path, "invalid value: found %s", yamltree.Describe(n))
}

// misread reports only values that YAML misreads.
func (w *walker) misread(n *yaml.Node, path string) {
	for i, c := range n.Content {
		if why := w.tagged(c); why != "" {
			w.problem(c, Error, "yaml-tag", path, "%s", why)
		} else if n.Kind == yaml.MappingNode && i%2 == 1 {
			w.misread(c, path+"."+n.Content[i-1].Value)
		} else if n.Kind == yaml.SequenceNode {
			w.misread(c, fmt.Sprintf("%s[%d]", path, i))
		}
	}
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
		source := cmp.Or(braces(w.doc.file.text.From(yamltree.At(n))), flow(n))
		return w.wrong(n, "type", path, "expected a string, but YAML reads { as a map; quote it: %q", source)
	}
	if n.Kind != yaml.ScalarNode {
		return w.wrong(n, "type", path, "expected a string, found %s", yamltree.Describe(n))
	}
	if n.ShortTag() != "!!str" && n.ShortTag() != "!!timestamp" {
		if w.doc.json {
			// JSON has the value that YAML made of the text, not the text.
			return w.wrong(n, "type", path, "expected a string, found %s; without quotes, YAML reads 0200 as 128 and yes as true: "+
				"quote what you wrote, assay lint shows it", yamltree.Describe(n))
		}
		return w.wrong(n, "type", path, "expected a string, found %s; quote it: %q", yamltree.Describe(n), n.Value)
	}
	if yamltree.OldBoolean(n) {
		return w.wrong(n, "type", path, "kubectl reads %s as a boolean; quote it: %q", n.Value, n.Value)
	}
	return n
}

func (w *walker) list(n *yaml.Node, t reflect.Type, path string) *yaml.Node {
	if t.Elem() == baseType && n.Kind == yaml.ScalarNode && w.doc.FileBases && Locator(n.Value) {
		n = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: n.Line, Column: n.Column, Content: []*yaml.Node{n}}
	}
	if n.Kind != yaml.SequenceNode {
		hint := listForm(n, t.Elem())
		switch {
		case t == valueType && n.Kind == yaml.ScalarNode:
			hint = fixable
		case t.Elem() == baseType && n.Kind == yaml.ScalarNode:
			hint = fmt.Sprintf("; write [{name: %s}] for the NodeFeatureRuleTemplate of this name", n.Value)
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
	if t == baseType && n.Kind == yaml.MappingNode && w.doc.FileBases {
		if file := Field(n, "file"); file != nil && Field(n, "name") == nil {
			named := *n
			named.Content = slices.Clone(n.Content)
			named.Content[slices.Index(n.Content, file)-1] = yamltree.Quoted("name")
			w.doc.fromFiles, n = true, &named
		}
	}
	if t == baseType && n.Kind == yaml.ScalarNode {
		w.doc.fromFiles = w.doc.fromFiles || w.doc.FileBases && Locator(n.Value)
		return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{
			{Kind: yaml.ScalarNode, Tag: "!!str", Value: "name"}, {Kind: yaml.ScalarNode, Tag: "!!str", Value: n.Value},
		}}
	}
	if n.Kind != yaml.MappingNode {
		hint := ""
		switch {
		case t == expressionType && plain(n):
			hint = fixable
		case t == conditionType && yamltree.IsString(n):
			hint = conditionForm(n.Value)
		case n.Kind == yaml.SequenceNode && len(n.Content) == 1 && n.Content[0].Kind == yaml.MappingNode:
			hint = "; write its entry without the dash"
		}
		return w.wrong(n, "type", path, "expected a map of fields, found %s%s", yamltree.Describe(n), hint)
	}
	w.levels = append(w.levels, level{t, path})
	defer func() { w.levels = w.levels[:len(w.levels)-1] }()
	known := fieldsOf(t)
	out := *n
	out.Content = nil
	var places []place
	moved := map[place][]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		field := strings.TrimPrefix(path+"."+key.Value, ".")
		if w.fileOf != nil && (t == specType && key.Value == "basedOn" || t == sourceType && key.Value == "file") {
			continue
		}
		ft, ok := known.types[key.Value]
		if !ok {
			if at, ok := w.unknown(n, key, t, known.names, field); ok {
				if moved[at] == nil {
					places = append(places, at)
				}
				moved[at] = append(moved[at], key)
			}
			continue
		}
		if clean := w.walk(value, ft, field); clean != nil {
			out.Content = append(out.Content, key, clean)
		}
	}
	for _, at := range places {
		w.misplaced(n, at, moved[at])
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

// unknown reports an unknown field. The API server would drop it, and a rule without a matcher matches more nodes. If the field
// belongs elsewhere, unknown returns the place instead, since other fields may belong there too.
func (w *walker) unknown(parent, key *yaml.Node, t reflect.Type, names []string, path string) (at place, elsewhere bool) {
	if t == termType || t == expressionType || t == alternative { // without the unknown field, it would have another meaning
		w.doc.bad[parent] = true
		if matchers := strings.LastIndex(path, ".match"); matchers >= 0 {
			rule := path[:matchers]
			if any := strings.LastIndex(rule, ".matchAny["); any >= 0 {
				rule = rule[:any]
			}
			w.doc.partial = append(w.doc.partial, rule)
		}
	}
	value := valueOf(parent, key)
	hint := ""
	switch near := yamltree.Nearest(key.Value, names); {
	case t == baseType && (key.Value == "file" || key.Value == "url"):
		w.wrong(key, "base", path, "only assay template reads the base %s: use the output of assay template copy --embed-all FILE", value.Value)
		return at, false
	case t == termType && strings.Contains(key.Value, "."):
		hint = "; the short form of a term is for the worker's configuration, here it is feature: and matchExpressions:" + fixable
	case t == expressionType && key.Value == "values":
		hint = "; did you mean value?" + Announcement + "renames it"
	case key.Value == "matchAll" && slices.Contains(names, "matchFeatures"): // similar to matchAny, which means the opposite
		hint = "; all terms of matchFeatures must match: write them in one matchFeatures"
	case t == ruleType && key.Value == "matchOn":
		hint = "; matchOn is for the worker's configuration"
		if value.Kind == yaml.SequenceNode && !plain(value) {
			hint += fixable
		}
	case t == selectorType && value.Kind == yaml.ScalarNode:
		hint = fmt.Sprintf("; labels are below matchLabels: {%s: %s}", key.Value, value.Value)
	case near != "" && suggest.Distance(key.Value, near, closeTypo+1) <= closeTypo:
		hint = w.misspelled(path, key.Value, near)
	default:
		if at, elsewhere = w.belongs(key.Value); elsewhere {
			return at, true
		}
		if near != "" {
			hint = w.misspelled(path, key.Value, near)
		}
	}
	w.wrong(key, "unknown-field", path, "unknown field %q%s", key.Value, hint)
	return at, false
}

// misspelled returns the hint for a misspelled field.
func (w *walker) misspelled(path, name, right string) string {
	w.doc.moved = append(w.doc.moved, strings.TrimSuffix(path, name)+right)
	return "; did you mean " + right + "?"
}

// closeTypo is the number of edits up to which an unknown field is a misspelled field of the same map, and not a field of another one.
const closeTypo = 1

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

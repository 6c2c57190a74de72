package manifest

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/rules/yamltree"
)

// level is a struct on the way to the current node.
type level struct {
	of   reflect.Type
	path string
}

// indexes are those of the entries of lists in a path.
var indexes = regexp.MustCompile(`\[\d+\]`)

// place is where a field belongs.
type place struct {
	// container is the path of the parent of the field; [] is an item of a list, and * a key of a map.
	container string
	// inner is set if container begins at the struct in which the field is. Otherwise it begins at the object.
	inner bool
}

// maxDepth is the maximum number of structs between a struct and the field that is searched in it. Deeper fields, such as those in an
// expression of an alternative, have other names.
const maxDepth = 4

// belongs returns where an unknown field in the innermost struct belongs: into a field of that struct, or else into the closest of
// the structs around it that have the field. Fields of metadata are never searched.
func (w *walker) belongs(name string) (place, bool) {
	last := len(w.levels) - 1
	if container, ok := below(w.levels[last].of, name); ok {
		return place{container, true}, true
	}
	for i := last - 1; i >= 0; i-- {
		if l := w.levels[i]; fieldsOf(l.of).types[name] != nil {
			return place{l.path, false}, true
		}
	}
	for i := last - 1; i >= 0; i-- {
		if container, ok := below(w.levels[i].of, name); ok {
			return place{strings.TrimPrefix(w.levels[i].path+"."+container, "."), false}, true
		}
	}
	return place{}, false
}

// below returns the shortest path in a struct to a struct that has a field with the name, or false if there is none.
func below(t reflect.Type, name string) (string, bool) {
	at := []level{{of: t}}
	for range maxDepth {
		var next []level
		found := ""
		for _, l := range at {
			fields := fieldsOf(l.of)
			for _, f := range fields.names {
				if f == "status" || fields.types[f] == metadataType {
					continue
				}
				path, inner := within(strings.TrimPrefix(l.path+"."+f, "."), fields.types[f])
				if inner == nil {
					continue
				}
				if fieldsOf(inner).types[name] != nil && (found == "" || !strings.HasSuffix(path, "]") && strings.HasSuffix(found, "]")) {
					found = path // an entry of a list only if it fits nowhere else
				}
				next = append(next, level{inner, path})
			}
		}
		if found != "" {
			return found, true
		}
		at = next
	}
	return "", false
}

// within returns the struct in a pointer, list or map, and its path. It returns nil if there is none.
func within(path string, t reflect.Type) (string, reflect.Type) {
	for {
		switch {
		case t == metadataType || reflect.PointerTo(t).Implements(unmarshaler):
			return path, nil
		case t.Kind() == reflect.Struct:
			return path, t
		case t.Kind() == reflect.Pointer:
			t = t.Elem()
		case t.Kind() == reflect.Slice:
			path, t = path+"[]", t.Elem()
		case t.Kind() == reflect.Map:
			path, t = path+".*", t.Elem()
		default:
			return path, nil
		}
	}
}

var metadataType = reflect.TypeFor[metav1.ObjectMeta]()

// String describes a place for messages.
func (p place) String() string {
	container := strings.ReplaceAll(p.container, ".*", ".KEY")
	list, item := strings.CutSuffix(container, "[]")
	switch {
	case container == "":
		return "at the top level of the object"
	case item:
		return "into an entry of " + list
	case p.inner || !strings.HasSuffix(container, "]"):
		return "below " + container
	}
	return "into " + container
}

// misplaced reports fields of one map that all belong to the same place.
func (w *walker) misplaced(parent *yaml.Node, at place, keys []*yaml.Node) {
	path := w.levels[len(w.levels)-1].path
	names, them := make([]string, len(keys)), "it"
	moved := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for i, key := range keys {
		names[i] = fmt.Sprintf("%q", key.Value)
		moved.Content = append(moved.Content, key, valueOf(parent, key))
		w.doc.bad[key] = true
		full := at.container
		if at.inner {
			full = strings.TrimPrefix(path+"."+full, ".")
		}
		w.doc.moved = append(w.doc.moved, strings.TrimPrefix(full+"."+key.Value, "."))
	}
	plural := ""
	if len(keys) > 1 {
		plural, them = "s", "them"
	}
	message := fmt.Sprintf("unknown field%s %s; put %s %s", plural, strings.Join(names, ", "), them, at)
	if list, ok := strings.CutSuffix(at.container, "[]"); ok && at.inner && !strings.ContainsAny(list, ".[") {
		message += fmt.Sprintf(": %s: [%s]", list, flow(moved))
	}
	w.once(keys[0], "unknown-field", strings.TrimPrefix(path+"."+keys[0].Value, "."), message)
}

// once reports an error that several entries of a list may have, for the first of them, with the number of others.
func (w *walker) once(n *yaml.Node, code, path, message string) {
	head, _, _ := strings.Cut(message, ": ") // without the example
	key := indexes.ReplaceAllString(path, "[]") + "\x00" + head
	if first, ok := w.first[key]; ok {
		first.more++
		w.problems[first.at].Message = fmt.Sprintf("%s (%d more in this list)", first.message, first.more)
		return
	}
	if w.first == nil {
		w.first = map[string]*repeated{}
	}
	w.first[key] = &repeated{at: len(w.problems), message: message}
	w.problem(n, Error, code, path, "%s", message)
}

// repeated is a problem of several entries of a list.
type repeated struct {
	at, more int
	message  string
}

// maxFlow is the maximum number of characters of an example in a message.
const maxFlow = 160

// flow writes a tree in one line, for an example in a message. It omits what is too long.
func flow(n *yaml.Node) string {
	s := string(appendFlow(nil, n, 0))
	if r := []rune(s); len(r) > maxFlow {
		s = string(appendFlow(nil, n, 1))
	}
	if r := []rune(s); len(r) > maxFlow {
		return string(r[:maxFlow-1]) + "…"
	}
	return s
}

// appendFlow appends a tree. With short, it writes {…} and […] for what is in the values of the outermost map.
func appendFlow(out []byte, n *yaml.Node, short int) []byte {
	if short > 2 && len(n.Content) > 0 {
		if n.Kind == yaml.MappingNode {
			return append(out, "{…}"...)
		}
		return append(out, "[…]"...)
	}
	if short > 0 {
		short++
	}
	switch n.Kind {
	case yaml.MappingNode:
		out = append(out, '{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				out = append(out, ", "...)
			}
			out = append(appendFlow(out, n.Content[i], 0), ": "...)
			out = appendFlow(out, n.Content[i+1], short)
		}
		return append(out, '}')
	case yaml.SequenceNode:
		out = append(out, '[')
		for i, c := range n.Content {
			if i > 0 {
				out = append(out, ", "...)
			}
			out = appendFlow(out, c, short)
		}
		return append(out, ']')
	}
	if yamltree.IsString(n) && (n.Style != 0 || strings.ContainsAny(n.Value, "{}[],:#&*!|>'\"%@`\n") || n.Value == "") {
		return fmt.Appendf(out, "%q", n.Value)
	}
	return append(out, n.Value...)
}

// listForm returns a message with the list that the author of a map probably meant, or "".
func listForm(n *yaml.Node, item reflect.Type) string {
	for item.Kind() == reflect.Pointer {
		item = item.Elem()
	}
	if n.Kind != yaml.MappingNode || item.Kind() != reflect.Struct || len(n.Content) == 0 {
		return ""
	}
	known := fieldsOf(item)
	if slices.ContainsFunc(yamltree.Keys(n), func(key string) bool { return known.types[key] != nil }) {
		return fmt.Sprintf("; write [%s]", flow(n))
	}
	// A map of what the list would have in a field: the name of a rule, the feature of a term, the key of a taint.
	id := ""
	for _, name := range []string{"feature", "name", "key", "type"} {
		if known.types[name] != nil {
			id = name
			break
		}
	}
	key, value := n.Content[0], n.Content[1]
	if id == "" || value.Kind != yaml.MappingNode {
		return ""
	}
	entry := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: id}, key}}
	if item == termType && !slices.ContainsFunc(yamltree.Keys(value), func(key string) bool { return known.types[key] != nil }) {
		entry.Content = append(entry.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "matchExpressions"}, value)
	} else {
		entry.Content = append(entry.Content, value.Content...)
	}
	more := ""
	if len(n.Content) > 2 {
		more = ", …"
	}
	return fmt.Sprintf("; write [%s%s]", flow(entry), more)
}

// comparison matches a condition that is written as a comparison.
var comparison = regexp.MustCompile(`^\s*(.+?)\s*(==|!=|<=|>=|<|>|=)\s*(.+?)\s*$`)

// comparisons are the operators of conditions for those of comparisons. The second part is set if the operator is inverted.
var comparisons = map[string][2]string{
	"==": {"eq"}, "=": {"eq"}, "!=": {"eq", ", invert: true"}, "<": {"lt"}, ">": {"gt"},
	"<=": {"gt", ", invert: true"}, ">=": {"lt", ", invert: true"},
}

// conditionForm returns the condition that the author of a comparison such as "{@kernel.version.major} >= 5" probably meant.
func conditionForm(text string) string {
	m := comparison.FindStringSubmatch(text)
	if m == nil {
		return `; write for example {op: eq, args: {values: ["{@cpu.model.vendor_id}", Intel]}}`
	}
	op := comparisons[m[2]]
	return fmt.Sprintf("; write {op: %s, args: {values: [%q, %q]}%s}", op[0], m[1], strings.Trim(m[3], `"'`), op[1])
}

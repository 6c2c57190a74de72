package compose

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// The bounds of one YAML text.
const (
	// MaxText is the size of a document in bytes. Anything larger is no rule somebody wrote.
	MaxText = 4 << 20
	// MaxNodes is how many nodes a document has once its aliases are expanded. Nine lines of YAML with aliases of aliases
	// come to a billion.
	MaxNodes = 1 << 18
	// MaxNesting is how deep they nest.
	MaxNesting = 100
)

// YAML is a document as somebody wrote it: a NodeFeatureRule, a NodeFeatureRuleTemplate, or the bare spec of one.
type YAML struct {
	// ID is what tells it from other documents: an absolute path, a URL, cluster:NAME.
	ID string
	// Root is the whole document, with aliases expanded and comments.
	Root *yaml.Node
	// Spec is the mapping in it that holds the rules.
	Spec *yaml.Node

	absent bool // a template in the cluster that is left where it is
}

// ParseYAML reads one document. Its fields are not checked yet, see CheckFields.
func ParseYAML(id string, text []byte) (*YAML, error) {
	roots, err := ParseTrees(id, text)
	if err != nil {
		return nil, err
	}
	switch len(roots) {
	case 0:
		return nil, fmt.Errorf("%s: there is no document in it", id)
	case 1:
		doc := &YAML{ID: id, Root: roots[0]}
		return doc, doc.findSpec()
	}
	return nil, fmt.Errorf("%s:%d: a second document begins here, want one a file", id, roots[1].Content[0].Line)
}

// ParseTrees reads every document of a YAML or JSON text, within the bounds of this package, with aliases expanded. A key
// that is there twice in a map is an error, and so is a value behind a lone exclamation mark. The nodes are document nodes.
func ParseTrees(id string, text []byte) ([]*yaml.Node, error) {
	if len(text) > MaxText {
		return nil, &LimitError{What: "bytes in " + id, Got: len(text), Limit: MaxText}
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if bytes.IndexByte(text, 0) >= 0 {
		return nil, fmt.Errorf("%s: this is a binary file, no YAML", id)
	}
	var roots []*yaml.Node
	x := expander{id: id, marks: lostMarks(text)}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var root yaml.Node
		if err := d.Decode(&root); errors.Is(err, io.EOF) {
			return roots, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		expanded, err := x.expand(&root, 0)
		if err != nil {
			return nil, err
		}
		roots = append(roots, expanded)
	}
}

// findSpec sets d.Spec.
func (d *YAML) findSpec() error {
	top := d.Root.Content[0]
	if isNull(top) { // only comments
		*top = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", HeadComment: top.HeadComment, FootComment: top.FootComment}
	}
	if top.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: want a NodeFeatureRule, a NodeFeatureRuleTemplate or a spec, found a %s", d.ID, top.Line, kindName(top))
	}
	kind, _ := lookup(top, "kind")
	spec, _ := lookup(top, "spec")
	if kind < 0 && spec < 0 {
		d.Spec = top
		return nil
	}
	if kind >= 0 {
		switch k := top.Content[kind+1]; k.Value {
		case "NodeFeatureRule", "NodeFeatureRuleTemplate":
		default:
			return fmt.Errorf("%s:%d: want kind NodeFeatureRule or NodeFeatureRuleTemplate, found %q", d.ID, k.Line, k.Value)
		}
	}
	if spec < 0 {
		return fmt.Errorf("%s:%d: there is no spec", d.ID, top.Line)
	}
	d.Spec = top.Content[spec+1]
	if isNull(d.Spec) {
		*d.Spec = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: d.Spec.Line, Column: d.Spec.Column}
	}
	if d.Spec.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: want a map of fields in spec, found a %s", d.ID, d.Spec.Line, kindName(d.Spec))
	}
	return nil
}

// expander copies a tree with every alias replaced by what it stands for.
type expander struct {
	id    string
	marks map[place]bool // lone exclamation marks
	nodes int
}

// place is a line and a column in characters, from 1.
type place struct{ line, column int }

// lostMarks finds the lone exclamation marks of a text: YAML takes "! eq" for plain eq, and whoever wrote the tree anew would
// turn a condition into its opposite.
func lostMarks(text []byte) map[place]bool {
	marks := map[place]bool{}
	at := place{1, 1}
	for i, b := range text {
		switch {
		case b == '\n':
			at = place{at.line + 1, 1}
			continue
		case b == '!' && i+1 < len(text) && (text[i+1] == ' ' || text[i+1] == '\t'):
			marks[at] = true
		}
		if !utf8.RuneStart(b) {
			continue // in the middle of a character
		}
		at.column++
	}
	return marks
}

func (x *expander) expand(n *yaml.Node, depth int) (*yaml.Node, error) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if x.nodes++; x.nodes > MaxNodes {
		return nil, &LimitError{What: "YAML nodes in " + x.id + " with its aliases expanded", Got: x.nodes, Limit: MaxNodes}
	}
	if depth > MaxNesting {
		return nil, &LimitError{What: "levels of YAML in " + x.id, Got: depth, Limit: MaxNesting}
	}
	if n.Kind == yaml.ScalarNode && n.Style == 0 && x.marks[place{n.Line, n.Column}] {
		return nil, fmt.Errorf("%s:%d:%d: YAML drops the exclamation mark of %q, and the opposite is meant; put it in quotes",
			x.id, n.Line, n.Column, "! "+n.Value)
	}
	out := *n
	out.Anchor, out.Alias, out.Content = "", nil, nil
	if n.Kind == yaml.MappingNode {
		return &out, x.mapping(&out, n, depth)
	}
	for _, c := range n.Content {
		e, err := x.expand(c, depth+1)
		if err != nil {
			return nil, err
		}
		out.Content = append(out.Content, e)
	}
	return &out, nil
}

// mapping expands a mapping, with what << merges into it. A key that is there twice is an error.
func (x *expander) mapping(out, n *yaml.Node, depth int) error {
	seen := map[string]int{}
	var merged []*yaml.Node
	for i := 0; i < len(n.Content); i += 2 {
		value, err := x.expand(n.Content[i+1], depth+1)
		if err != nil {
			return err
		}
		if n.Content[i].Tag == "!!merge" {
			merged = append(merged, value)
			continue
		}
		key, err := x.expand(n.Content[i], depth+1)
		if err != nil {
			return err
		}
		if key.Kind != yaml.ScalarNode {
			return fmt.Errorf("%s:%d: a %s cannot be a key; quote text that begins with a brace", x.id, key.Line, kindName(key))
		}
		if line, ok := seen[key.Value]; ok {
			return fmt.Errorf("%s:%d: the key %q is already on line %d", x.id, key.Line, key.Value, line)
		}
		seen[key.Value] = key.Line
		out.Content = append(out.Content, key, value)
	}
	for _, m := range merged {
		sources := []*yaml.Node{m}
		if m.Kind == yaml.SequenceNode {
			sources = m.Content
		}
		for _, s := range sources {
			if s.Kind != yaml.MappingNode {
				return fmt.Errorf("%s:%d: << merges maps, found a %s", x.id, s.Line, kindName(s))
			}
			for i := 0; i < len(s.Content); i += 2 {
				if _, ok := seen[s.Content[i].Value]; !ok {
					seen[s.Content[i].Value] = s.Content[i].Line
					out.Content = append(out.Content, s.Content[i], s.Content[i+1])
				}
			}
		}
	}
	return nil
}

// Bases returns what the document says it is based on: a text, a list of texts, or a list of objects.
func (d *YAML) Bases() ([]Ref, error) {
	at, _ := lookup(d.Spec, "basedOn")
	if at < 0 {
		return nil, nil
	}
	value := d.Spec.Content[at+1]
	items := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		items = value.Content
	} else if isNull(value) {
		return nil, nil
	}
	var refs []Ref
	for _, item := range items {
		ref, err := parseRef(item)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: basedOn: %w", d.ID, item.Line, err)
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

// parseRef reads one entry of basedOn.
func parseRef(n *yaml.Node) (Ref, error) {
	if isText(n) && n.Value != "" {
		return Ref{Kind: ByLocator, Locator: n.Value}, nil
	}
	if n.Kind != yaml.MappingNode {
		return Ref{}, fmt.Errorf("want a locator or an object with name, file or url, found a %s", kindName(n))
	}
	var ref Ref
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		switch key {
		case "name", "file", "url":
			if !isText(value) || value.Value == "" {
				return Ref{}, fmt.Errorf("%s: want a text", key)
			}
			if ref.Locator != "" {
				return Ref{}, fmt.Errorf("want one of name, file and url, found %s and %s", ref.Kind, key)
			}
			ref.Kind, ref.Locator = RefKind(key), value.Value
		case "digest":
			if !isText(value) {
				return Ref{}, errors.New("digest: want a text")
			}
			ref.Digest = value.Value
		case "exclude":
			if value.Kind != yaml.SequenceNode || slices.ContainsFunc(value.Content, func(v *yaml.Node) bool { return !isText(v) }) {
				return Ref{}, errors.New("exclude: want a list of names of rules; quote those that begin with *")
			}
			for _, v := range value.Content {
				ref.Exclude = append(ref.Exclude, v.Value)
			}
		default:
			return Ref{}, fmt.Errorf("unknown field %q, want name, file, url, digest or exclude", key)
		}
	}
	if ref.Locator == "" {
		return Ref{}, errors.New("want one of name, file and url")
	}
	return ref, nil
}

// Typed decodes a spec. What its bases are called is kept, whatever kind of locator it is.
func Typed(spec *yaml.Node) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
	bare := *spec
	bare.Content = slices.Clone(spec.Content)
	doc := YAML{Spec: spec}
	refs, err := doc.Bases()
	if err != nil {
		return nil, err
	}
	if at, _ := lookup(&bare, "basedOn"); at >= 0 {
		bare.Content = slices.Delete(bare.Content, at, at+2)
	}
	var out nfdv1alpha1.NodeFeatureRuleSpec
	if err := json.Unmarshal(ToJSON(&bare), &out); err != nil {
		return nil, err
	}
	for _, r := range refs {
		out.BasedOn = append(out.BasedOn, nfdv1alpha1.Base{Name: r.Locator, Digest: r.Digest, Exclude: r.Exclude})
	}
	return &out, nil
}

// ToJSON returns the JSON of a tree without aliases. Dates stay text, as they are in Kubernetes.
func ToJSON(n *yaml.Node) []byte { return appendJSON(nil, n) }

func appendJSON(out []byte, n *yaml.Node) []byte {
	switch n.Kind {
	case yaml.DocumentNode:
		return appendJSON(out, n.Content[0])
	case yaml.SequenceNode:
		out = append(out, '[')
		for i, c := range n.Content {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendJSON(out, c)
		}
		return append(out, ']')
	case yaml.MappingNode:
		out = append(out, '{')
		for i := 0; i < len(n.Content); i += 2 {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendText(out, n.Content[i].Value)
			out = append(out, ':')
			out = appendJSON(out, n.Content[i+1])
		}
		return append(out, '}')
	}
	return appendScalar(out, n)
}

func appendScalar(out []byte, n *yaml.Node) []byte {
	switch n.ShortTag() {
	case "!!null":
		return append(out, "null"...)
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return strconv.AppendBool(out, b)
		}
	case "!!int":
		var i int64
		if n.Decode(&i) == nil {
			return strconv.AppendInt(out, i, 10)
		}
	case "!!float":
		var f float64
		if n.Decode(&f) == nil {
			if number, err := json.Marshal(f); err == nil { // .inf and .nan have no JSON
				return append(out, number...)
			}
		}
	}
	return appendText(out, n.Value)
}

func appendText(out []byte, s string) []byte {
	c := canonical{out: out}
	c.text(s)
	return c.out
}

// lookup returns where key is in a mapping, and its value; -1 if it is not there.
func lookup(mapping *yaml.Node, key string) (int, *yaml.Node) {
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return i, mapping.Content[i+1]
		}
	}
	return -1, nil
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func isText(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" }

// kindName says what a node is, to somebody who wrote it.
func kindName(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "map"
	case n.Kind == yaml.SequenceNode:
		return "list"
	case isNull(n):
		return "null"
	}
	switch n.ShortTag() {
	case "!!bool":
		return "boolean"
	case "!!int", "!!float":
		return "number"
	}
	return "text"
}

package template

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/yamltree"
)

// edit replaces the text of one scalar.
type edit struct {
	node *yaml.Node
	text string
}

// locatorEdits returns the edits that make all locators of a document absolute.
func locatorEdits(at locator, doc *compose.YAML) ([]edit, error) {
	var edits []edit
	change := func(n *yaml.Node, to string) {
		if n.Value != to {
			edits = append(edits, edit{n, to})
		}
	}
	refs, err := doc.Bases()
	if err != nil {
		return nil, err
	}
	for i, n := range baseNodes(doc) {
		if refs[i].Kind == compose.ByName {
			continue
		}
		to, err := resolveRef(at, refs[i])
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", doc.ID, n.Line, err)
		}
		change(n, string(to))
	}
	return edits, templateFiles(doc, func(_ *yaml.Node, _ int, _ string, file *yaml.Node) error {
		to, err := at.resolve(file.Value)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", doc.ID, file.Line, err)
		}
		change(file, string(to))
		return nil
	})
}

// baseNodes returns the scalars of the locators in basedOn, in the order of doc.Bases.
func baseNodes(doc *compose.YAML) []*yaml.Node {
	value := yamltree.Field(doc.Spec, "basedOn")
	if value == nil {
		return nil
	}
	items := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		items = value.Content
	}
	var out []*yaml.Node
	for _, item := range items {
		if item.Kind == yaml.ScalarNode {
			out = append(out, item)
			continue
		}
		for _, key := range []string{"name", "file", "url"} {
			if n := yamltree.Field(item, key); n != nil {
				out = append(out, n)
			}
		}
	}
	return out
}

// splice applies edits to the text from which the nodes were parsed, and does not change other bytes. It returns false if it cannot
// locate a scalar.
func splice(text []byte, edits []edit) ([]byte, bool) {
	type span struct {
		from, to int
		text     string
	}
	var spans []span
	for _, e := range edits {
		from, ok := offset(text, e.node.Line, e.node.Column)
		if !ok {
			return nil, false
		}
		from, to, ok := scalar(text, from, e.node.Value)
		if !ok {
			return nil, false
		}
		spans = append(spans, span{from, to, quoted(e.text)})
	}
	slices.SortFunc(spans, func(a, b span) int { return a.from - b.from })
	spans = slices.Compact(spans) // with an alias, two fields can have the same scalar
	var out []byte
	at := 0
	for _, s := range spans {
		if s.from < at {
			return nil, false
		}
		out = append(append(out, text[at:s.from]...), s.text...)
		at = s.to
	}
	return append(out, text[at:]...), true
}

// offset returns the offset of a line and column. Columns count characters.
func offset(text []byte, line, column int) (int, bool) {
	at := 0
	if bytes.HasPrefix(text, []byte("\xef\xbb\xbf")) {
		at = 3
	}
	for range line - 1 {
		next := bytes.IndexByte(text[at:], '\n')
		if next < 0 {
			return 0, false
		}
		at += next + 1
	}
	for range column - 1 {
		_, size := utf8.DecodeRune(text[at:])
		if size == 0 {
			return 0, false
		}
		at += size
	}
	return at, at < len(text)
}

// scalar returns the range of a scalar's value, given the offset of its node.
func scalar(text []byte, at int, value string) (from, to int, ok bool) {
	for at < len(text) && (text[at] == '&' || text[at] == '!') { // skip anchors and tags
		space := bytes.IndexByte(text[at:], ' ')
		if space < 0 {
			return 0, 0, false
		}
		at += space + 1
	}
	switch rest := text[at:]; {
	case len(rest) == 0:
		return 0, 0, false
	case rest[0] == '"':
		for i := 1; i < len(rest); i++ {
			switch rest[i] {
			case '\\':
				i++
			case '"':
				return at, at + i + 1, true
			}
		}
	case rest[0] == '\'':
		for i := 1; i < len(rest); i++ {
			if rest[i] == '\'' {
				if i+1 < len(rest) && rest[i+1] == '\'' {
					i++
					continue
				}
				return at, at + i + 1, true
			}
		}
	case bytes.HasPrefix(rest, []byte(value)):
		return at, at + len(value), true
	}
	return 0, 0, false
}

// plain matches strings that need no quotes anywhere in YAML.
var plain = regexp.MustCompile(`^[A-Za-z0-9/][A-Za-z0-9/_.+~-]*(:[A-Za-z0-9/_.+~-]+)*$`)

func quoted(s string) string {
	if plain.MatchString(s) {
		return s
	}
	return clip.Quote(s)
}

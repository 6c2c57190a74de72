package manifest

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/suggest"
)

// tagged says why a value that begins with an exclamation mark is not what it looks like. YAML reads !eq as a tag on an empty
// text, and "! eq" as plain eq: the condition would mean its opposite, and nobody would say so.
func (w *walker) tagged(n *yaml.Node) string {
	if n.Style&yaml.TaggedStyle != 0 && !strings.HasPrefix(n.Tag, "!!") {
		word := n.Tag
		if n.Kind == yaml.ScalarNode && n.Value != "" {
			word += " " + n.Value
		}
		return fmt.Sprintf("YAML reads %s as a tag, not as text; put it in quotes: %q%s", n.Tag, word, orInvert(word))
	}
	if n.Kind != yaml.ScalarNode || n.Style != 0 {
		return ""
	}
	rest := w.doc.file.from(position(n))
	if strings.HasPrefix(rest, "! ") || strings.HasPrefix(rest, "!\t") {
		word := "!" + n.Value
		return fmt.Sprintf("YAML drops the exclamation mark of %q, and the opposite is meant; put it in quotes: %q%s",
			"! "+n.Value, word, orInvert(word))
	}
	return ""
}

func orInvert(word string) string {
	op := strings.TrimPrefix(word, "!")
	if strings.ContainsAny(op, " !") {
		return ""
	}
	return fmt.Sprintf(", or write op: %s and invert: true", op)
}

// from returns the rest of a line from a place on.
func (f *File) from(at Position) string {
	if at.Line < 1 || at.Line > len(f.lines) || at.Column < 1 {
		return ""
	}
	runes := []rune(f.lines[at.Line-1])
	if at.Column > len(runes) {
		return ""
	}
	return string(runes[at.Column-1:])
}

// Line returns a line of the file, from 1; empty if there is none.
func (f *File) Line(n int) string {
	if n < 1 || n > len(f.lines) {
		return ""
	}
	return f.lines[n-1]
}

func nodeOr(n, other *yaml.Node) *yaml.Node {
	if n == nil {
		return other
	}
	return n
}

func didYouMeanField(name string, n *yaml.Node) string {
	if n.Kind != yaml.MappingNode {
		return ""
	}
	var have []string
	for i := 0; i < len(n.Content); i += 2 {
		have = append(have, n.Content[i].Value)
	}
	if near := Nearest(name, have); near != "" {
		return fmt.Sprintf("; did you write %s?", near)
	}
	return ""
}

func didYouMean(name string, known []string) string {
	if near := Nearest(name, known); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}

// Nearest returns the known name that a misspelt one is nearest to, if that is near enough: two slips, and not more than a
// third of the name. It is empty if none is.
func Nearest(name string, known []string) string {
	return suggest.NearestFold(name, known, min(3, len(name)/3+2))
}

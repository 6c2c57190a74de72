package manifest

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/yamltree"
)

// tagged returns the reason why a value that begins with an exclamation mark is misread. YAML reads !eq as a tag on an empty
// string, and "! eq" as plain eq, which would silently remove a negation.
func (w *walker) tagged(n *yaml.Node) string {
	if n.Style&yaml.TaggedStyle != 0 && !strings.HasPrefix(n.Tag, "!!") {
		word := n.Tag
		if n.Kind == yaml.ScalarNode && n.Value != "" {
			word += " " + n.Value
		}
		return fmt.Sprintf("YAML reads %s as a tag, not as text; quote it: %q%s", n.Tag, word, orInvert(word))
	}
	if mark := w.doc.file.text.LostMark(n); mark != "" {
		word := "!" + n.Value
		return fmt.Sprintf("YAML drops the exclamation mark of %q, which changes the meaning; quote it: %q%s", mark, word, orInvert(word))
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

func nodeOr(n, other *yaml.Node) *yaml.Node {
	if n == nil {
		return other
	}
	return n
}

func didYouMeanField(name string, n *yaml.Node) string {
	if near := yamltree.Nearest(name, yamltree.Keys(n)); near != "" {
		return fmt.Sprintf("; did you write %s?", near)
	}
	return ""
}

// Nearest returns the known name that is most similar to a misspelled one, or "" if none is similar.
func Nearest(name string, known []string) string { return yamltree.Nearest(name, known) }

package yamltree

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/suggest"
)

// Index returns the index of a key in the content of a mapping, or -1 if the key does not exist or n is not a mapping.
func Index(n *yaml.Node, key string) int {
	if n == nil || n.Kind != yaml.MappingNode {
		return -1
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return i
		}
	}
	return -1
}

// Field returns the value of a field of a mapping, or nil if the field does not exist or n is not a mapping.
func Field(n *yaml.Node, name string) *yaml.Node {
	if at := Index(n, name); at >= 0 {
		return n.Content[at+1]
	}
	return nil
}

// Keys returns the keys of a mapping in order.
func Keys(n *yaml.Node) []string {
	var out []string
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		out = append(out, n.Content[i].Value)
	}
	return out
}

// IsNull reports whether a node is null.
func IsNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// IsString reports whether a node is a string.
func IsString(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" }

// Type returns the type of a node for messages: a map, list, null, boolean, number or string.
func Type(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "map"
	case n.Kind == yaml.SequenceNode:
		return "list"
	case IsNull(n):
		return "null"
	}
	switch n.ShortTag() {
	case "!!bool":
		return "boolean"
	case "!!int", "!!float":
		return "number"
	}
	return "string"
}

// Describe describes a node for messages: a map, the number 5, nothing.
func Describe(n *yaml.Node) string {
	switch t := Type(n); t {
	case "null":
		return "nothing"
	case "boolean", "number":
		return "the " + t + " " + n.Value
	default:
		return "a " + t
	}
}

// OldBoolean reports whether YAML 1.1, which kubectl and the API server use, reads a plain word as a boolean.
func OldBoolean(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode || n.Style != 0 {
		return false
	}
	switch n.Value {
	case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off", "Off", "OFF":
		return true
	}
	return false
}

// LostMark returns the value with its exclamation mark if YAML drops the mark: YAML reads "! eq" as plain eq. Otherwise it returns
// "".
func (t *Text) LostMark(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode && n.Style == 0 && t.marks[At(n)] {
		return "! " + n.Value
	}
	return ""
}

// Step is a field of a mapping or, without a key, an item of a list.
type Step struct{ Key, Value *yaml.Node }

// Follow returns the steps to a field by its path, such as spec.rules[0].labels[x], as far as they exist, and whether the field
// exists.
func Follow(root *yaml.Node, path string) (way []Step, found bool) {
	for n := root; path != ""; {
		step, rest := next(n, path)
		if step.Value == nil {
			return way, false
		}
		way = append(way, step)
		n, path = step.Value, rest
	}
	return way, true
}

// next follows one step of a path.
func next(n *yaml.Node, path string) (step Step, rest string) {
	path = strings.TrimPrefix(path, ".")
	if index, ok := strings.CutPrefix(path, "["); ok && n.Kind == yaml.SequenceNode {
		digits, rest, found := strings.Cut(index, "]")
		i, err := strconv.Atoi(digits)
		if !found || err != nil || i < 0 || i >= len(n.Content) {
			return Step{}, ""
		}
		return Step{Value: n.Content[i]}, rest
	}
	if n.Kind != yaml.MappingNode {
		return Step{}, ""
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		step, name := Step{n.Content[i], n.Content[i+1]}, n.Content[i].Value
		if rest, ok := strings.CutPrefix(path, "["+name+"]"); ok {
			return step, rest
		}
		if rest, ok := strings.CutPrefix(path, name); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return step, rest
		}
	}
	return Step{}, ""
}

// minEnd is the length up to which a name is not taken for the end of another one: many names end in a common word.
const minEnd = 4

// maxGuess is the number of edits at which a name is not a misspelling, whatever its length.
const maxGuess = 3

// Nearest returns the known name that is most similar to a misspelled one, with at most two edits and not more than a third of the
// name, or the name that begins or ends with it. It returns "" if there is none.
func Nearest(name string, known []string) string {
	if best := suggest.NearestFold(name, known, min(maxGuess, len(name)/3+2)); best != "" {
		return best
	}
	for _, k := range known {
		if len(name) > 2 && strings.HasPrefix(k, name) {
			return k
		}
	}
	for _, k := range known {
		if len(name) > minEnd && strings.HasSuffix(strings.ToLower(k), strings.ToLower(name)) {
			return k
		}
	}
	return ""
}

// DidYouMean returns the last part of a message about an unknown name, or "" if no known name is similar.
func DidYouMean(name string, known []string) string {
	if near := Nearest(name, known); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}

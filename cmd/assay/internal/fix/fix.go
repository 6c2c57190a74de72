// Package fix rewrites deprecated forms in rules where this is safe, without changing other bytes of a file.
package fix

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/convert"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/yamltree"
)

// Text returns the text with rewritten rules and a note for each change, or nil if nothing was rewritten. problems returns the
// problems of a file: Text does not rewrite a rule if this would add an error.
func Text(name string, text []byte, problems func([]byte) []manifest.Problem) ([]byte, []convert.Note) {
	if _, err := compose.ParseTrees(name, text); err != nil {
		return nil, nil // already reported
	}
	fixed, notes, rules := rewrite(name, text, -1)
	if len(notes) == 0 {
		return nil, nil
	}
	before := problems(text)
	if fixed != nil && !worse(before, problems(fixed)) {
		return fixed, notes
	}
	// Rewrite one rule at a time, so that a rule that cannot be rewritten does not affect the others.
	var out []byte
	notes = nil
	for i := range rules {
		fixed, more, _ := rewrite(name, text, i)
		if fixed == nil {
			continue
		}
		after := problems(fixed)
		if worse(before, after) {
			continue
		}
		text, out, before = fixed, fixed, after
		notes = append(notes, more...)
	}
	return out, notes
}

// Same reports whether two problems are equal except for their positions.
func Same(a, b manifest.Problem) bool {
	return a.Code == b.Code && a.Object == b.Object && a.Path == b.Path && a.Message == b.Message
}

// worse reports whether after contains an error that is not in before.
func worse(before, after []manifest.Problem) bool {
	type key struct{ code, object, path, message string }
	known := map[key]int{}
	for _, p := range before {
		known[key{p.Code, p.Object, p.Path, p.Message}]++
	}
	for _, p := range after {
		k := key{p.Code, p.Object, p.Path, p.Message}
		if known[k]--; known[k] < 0 && p.Severity == manifest.Error {
			return true
		}
	}
	return false
}

// rewrite rewrites one rule of a file, or all rules if only is -1, and returns the number of rules in the file. It returns nil text
// if nothing was rewritten or if the rewritten text has a different meaning.
func rewrite(name string, text []byte, only int) ([]byte, []convert.Note, int) {
	const mark = "\xef\xbb\xbf"
	bare := bytes.TrimPrefix(text, []byte(mark))
	before, err := trees(bare)
	if err != nil {
		return nil, nil, 0
	}
	after, err := trees(bare)
	if err != nil {
		return nil, nil, 0
	}
	want, err := compose.ParseTrees(name, text)
	want = slices.DeleteFunc(want, func(root *yaml.Node) bool { return yamltree.IsNull(root.Content[0]) })
	if err != nil || len(want) != len(after) {
		return nil, nil, 0
	}
	e := &editor{source: newSource(bare), was: map[*yaml.Node]*yaml.Node{}}
	var notes []convert.Note
	count := 0
	for i := range after {
		e.pair(before[i], after[i])
		list := rulesIn(after[i].Content[0])
		if list == nil || list.Kind != yaml.SequenceNode {
			continue
		}
		for j := range list.Content {
			if only < 0 || only == count {
				notes = append(notes, convertRule(list, j)...)
				if meant := rulesIn(want[i].Content[0]); meant != nil && j < len(meant.Content) {
					convertRule(meant, j) // with aliases expanded
				}
			}
			count++
		}
	}
	if len(notes) == 0 {
		return nil, nil, count
	}
	for i := range after {
		e.diff(nil, before[i], after[i])
	}
	out := e.apply()
	if out == nil || !equal(name, out, want) {
		return nil, notes, count
	}
	return slices.Concat(text[:len(text)-len(bare)], out), notes, count
}

// convertRule converts one rule of a list to the notation of the API.
func convertRule(list *yaml.Node, i int) []convert.Note {
	one := &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{list.Content[i]}}
	notes, err := convert.MatchOn(one)
	if err != nil {
		notes = nil // already reported
	}
	notes = append(notes, convert.LongForm(one)...)
	notes = append(notes, convert.LowerHex(one)...)
	list.Content[i] = one.Content[0]
	return notes
}

// trees parses the documents of a file, which must be valid YAML. It does not expand aliases.
func trees(text []byte) ([]*yaml.Node, error) {
	var out []*yaml.Node
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		root := &yaml.Node{}
		if err := d.Decode(root); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		if !yamltree.IsNull(root.Content[0]) { // not only comments
			out = append(out, root)
		}
	}
}

// equal reports whether a file has the same meaning as the trees.
func equal(name string, text []byte, want []*yaml.Node) bool {
	got, err := compose.ParseTrees(name, text)
	got = slices.DeleteFunc(got, func(root *yaml.Node) bool { return yamltree.IsNull(root.Content[0]) })
	return err == nil && slices.EqualFunc(got, want, func(a, b *yaml.Node) bool {
		return bytes.Equal(yamltree.JSON(a), yamltree.JSON(b))
	})
}

// rulesIn returns the rules of an object, or nil if it has none.
func rulesIn(top *yaml.Node) *yaml.Node {
	if top.Kind == yaml.SequenceNode {
		return nil // the worker's custom rules may use short forms
	}
	switch value := manifest.Field(top, "kind"); {
	case value == nil:
		return nil
	case value.Value == manifest.KindGroup:
		return manifest.Field(manifest.Field(top, "spec"), "featureGroupRules")
	case value.Value == manifest.KindRule || value.Value == manifest.KindTemplate:
		return manifest.Field(manifest.Field(top, "spec"), "rules")
	}
	return nil
}

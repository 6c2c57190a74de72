// Package fix rewrites what is safe to rewrite in rules, and changes no other byte of a file.
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

// Text returns the text with its rules rewritten and a note for each change; nil if nothing was rewritten. problems returns
// the findings of a file: rules are left alone if rewriting them would give the file an error that it does not have.
func Text(name string, text []byte, problems func([]byte) []manifest.Problem) ([]byte, []convert.Note) {
	if _, err := compose.ParseTrees(name, text); err != nil {
		return nil, nil // reported with the findings
	}
	fixed, notes, rules := rewrite(name, text, -1)
	if len(notes) == 0 {
		return nil, nil
	}
	before := problems(text)
	if fixed != nil && !worse(before, problems(fixed)) {
		return fixed, notes
	}
	// Rewrite rule by rule, so that one that cannot be rewritten leaves the others fixed.
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

// Same reports whether two findings are about the same thing, wherever in the text.
func Same(a, b manifest.Problem) bool {
	return a.Code == b.Code && a.Object == b.Object && a.Path == b.Path && a.Message == b.Message
}

// worse reports whether there is an error after that was not there before.
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

// rewrite rewrites one rule of a file, or all with -1, and returns the number of rules that there are. The text is nil if
// nothing was rewritten, or not in a way that says what was meant.
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
					convertRule(meant, j) // with its aliases expanded
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

// convertRule writes one rule of a list in the API's notation.
func convertRule(list *yaml.Node, i int) []convert.Note {
	one := &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{list.Content[i]}}
	notes, err := convert.MatchOn(one)
	if err != nil {
		notes = nil // reported with the findings
	}
	notes = append(notes, convert.LongForm(one)...)
	notes = append(notes, convert.LowerHex(one)...)
	list.Content[i] = one.Content[0]
	return notes
}

// trees reads every document of a file that has been read before. Aliases are left as they are.
func trees(text []byte) ([]*yaml.Node, error) {
	var out []*yaml.Node
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		root := &yaml.Node{}
		if err := d.Decode(root); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		if !yamltree.IsNull(root.Content[0]) { // nothing but comments
			out = append(out, root)
		}
	}
}

// equal reports whether a file means what the trees say.
func equal(name string, text []byte, want []*yaml.Node) bool {
	got, err := compose.ParseTrees(name, text)
	got = slices.DeleteFunc(got, func(root *yaml.Node) bool { return yamltree.IsNull(root.Content[0]) })
	return err == nil && slices.EqualFunc(got, want, func(a, b *yaml.Node) bool {
		return bytes.Equal(yamltree.JSON(a), yamltree.JSON(b))
	})
}

// rulesIn returns the rules of an object, nil if it has none.
func rulesIn(top *yaml.Node) *yaml.Node {
	if top.Kind == yaml.SequenceNode {
		return nil // the worker's own rules, which may have short forms
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

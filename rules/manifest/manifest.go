// Package manifest reads objects from YAML as people write it, and knows where each of their fields stands.
//
// Nothing here gives up at the first mistake: what is wrong with a text is collected as Problems, each with its line and its
// column, so that somebody who wrote ten mistakes has to come back once and not ten times.
package manifest

import (
	"cmp"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/yamltree"
)

// Position is a place in a text.
type Position = yamltree.Position

// Severity says how bad a Problem is.
type Severity string

// The severities. What Assay refuses is an error; what it takes, and its author surely did not mean, a warning.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Problem is something wrong with a text.
type Problem struct {
	Position
	Severity Severity
	// Code names the kind of problem, for tools that filter: syntax, duplicate-key, unknown-field, type, …
	Code string
	// Path of the field, such as spec.rules[0].labels[x]; empty for what concerns the text.
	Path string
	// Object is the kind and name that the field belongs to.
	Object string
	// Message says what is wrong and what to write instead.
	Message string
}

// String returns line:column: path: message.
func (p Problem) String() string {
	if p.Path == "" {
		return fmt.Sprintf("%s: %s", p.Position, p.Message)
	}
	return fmt.Sprintf("%s: %s: %s", p.Position, p.Path, p.Message)
}

// Sort orders problems by their place.
func Sort(list []Problem) {
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(a.Compare(b.Position), cmp.Compare(a.Message, b.Message))
	})
}

// File is the text of one file, in documents.
type File struct {
	// Name is what messages call it.
	Name string
	// Documents that could be read, in their order. The items of a List are documents of their own.
	Documents []*Document
	// Problems that keep documents from being read.
	Problems []Problem

	text yamltree.Text
}

// Text returns the text of the file without a byte order mark, and with \n as its line breaks.
func (f *File) Text() []byte { return f.text.Bytes() }

// Line returns a line of the file, from 1; empty if there is none.
func (f *File) Line(n int) string { return f.text.Line(n) }

// Document is one object of a File.
type Document struct {
	// APIVersion and Kind as they are written; empty for something without a type, such as a bare list of rules.
	APIVersion, Kind string
	// Name is metadata.name.
	Name string
	// Root is the object's node. Aliases in it are expanded.
	Root *yaml.Node

	file   *File
	prefix string              // of paths, in a List
	bad    map[*yaml.Node]bool // nodes that do not have the shape of their type
}

// File returns the file that the document is in.
func (d *Document) File() *File { return d.file }

// Title is the kind and the name, for messages.
func (d *Document) Title() string {
	switch {
	case d.Kind == "":
		return ""
	case d.Name == "":
		return d.Kind
	}
	return d.Kind + "/" + d.Name
}

// Position is where the document begins.
func (d *Document) Position() Position { return yamltree.At(d.Root) }

// newDocument returns an object of a file, with what it says of itself.
func newDocument(f *File, root *yaml.Node, prefix string) *Document {
	return &Document{
		Root: root, file: f, prefix: prefix, bad: map[*yaml.Node]bool{},
		APIVersion: text(Field(root, "apiVersion")), Kind: text(Field(root, "kind")), Name: text(Field(Field(root, "metadata"), "name")),
	}
}

// Child returns the value of a field of the document's object, nil if it has none.
func (d *Document) Child(names ...string) *yaml.Node {
	n := d.Root
	for _, name := range names {
		n = Field(n, name)
	}
	return n
}

// Field returns the value of a field of a mapping, nil if it has none or is no mapping.
func Field(n *yaml.Node, name string) *yaml.Node { return yamltree.Field(n, name) }

func text(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

// Package manifest parses objects from YAML and records the position of each of their fields.
//
// It does not stop at the first error: all errors of a text are collected as Problems, each with its line and column,
// so that an author can fix all of them at once.
package manifest

import (
	"cmp"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/yamltree"
)

// Position is a line and column of a text.
type Position = yamltree.Position

// Severity is the severity of a Problem.
type Severity string

// The severities: an error for input that Assay rejects, a warning for input that it accepts and that is probably not
// intended.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Problem is an error or a warning about a text.
type Problem struct {
	Position
	Severity Severity
	// Code names the kind of problem, for tools that filter: syntax, duplicate-key, unknown-field, type, …
	Code string
	// Path of the field, such as spec.rules[0].labels[x]; empty for a problem of the whole text.
	Path string
	// Object is the kind and name that the field belongs to.
	Object string
	// Message describes the problem and what to write instead.
	Message string
}

// String returns line:column: path: message.
func (p Problem) String() string {
	if p.Path == "" {
		return fmt.Sprintf("%s: %s", p.Position, p.Message)
	}
	return fmt.Sprintf("%s: %s: %s", p.Position, p.Path, p.Message)
}

// Sort sorts problems by position.
func Sort(list []Problem) {
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(a.Compare(b.Position), cmp.Compare(a.Message, b.Message))
	})
}

// File is the text of one file, split into documents.
type File struct {
	// Name is the name of the file in messages.
	Name string
	// Documents are those that could be parsed, in order. The items of a List are documents of their own.
	Documents []*Document
	// Problems that prevent documents from being parsed.
	Problems []Problem

	text yamltree.Text
}

// Text returns the text of the file without a byte order mark, and with \n as its line breaks.
func (f *File) Text() []byte { return f.text.Bytes() }

// Line returns a line of the file, counted from 1; empty if it does not exist.
func (f *File) Line(n int) string { return f.text.Line(n) }

// Document is one object of a File.
type Document struct {
	// APIVersion and Kind as written; empty for a document without a type, such as a bare list of rules.
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

// Title returns the kind and the name, for messages.
func (d *Document) Title() string {
	switch {
	case d.Kind == "":
		return ""
	case d.Name == "":
		return d.Kind
	}
	return d.Kind + "/" + d.Name
}

// Position returns the position where the document begins.
func (d *Document) Position() Position { return yamltree.At(d.Root) }

// newDocument returns an object of a file, with its apiVersion, kind and name.
func newDocument(f *File, root *yaml.Node, prefix string) *Document {
	return &Document{
		Root: root, file: f, prefix: prefix, bad: map[*yaml.Node]bool{},
		APIVersion: text(Field(root, "apiVersion")), Kind: text(Field(root, "kind")), Name: text(Field(Field(root, "metadata"), "name")),
	}
}

// Child returns the value of a field of the document's object, nil if it lacks the field.
func (d *Document) Child(names ...string) *yaml.Node {
	n := d.Root
	for _, name := range names {
		n = Field(n, name)
	}
	return n
}

// Field returns the value of a field of a mapping, nil if n lacks the field or is not a mapping.
func Field(n *yaml.Node, name string) *yaml.Node { return yamltree.Field(n, name) }

func text(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

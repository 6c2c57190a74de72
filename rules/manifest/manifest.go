// Package manifest parses objects from YAML and records the position of each of their fields.
//
// Parsing does not stop at the first error: all errors of a file are collected as Problems with line and column, so that the author
// can fix all of them at once.
package manifest

import (
	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/yamltree"
)

// Position is a line and column of a file.
type Position = yamltree.Position

// Problem is an error or a warning about a file.
type Problem = yamltree.Problem

// Severity is the severity of a Problem.
type Severity = yamltree.Severity

// The severities.
const (
	Error   = yamltree.Error
	Warning = yamltree.Warning
)

// Sort sorts problems by position.
func Sort(list []Problem) { yamltree.Sort(list) }

// File is the content of one file, split into documents.
type File struct {
	// Name is the name of the file in messages.
	Name string
	// Documents are the documents that could be parsed, in order. Each item of a List is a document.
	Documents []*Document
	// Problems are the reasons why documents could not be parsed.
	Problems []Problem

	text yamltree.Text
}

// Text returns the content of the file without a byte order mark, and with \n as line breaks.
func (f *File) Text() []byte { return f.text.Bytes() }

// Line returns a line of the file, counted from 1, or "" if it does not exist.
func (f *File) Line(n int) string { return f.text.Line(n) }

// Document is one object of a File.
type Document struct {
	// APIVersion and Kind are as written. They are empty for a document without a type, such as a list of rules.
	APIVersion, Kind string
	// Name is metadata.name.
	Name string
	// Root is the node of the object, with aliases expanded.
	Root *yaml.Node

	file   *File
	prefix string              // of paths, if the document is an item of a List
	bad    map[*yaml.Node]bool // nodes of the wrong type
	json   bool                // decoded from JSON: there is no source
	// FileBases lets bases be files: Decode returns their paths as names. The API server accepts templates of the cluster only.
	FileBases bool
	fromFiles bool // a base is a file
	// moved are the paths to which fields belong that are at another place, and partial the paths of matchers that lack a part.
	moved, partial []string
}

// BasedOnFiles reports whether Decode has read a base that is a file.
func (d *Document) BasedOnFiles() bool { return d.fromFiles }

// File returns the file that contains the document.
func (d *Document) File() *File { return d.file }

// Title returns the kind and the name for messages.
func (d *Document) Title() string {
	switch {
	case d.Kind == "":
		return ""
	case d.Name == "":
		return d.Kind
	}
	return d.Kind + "/" + d.Name
}

// Position returns the start of the document.
func (d *Document) Position() Position { return yamltree.At(d.Root) }

// newDocument returns a document with its apiVersion, kind and name.
func newDocument(f *File, root *yaml.Node, prefix string) *Document {
	return &Document{
		Root: root, file: f, prefix: prefix, bad: map[*yaml.Node]bool{},
		APIVersion: text(Field(root, "apiVersion")), Kind: text(Field(root, "kind")), Name: text(Field(Field(root, "metadata"), "name")),
	}
}

// Child returns the value of a field of the object, or nil if the field does not exist.
func (d *Document) Child(names ...string) *yaml.Node {
	n := d.Root
	for _, name := range names {
		n = Field(n, name)
	}
	return n
}

// Field returns the value of a field of a mapping, or nil if the field does not exist or n is not a mapping.
func Field(n *yaml.Node, name string) *yaml.Node { return yamltree.Field(n, name) }

func text(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

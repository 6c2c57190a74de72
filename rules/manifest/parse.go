package manifest

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/yamltree"
)

// Limits on one file.
const (
	// MaxText is the maximum size of a file in bytes. The API server accepts objects of up to 1.5 MiB, and a file may contain
	// several.
	MaxText = 16 << 20
	// MaxDocuments is the maximum number of documents in a file, counting a List as one. A chart with all features enabled has
	// about a hundred.
	MaxDocuments = 10_000
	// MaxNodes is the maximum number of nodes of a file after its aliases are expanded.
	MaxNodes = 1 << 20
	// MaxNesting is the maximum depth of nested nodes.
	MaxNesting = 100
)

var limits = yamltree.Options{Bytes: MaxText, Nodes: MaxNodes, Depth: MaxNesting, Documents: MaxDocuments}

// Parse parses all documents of a file. It always returns a File; errors are in its Problems.
func Parse(name string, data []byte) *File { return ParseWithin(name, data, limits) }

// ParseWithin is like Parse, with limits of the caller's choice.
func ParseWithin(name string, data []byte, limits yamltree.Options) *File {
	f := &File{Name: name, text: *yamltree.Parse(data, limits)}
	f.Problems = slices.Clone(f.text.Problems)
	for _, d := range f.text.Documents {
		if top := d.Content[0]; !yamltree.IsNull(top) {
			f.document(top, "")
		}
	}
	return f
}

// FromJSON returns a JSON object as a Document without positions.
func FromJSON(raw []byte) (*Document, error) {
	root, err := yamltree.FromJSON(raw, limits)
	if err != nil {
		return nil, err
	}
	d := newDocument(&File{}, root, "")
	d.json = true
	return d, nil
}

// document adds one object, or the items of a List.
func (f *File) document(n *yaml.Node, prefix string) {
	d := newDocument(f, n, prefix)
	items := Field(n, "items")
	if strings.HasSuffix(d.Kind, "List") && items != nil && items.Kind == yaml.SequenceNode && prefix == "" {
		for i, item := range items.Content {
			f.document(item, fmt.Sprintf("items[%d].", i))
		}
		return
	}
	f.Documents = append(f.Documents, d)
}

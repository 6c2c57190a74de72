package compose

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/yamltree"
)

// Limits on one YAML text.
const (
	// MaxText is the maximum size of a document in bytes. No handwritten document is larger.
	MaxText = 4 << 20
	// MaxNodes is the maximum number of nodes of a document after its aliases are expanded. Nine lines with aliases of aliases
	// expand to a billion nodes.
	MaxNodes = 1 << 18
	// MaxNesting is the maximum depth of nested nodes.
	MaxNesting = 100
)

// YAML is a document as written: a NodeFeatureRule, a NodeFeatureRuleTemplate, or the spec of one without an object.
type YAML struct {
	// ID identifies the document: an absolute path, a URL, cluster:NAME.
	ID string
	// Root is the whole document, including comments, with aliases expanded.
	Root *yaml.Node
	// Spec is the mapping that contains the rules.
	Spec *yaml.Node

	absent bool // set for a template that stays in the cluster
}

// ParseYAML parses one document. It does not check fields; see CheckFields.
func ParseYAML(id string, text []byte) (*YAML, error) {
	roots, err := ParseTrees(id, text)
	if err != nil {
		return nil, err
	}
	switch len(roots) {
	case 0:
		return nil, fmt.Errorf("%s: no document found", id)
	case 1:
		doc := &YAML{ID: id, Root: roots[0]}
		return doc, doc.findSpec()
	}
	return nil, fmt.Errorf("%s:%d: a second document begins here, expected one per file", id, roots[1].Content[0].Line)
}

// ParseTrees parses all documents of a YAML or JSON text and expands aliases, within the limits of this package. It returns all
// errors as one. The nodes are document nodes with positions in the text.
func ParseTrees(id string, text []byte) ([]*yaml.Node, error) {
	t := yamltree.Parse(text, yamltree.Options{Bytes: MaxText, Nodes: MaxNodes, Depth: MaxNesting, AtAnchors: true})
	if err := t.Err(id); err != nil {
		return nil, err
	}
	var problems Errors
	for _, root := range t.Documents {
		problems = append(problems, lostMarks(id, t, root)...)
	}
	return t.Documents, problems.orNil()
}

// lostMarks rejects values after a separate exclamation mark: YAML reads "! eq" as plain eq, so that writing the tree would remove
// the negation of a condition.
func lostMarks(id string, t *yamltree.Text, n *yaml.Node) (problems Errors) {
	if mark := t.LostMark(n); mark != "" {
		problems = append(problems, fmt.Errorf("%s:%s: YAML drops the exclamation mark of %q, which changes the meaning; put it in quotes",
			id, yamltree.At(n), mark))
	}
	for _, c := range n.Content {
		problems = append(problems, lostMarks(id, t, c)...)
	}
	return problems
}

// findSpec sets d.Spec.
func (d *YAML) findSpec() error {
	top := d.Root.Content[0]
	if yamltree.IsNull(top) { // the document contains only comments
		*top = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", HeadComment: top.HeadComment, FootComment: top.FootComment}
	}
	if top.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: expected a NodeFeatureRule, a NodeFeatureRuleTemplate or a spec, found a %s", d.ID, top.Line, yamltree.Type(top))
	}
	kind, _ := lookup(top, "kind")
	spec, _ := lookup(top, "spec")
	if kind < 0 && spec < 0 {
		d.Spec = top
		return nil
	}
	if kind >= 0 {
		switch k := top.Content[kind+1]; k.Value {
		case "NodeFeatureRule", "NodeFeatureRuleTemplate":
		default:
			return fmt.Errorf("%s:%d: expected kind NodeFeatureRule or NodeFeatureRuleTemplate, found %q", d.ID, k.Line, k.Value)
		}
	}
	if spec < 0 {
		return fmt.Errorf("%s:%d: spec: required", d.ID, top.Line)
	}
	d.Spec = top.Content[spec+1]
	if yamltree.IsNull(d.Spec) {
		*d.Spec = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: d.Spec.Line, Column: d.Spec.Column}
	}
	if d.Spec.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: expected a map of fields in spec, found a %s", d.ID, d.Spec.Line, yamltree.Type(d.Spec))
	}
	return nil
}

// Bases returns the bases in basedOn: a string, a list of strings, or a list of objects.
func (d *YAML) Bases() ([]Ref, error) {
	at, _ := lookup(d.Spec, "basedOn")
	if at < 0 {
		return nil, nil
	}
	value := d.Spec.Content[at+1]
	items := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		items = value.Content
	} else if yamltree.IsNull(value) {
		return nil, nil
	}
	var refs []Ref
	for _, item := range items {
		ref, err := parseRef(item)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: basedOn: %w", d.ID, item.Line, err)
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

// parseRef parses one entry of basedOn.
func parseRef(n *yaml.Node) (Ref, error) {
	if yamltree.IsString(n) && n.Value != "" {
		return Ref{Kind: ByLocator, Locator: n.Value}, nil
	}
	if n.Kind != yaml.MappingNode {
		return Ref{}, fmt.Errorf("expected a locator or an object with name, file or url, found a %s", yamltree.Type(n))
	}
	var ref Ref
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		switch key {
		case "name", "file", "url":
			if !yamltree.IsString(value) || value.Value == "" {
				return Ref{}, fmt.Errorf("%s: expected a string", key)
			}
			if ref.Locator != "" {
				return Ref{}, fmt.Errorf("expected one of name, file and url, found %s and %s", ref.Kind, key)
			}
			ref.Kind, ref.Locator = RefKind(key), value.Value
		case "digest":
			if !yamltree.IsString(value) {
				return Ref{}, errors.New("digest: expected a string")
			}
			ref.Digest = value.Value
		case "exclude":
			if value.Kind != yaml.SequenceNode || slices.ContainsFunc(value.Content, func(v *yaml.Node) bool { return !yamltree.IsString(v) }) {
				return Ref{}, errors.New("exclude: expected a list of names of rules; quote those that begin with *")
			}
			for _, v := range value.Content {
				ref.Exclude = append(ref.Exclude, v.Value)
			}
		default:
			return Ref{}, fmt.Errorf("unknown field %q, expected name, file, url, digest or exclude", key)
		}
	}
	if ref.Locator == "" {
		return Ref{}, errors.New("expected one of name, file and url")
	}
	return ref, nil
}

// Typed decodes a spec. It keeps references to bases of any kind.
func Typed(spec *yaml.Node) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
	bare := *spec
	bare.Content = slices.Clone(spec.Content)
	doc := YAML{Spec: spec}
	refs, err := doc.Bases()
	if err != nil {
		return nil, err
	}
	if at, _ := lookup(&bare, "basedOn"); at >= 0 {
		bare.Content = slices.Delete(bare.Content, at, at+2)
	}
	var out nfdv1alpha1.NodeFeatureRuleSpec
	if err := json.Unmarshal(yamltree.JSON(&bare), &out); err != nil {
		return nil, err
	}
	for _, r := range refs {
		out.BasedOn = append(out.BasedOn, nfdv1alpha1.Base{Name: r.Locator, Digest: r.Digest, Exclude: r.Exclude})
	}
	return &out, nil
}

// lookup returns the position and the value of a key in a mapping, or -1 if the key does not exist.
func lookup(mapping *yaml.Node, key string) (int, *yaml.Node) {
	at := yamltree.Index(mapping, key)
	if at < 0 {
		return -1, nil
	}
	return at, mapping.Content[at+1]
}

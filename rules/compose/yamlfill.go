package compose

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/yamltree"
)

// policy defines how a field that occurs in two documents is combined. merge.go does the same for typed specs; a test compares
// both.
type policy int

const (
	byKind       policy = iota // keep scalars, merge maps by key, append list items
	dropped                    // not inherited, or handled elsewhere
	atomic                     // kept unless it is empty, whatever its type
	emptyIsUnset               // a scalar, kept unless it is ""
	anyTrue                    // true if it is true in any document
	higher                     // the higher of both versions
	keyed                      // a list whose items are merged by what identifies them
)

var specPolicies = map[string]policy{
	"basedOn":        dropped,
	"sensitive":      anyTrue,
	"minimumVersion": higher,
	"rules":          dropped,
}

var rulePolicies = map[string]policy{
	"name":               dropped,
	"conditions":         atomic,
	"actions":            atomic,
	"matchFeatures":      atomic,
	"matchAny":           atomic,
	"loop":               atomic,
	"labelsTemplate":     emptyIsUnset,
	"varsTemplate":       emptyIsUnset,
	"labelsTemplateFrom": atomic,
	"varsTemplateFrom":   atomic,
	"expressions":        emptyIsUnset,
	"taints":             keyed,
	"nodeConditions":     keyed,
}

var itemPolicies = map[string]policy{"value": emptyIsUnset, "status": emptyIsUnset, "reason": emptyIsUnset, "message": emptyIsUnset}

// rivals are pairs of fields of a rule that exclude each other: a rule with one of them does not inherit the other.
var rivals = map[string]string{
	"labelsTemplate": "labelsTemplateFrom", "labelsTemplateFrom": "labelsTemplate",
	"varsTemplate": "varsTemplateFrom", "varsTemplateFrom": "varsTemplate",
}

// merger copies nodes from documents of lower precedence.
type merger struct {
	document string // the source document
	origin   map[*yaml.Node]string
}

// clone copies a tree and records its source.
func (m *merger) clone(n *yaml.Node, document string) *yaml.Node {
	out := *n
	out.Content = make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		out.Content[i] = m.clone(c, document)
	}
	m.origin[&out] = document
	return &out
}

// fill adds to the mapping dst the fields of src that do not exist in dst.
func (m *merger) fill(dst, src *yaml.Node, path string, policies map[string]policy) error {
	for i := 0; i < len(src.Content); i += 2 {
		key, value := src.Content[i], src.Content[i+1]
		if yamltree.IsNull(value) {
			continue // the API server drops null
		}
		how := policies[key.Value]
		at, have := lookup(dst, key.Value)
		switch {
		case how == dropped && key.Value != "rules":
			if key.Value == "name" && at >= 0 { // names are equal, since the rules were combined by name
				fillComments(dst.Content[at], key)
				fillComments(have, value)
			}
			continue
		case hasRival(dst, policies, key.Value):
			continue
		case at < 0:
			where := insertionPoint(dst)
			if key.Value == "rules" {
				where = len(dst.Content)
			}
			dst.Content = slices.Insert(dst.Content, where, m.clone(key, m.document), m.clone(value, m.document))
			continue
		case yamltree.IsNull(have):
			dst.Content[at+1] = m.clone(value, m.document)
			continue
		}
		fillComments(dst.Content[at], key)
		if how == dropped {
			if have.Kind != value.Kind {
				return typeConflict(join(path, key.Value), m.document)
			}
			continue
		}
		if err := m.combine(dst, at, value, join(path, key.Value), how); err != nil {
			return err
		}
	}
	return nil
}

// combine combines the field at a position of dst with the field of another document.
func (m *merger) combine(dst *yaml.Node, at int, src *yaml.Node, path string, how policy) error {
	have := dst.Content[at+1]
	if have.Kind != src.Kind && dst.Content[at].Value != "loop" { // a loop is a list or an expression
		return typeConflict(path, m.document)
	}
	var take bool
	switch how {
	case atomic:
		take = len(have.Content) == 0 && (have.Kind != yaml.ScalarNode || have.Value == "")
	case emptyIsUnset:
		take = have.Value == ""
	case anyTrue:
		take = have.Value != "true" && src.Value == "true"
	case higher:
		var err error
		if take, err = higherVersion(have.Value, src.Value, m.document); err != nil {
			return err
		}
	case keyed:
		return m.items(have, src, path)
	default:
		return m.byKind(have, src, path)
	}
	if take {
		dst.Content[at+1] = m.clone(src, m.document)
	}
	return nil
}

func (m *merger) byKind(have, src *yaml.Node, path string) error {
	switch have.Kind {
	case yaml.MappingNode:
		if err := m.fill(have, src, path, nil); err != nil {
			return err
		}
	case yaml.SequenceNode:
		for _, item := range src.Content {
			have.Content = append(have.Content, m.clone(item, m.document))
		}
	}
	fillComments(have, src)
	return nil
}

// items combines lists of taints by key and effect, and lists of conditions by type.
func (m *merger) items(have, src *yaml.Node, path string) error {
	if have.Kind != yaml.SequenceNode {
		return typeConflict(path, m.document)
	}
	for _, item := range src.Content {
		same := slices.IndexFunc(have.Content, func(o *yaml.Node) bool { return identity(o) == identity(item) })
		if same < 0 || item.Kind != yaml.MappingNode {
			have.Content = append(have.Content, m.clone(item, m.document))
			continue
		}
		if err := m.fill(have.Content[same], item, path, itemPolicies); err != nil {
			return err
		}
	}
	return nil
}

// identity returns what identifies an item: the fields of both kinds of lists, of which each item has its own.
func identity(n *yaml.Node) [3]string {
	var id [3]string
	if n.Kind != yaml.MappingNode {
		return id
	}
	for i, field := range []string{"key", "effect", "type"} {
		if _, v := lookup(n, field); v != nil {
			id[i] = v.Value
		}
	}
	return id
}

// hasRival reports whether a rule has a field that excludes the named field.
func hasRival(dst *yaml.Node, policies map[string]policy, field string) bool {
	if policies[rivals[field]] == byKind {
		return false // not a field of a rule
	}
	_, v := lookup(dst, rivals[field])
	return v != nil && !yamltree.IsNull(v) && (v.Kind != yaml.ScalarNode || v.Value != "")
}

// insertionPoint returns the position for a field that a spec inherits: before the rules, which are long.
func insertionPoint(mapping *yaml.Node) int {
	if at, list := lookup(mapping, "rules"); at > 0 && list.Kind == yaml.SequenceNode {
		return at
	}
	return len(mapping.Content)
}

// dropNulls removes the fields that are null, as the API server does.
func dropNulls(mapping *yaml.Node) {
	for i := len(mapping.Content) - 2; i >= 0; i -= 2 {
		if yamltree.IsNull(mapping.Content[i+1]) {
			mapping.Content = slices.Delete(mapping.Content, i, i+2)
		}
	}
}

func join(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

package compose

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/yamltree"
)

// policy defines how a field that two documents have is combined. merge.go does the same for typed specs, and a test
// compares the two.
type policy int

const (
	byKind       policy = iota // a scalar stays, maps combine key by key, items of the other list are appended
	dropped                    // not inherited, or handled elsewhere
	atomic                     // stays unless it is empty, whatever its type
	emptyIsUnset               // a scalar that stays unless it is ""
	anyTrue                    // true if any document sets it
	higher                     // the higher version
	keyedTaints                // a list whose items combine by key and effect
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
	"taints":             keyedTaints,
}

var taintPolicies = map[string]policy{"value": emptyIsUnset}

// rivals are pairs of fields of a rule of which only one may exist: a rule that has one does not inherit the other.
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

// fill adds to the mapping dst the fields of src that it lacks.
func (m *merger) fill(dst, src *yaml.Node, path string, policies map[string]policy) error {
	for i := 0; i < len(src.Content); i += 2 {
		key, value := src.Content[i], src.Content[i+1]
		if yamltree.IsNull(value) {
			continue // the API server drops null, so the field is absent
		}
		how := policies[key.Value]
		at, have := lookup(dst, key.Value)
		switch {
		case how == dropped && key.Value != "rules":
			if key.Value == "name" && at >= 0 { // the rules were combined because their names are equal
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

// combine combines the field at a position of dst with the same field of another document.
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
	case keyedTaints:
		return m.taints(have, src, path)
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

// taints combines lists of taints by key and effect, which identify a taint of a node.
func (m *merger) taints(have, src *yaml.Node, path string) error {
	if have.Kind != yaml.SequenceNode {
		return typeConflict(path, m.document)
	}
	for _, item := range src.Content {
		same := slices.IndexFunc(have.Content, func(o *yaml.Node) bool { return taintID(o) == taintID(item) })
		if same < 0 || item.Kind != yaml.MappingNode {
			have.Content = append(have.Content, m.clone(item, m.document))
			continue
		}
		if err := m.fill(have.Content[same], item, path, taintPolicies); err != nil {
			return err
		}
	}
	return nil
}

func taintID(n *yaml.Node) [2]string {
	var id [2]string
	if n.Kind != yaml.MappingNode {
		return id
	}
	for i, field := range []string{"key", "effect"} {
		if _, v := lookup(n, field); v != nil {
			id[i] = v.Value
		}
	}
	return id
}

// hasRival reports whether a rule has the field that excludes the named one.
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

// dropNulls removes the fields that are null, which the API server would remove.
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

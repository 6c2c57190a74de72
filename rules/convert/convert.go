// Package convert converts rules in other formats, or in a short form, to NodeFeatureRules.
//
// It works on YAML nodes and keeps their comments where possible. Nothing is dropped silently: input that has no
// equivalent is returned as a Note.
package convert

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/yamltree"
)

// Note is a message for the user who converts rules.
type Note struct {
	// Line is the line in the source, 0 if unknown.
	Line int
	// Where is the rule and the part of it.
	Where string
	// Message describes what was done, or why nothing was done.
	Message string
	// Lost is set if something has no equivalent, so that the result does less than the source or applies to more nodes.
	Lost bool
}

func (n Note) String() string {
	if n.Line == 0 {
		return fmt.Sprintf("%s: %s", n.Where, n.Message)
	}
	return fmt.Sprintf("line %d: %s: %s", n.Line, n.Where, n.Message)
}

// nfdVersion is the apiVersion of NodeFeatureRules.
var nfdVersion = nfdv1alpha1.GroupVersion.String()

// notes collects notes about one rule.
type notes struct {
	where string
	list  []Note
}

func (n *notes) add(at *yaml.Node, format string, args ...any) {
	n.list = append(n.list, Note{Line: at.Line, Where: n.where, Message: fmt.Sprintf(format, args...)})
}

func (n *notes) lost(at *yaml.Node, format string, args ...any) {
	n.list = append(n.list, Note{Line: at.Line, Where: n.where, Message: fmt.Sprintf(format, args...), Lost: true})
}

// Functions that create nodes.

func text(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

// quoted returns a node for a string that would be misread without quotes.
func quoted(s string) *yaml.Node {
	n := text(s)
	if n.Style&yaml.LiteralStyle == 0 {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func boolean(b bool) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(b)}
}

func mapping(pairs ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: pairs}
}

func sequence(items ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: items}
}

// flow writes a small node in flow style, on one line.
func flow(n *yaml.Node) *yaml.Node {
	n.Style |= yaml.FlowStyle
	return n
}

func set(m *yaml.Node, key string, value *yaml.Node) {
	if at := yamltree.Index(m, key); at >= 0 {
		m.Content[at+1] = value
		return
	}
	m.Content = append(m.Content, text(key), value)
}

// Functions that read nodes.

// child returns the value of a key; nil if it does not exist or is null.
func child(m *yaml.Node, key string) *yaml.Node {
	at := yamltree.Index(m, key)
	if at < 0 || yamltree.IsNull(m.Content[at+1]) {
		return nil
	}
	return m.Content[at+1]
}

func remove(m *yaml.Node, key string) {
	if at := yamltree.Index(m, key); at >= 0 {
		m.Content = slices.Delete(m.Content, at, at+2)
	}
}

func value(m *yaml.Node, key string) string {
	if n := child(m, key); n != nil && n.Kind == yaml.ScalarNode {
		return n.Value
	}
	return ""
}

package yamltree

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// parser parses the documents of one text.
type parser struct {
	text    *Text
	options Options
	nodes   int

	// State of the current document.
	first int                 // number of lines before it
	open  map[*yaml.Node]bool // ancestors of the node that is being expanded
}

func (p *parser) problem(at Position, code, format string, args ...any) {
	p.text.Problems = append(p.text.Problems, Problem{Position: at, Severity: Error, Code: code, Message: fmt.Sprintf(format, args...)})
}

func (p *parser) chunk(c chunk) {
	var root yaml.Node
	if err := yaml.Unmarshal(c.text(), &root); err != nil {
		p.syntax(c, err)
		return
	}
	if len(root.Content) == 0 {
		return
	}
	p.first, p.open = c.first, map[*yaml.Node]bool{}
	top := p.expand(root.Content[0], 0)
	if top == nil {
		return
	}
	root.Line, root.Content = p.line(&root), []*yaml.Node{top}
	p.text.Documents = append(p.text.Documents, &root)
}

// line returns the line of a node in the file. YAML breaks lines at characters such as U+2028 where editors do not, so the result
// is limited to the last line.
func (p *parser) line(n *yaml.Node) int { return min(n.Line+p.first, len(p.text.lines)) }

// expand copies a tree, replaces each alias by the value of its anchor, and adjusts line numbers. It returns nil if the tree cannot
// be expanded or exceeds a limit.
func (p *parser) expand(n *yaml.Node, depth int) *yaml.Node {
	at, alias := Position{p.line(n), n.Column}, n.Kind == yaml.AliasNode
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if p.open[n] {
		p.problem(at, CodeSyntax, "the anchor &%s is used within itself", n.Anchor)
		return nil
	}
	switch p.nodes++; {
	case p.options.Nodes > 0 && p.nodes > p.options.Nodes:
		if p.nodes == p.options.Nodes+1 {
			p.problem(at, CodeLimit, "too many YAML nodes: at most %d are allowed, with aliases expanded", p.options.Nodes)
		}
		return nil
	case p.options.Depth > 0 && depth >= p.options.Depth:
		p.problem(at, CodeLimit, "too many levels of YAML: at most %d are allowed", p.options.Depth)
		return nil
	}
	out := *n
	out.Line, out.Anchor, out.Alias, out.Content = p.line(n), "", nil, nil
	if alias && !p.options.AtAnchors {
		out.Line, out.Column = at.Line, at.Column
	}
	if len(n.Content) == 0 {
		return &out
	}
	p.open[n] = true
	defer delete(p.open, n)
	if n.Kind == yaml.MappingNode {
		return p.mapping(&out, n, depth)
	}
	for _, c := range n.Content {
		e := p.expand(c, depth+1)
		if e == nil {
			return nil
		}
		out.Content = append(out.Content, e)
	}
	return &out
}

// mapping expands a map and merges the maps of <<. Of duplicate keys, the first one wins.
func (p *parser) mapping(out, n *yaml.Node, depth int) *yaml.Node {
	seen := map[string]*yaml.Node{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		value := p.expand(n.Content[i+1], depth+1)
		key := p.expand(n.Content[i], depth+1)
		if key == nil || value == nil {
			return nil
		}
		if n.Content[i].ShortTag() == "!!merge" {
			merged = append(merged, value)
			continue
		}
		if key.Kind != yaml.ScalarNode && helmAction.MatchString(p.text.From(At(out))) {
			p.problem(At(out), CodeSyntax, "%s", helmReason)
			return nil
		}
		if key.Kind != yaml.ScalarNode {
			p.problem(At(key), CodeSyntax, "%s cannot be a key; put text that begins with a brace in quotes", Describe(key))
			continue
		}
		if before, ok := seen[key.Value]; ok {
			p.problem(At(key), CodeDuplicateKey, "the key %q is already on line %d; one of the two would be lost", key.Value, before.Line)
			continue
		}
		seen[key.Value] = key
		out.Content = append(out.Content, key, value)
	}
	for _, m := range merged {
		p.merge(out, m, seen)
	}
	return out
}

func (p *parser) merge(out, m *yaml.Node, seen map[string]*yaml.Node) {
	sources := []*yaml.Node{m}
	if m.Kind == yaml.SequenceNode {
		sources = m.Content
	}
	for _, s := range sources {
		if s.Kind != yaml.MappingNode {
			p.problem(At(s), CodeSyntax, "<< merges maps, found %s", Describe(s))
			continue
		}
		for i := 0; i+1 < len(s.Content); i += 2 {
			if _, ok := seen[s.Content[i].Value]; !ok {
				seen[s.Content[i].Value] = s.Content[i]
				out.Content = append(out.Content, s.Content[i], s.Content[i+1])
			}
		}
	}
}

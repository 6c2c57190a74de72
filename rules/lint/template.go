package lint

import (
	"strings"
	"text/template/parse"
)

// value stands for what an action of a template prints.
const value = "\x00"

// linesWithoutValue returns the lines of a template that cannot come to hold an =, in their order. A template that does not
// parse has none: Compile says what is wrong with it.
func linesWithoutValue(text string) []string {
	if text == "" {
		return nil
	}
	tree := parse.New("template")
	tree.Mode = parse.SkipFuncCheck
	if _, err := tree.Parse(text, "", "", map[string]*parse.Tree{}); err != nil || tree.Root == nil {
		return nil
	}
	var b strings.Builder
	flatten(&b, tree.Root)
	var out []string
	for _, line := range strings.Split(b.String(), "\n") {
		line = strings.TrimSpace(line)
		if line != "" && !strings.Contains(line, "=") && !strings.Contains(line, value) {
			out = append(out, line)
		}
	}
	return out
}

// flatten writes what a template prints if each of its branches is taken once.
func flatten(b *strings.Builder, n parse.Node) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, child := range n.Nodes {
			flatten(b, child)
		}
	case *parse.TextNode:
		b.Write(n.Text)
	case *parse.ActionNode:
		if len(n.Pipe.Decl) == 0 {
			b.WriteString(value)
		}
	case *parse.TemplateNode:
		b.WriteString(value)
	case *parse.IfNode:
		flatten(b, n.List)
		flatten(b, n.ElseList)
	case *parse.WithNode:
		flatten(b, n.List)
		flatten(b, n.ElseList)
	case *parse.RangeNode:
		flatten(b, n.List)
		flatten(b, n.ElseList)
	}
}

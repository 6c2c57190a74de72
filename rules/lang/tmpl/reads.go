package tmpl

import (
	"cmp"
	"slices"
	"strings"
	"text/template/parse"
)

// reads records that the template reads a path of its data.
func (c *compiler) reads(at int, from position, path []string) {
	if !from.known {
		return
	}
	var name [2]string
	n := copy(name[:], from.path)
	if n += copy(name[n:], path); n < len(name) {
		return
	}
	c.t.reads = append(c.t.reads, read{DataPath{Domain: name[0], Name: name[1], Conditional: c.inner > 0}, at})
}

// read is a path that code reads, without its line and column, and its position in the code.
type read struct {
	path DataPath
	at   int
}

// fieldRead is a field of an element that code reads, without its line and column, and its position in the code.
type fieldRead struct {
	element ElementPath
	at      int
}

// feature returns the feature over whose elements a range runs, or "" if the source does not show it.
func (c *compiler) feature(pipe *parse.PipeNode) string {
	if len(pipe.Cmds) != 1 || len(pipe.Cmds[0].Args) != 1 {
		return ""
	}
	from := c.dot
	var path []string
	switch n := pipe.Cmds[0].Args[0].(type) {
	case *parse.FieldNode:
		path = n.Ident
	case *parse.VariableNode:
		if n.Ident[0] != "$" || !c.main {
			return ""
		}
		from, path = position{known: true}, n.Ident[1:]
	}
	if !from.known || len(from.path)+len(path) != 2 {
		return ""
	}
	return strings.Join(append(append([]string(nil), from.path...), path...), ".")
}

// field records that code reads a field of an element; the first name is that of the variable.
func (c *compiler) field(at int, feature string, names []string) {
	if feature != "" && len(names) == 2 {
		c.t.fields = append(c.t.fields, fieldRead{ElementPath{Feature: feature, Field: names[1]}, at})
	}
}

// distinct returns one read for each feature, in the order of the code.
func distinct(reads []read) []read {
	if len(reads) < 2 {
		return reads
	}
	slices.SortStableFunc(reads, func(a, b read) int {
		return cmp.Or(cmp.Compare(a.path.Domain, b.path.Domain), cmp.Compare(a.path.Name, b.path.Name))
	})
	out := reads[:1]
	for _, r := range reads[1:] {
		if last := &out[len(out)-1].path; last.Domain == r.path.Domain && last.Name == r.path.Name {
			last.Conditional = last.Conditional && r.path.Conditional
			continue
		}
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b read) int { return cmp.Compare(a.at, b.at) })
	return out
}

// follow returns the position of a pipeline that is a plain path, for with.
func (c *compiler) follow(pipe *parse.PipeNode) position {
	if len(pipe.Cmds) != 1 || len(pipe.Cmds[0].Args) != 1 {
		return position{}
	}
	from := c.dot
	var path []string
	switch n := pipe.Cmds[0].Args[0].(type) {
	case *parse.DotNode:
		return c.dot
	case *parse.FieldNode:
		path = n.Ident
	case *parse.VariableNode:
		if n.Ident[0] != "$" || !c.main {
			return position{}
		}
		from, path = position{known: true}, n.Ident[1:]
	default:
		return position{}
	}
	if !from.known || len(from.path)+len(path) > 1 {
		return position{}
	}
	return position{known: true, path: append(append([]string(nil), from.path...), path...)}
}

// indexes records the path that index . "domain" "feature" reads. This form is required for names with a dash or a second dot.
func (c *compiler) indexes(at int, nodes []parse.Node) {
	from := c.dot
	switch n := nodes[0].(type) {
	case *parse.DotNode:
	case *parse.FieldNode:
		from.path = append(append([]string(nil), from.path...), n.Ident...)
	default:
		return
	}
	var path []string
	for _, node := range nodes[1:] {
		s, ok := node.(*parse.StringNode)
		if !ok {
			break
		}
		path = append(path, s.Text)
	}
	c.reads(at, from, path)
}

// warnOfBareLines warns about lines that are written without =, as far as the source shows. NFD drops a rule that writes such a
// line; its older documentation describes it as a label with the value true, which is the behavior here.
func (c *compiler) warnOfBareLines(tree *parse.Tree) {
	if tree == nil {
		return // the source contains only definitions
	}
	w := bareLines{c: c}
	w.list(tree.Root)
	w.end()
}

type bareLines struct {
	c     *compiler
	start int  // position in the source of the first text of the line
	text  bool // the line contains text
	open  bool // the line contains =, or an action that may write one
}

func (w *bareLines) list(list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		w.node(node)
	}
}

func (w *bareLines) node(node parse.Node) {
	switch n := node.(type) {
	case *parse.TextNode:
		at := int(n.Position())
		for i, part := range strings.Split(string(n.Text), "\n") {
			if i > 0 {
				w.end()
			}
			if trimmed := strings.TrimSpace(part); trimmed != "" && !w.text {
				w.text, w.start = true, at+strings.Index(part, trimmed)
			}
			w.open = w.open || strings.Contains(part, "=")
			at += len(part) + 1
		}
	case *parse.ActionNode:
		if len(n.Pipe.Decl) > 0 {
			return
		}
		args := n.Pipe.Cmds[len(n.Pipe.Cmds)-1].Args
		_, field := args[0].(*parse.FieldNode)
		w.open = w.open || !field
	case *parse.RangeNode:
		w.list(n.List)
		w.list(n.ElseList)
	case *parse.IfNode:
		w.list(n.List)
		w.list(n.ElseList)
	case *parse.WithNode:
		w.list(n.List)
		w.list(n.ElseList)
	case *parse.TemplateNode:
		w.open = true
	}
}

// end is called at the end of each line.
func (w *bareLines) end() {
	if w.text && !w.open {
		line, column := w.c.place(w.start)
		message := "this line has no =, and is written with the value true; write key=value"
		if w.c.t.opt.Strict {
			message = "this line has no =, so that the rule is dropped wherever it is written; write key=value"
		}
		w.c.problems = append(w.c.problems, Diagnostic{Line: line, Column: column, Message: message, Warning: true})
	}
	w.text, w.open = false, false
}

package tmpl

import (
	"maps"
	"slices"
	"strings"
	"text/template/parse"
)

const (
	// maxNames is the maximum number of names, and of beginnings of one line, that are known of a template. One with more may write
	// any name.
	maxNames = 64
	// maxName is the length in bytes beyond which no name is valid: a prefix has at most 253, a name 63.
	maxName = 253 + 1 + 63
	// maxFollowed is the maximum number of bytes that are followed, in all variants of a line. The bodies of nested loops are followed
	// again and again. A template with more may write any name.
	maxFollowed = 2 * MaxSource
)

// WritesAny reports whether the source does not show which names the output has.
func (t *Template) WritesAny() bool { return t.lineNames() == nil }

// MayWrite reports whether the output may have a name, as far as the source shows.
func (t *Template) MayWrite(name string) bool {
	names := t.lineNames()
	for known, whole := range names {
		if known == name || !whole && strings.HasPrefix(name, known) {
			return true
		}
	}
	return names == nil
}

// lineNames returns the names that the template may write; nil: any. It finds them on first use, since a review does not need them,
// and parses the source again instead of keeping its tree in memory.
func (t *Template) lineNames() map[string]bool {
	t.namesOnce.Do(func() {
		t.names = map[string]bool{}
		if trees, err := parseSource(t.source); err == nil && trees[mainName] != nil {
			t.names = namesOf(trees[mainName].Root)
		}
	})
	return t.names
}

// ended is what a line begins with whose name is known.
const ended = "="

// lineNames follows a template to find the names of the lines that it writes.
type lineNames struct {
	// names maps each name to true, and the text before an action that writes the rest of a name to false; nil: any name.
	names map[string]bool
	line  map[string]bool // what the current line may consist of so far
	// broken and continued are the same where break and continue leave the body of a loop.
	broken, continued map[string]bool
	left              int // of maxFollowed
}

// namesOf returns the names that a template may write; nil: any.
func namesOf(root *parse.ListNode) map[string]bool {
	w := lineNames{names: map[string]bool{}, line: map[string]bool{"": true}, left: maxFollowed}
	w.list(root)
	w.text("\n")
	return w.names
}

func (w *lineNames) list(list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		if w.node(node); len(w.names) > maxNames || len(w.line) > maxNames || w.left < 0 {
			w.names = nil
		}
		if w.names == nil {
			return
		}
	}
}

func (w *lineNames) node(node parse.Node) {
	w.left -= 1 + len(w.line)
	switch n := node.(type) {
	case *parse.TextNode:
		w.text(string(n.Text))
	case *parse.ActionNode:
		w.action(n.Pipe)
	case *parse.IfNode:
		w.branch(n.List, n.ElseList)
	case *parse.WithNode:
		w.branch(n.List, n.ElseList)
	case *parse.RangeNode:
		w.loop(n)
	case *parse.BreakNode:
		maps.Copy(w.broken, w.line)
		w.line = map[string]bool{}
	case *parse.ContinueNode:
		maps.Copy(w.continued, w.line)
		w.line = map[string]bool{}
	case *parse.CommentNode:
	default:
		w.names = nil // it calls another template
	}
}

// text adds literal text to the lines.
func (w *lineNames) text(text string) {
	w.left -= len(text) * max(1, len(w.line))
	part, rest, more := strings.Cut(text, "\n")
	if part != "" {
		next := map[string]bool{}
		for so := range w.line {
			next[w.extend(so, part)] = true
		}
		w.line = next
	}
	for more {
		for so := range w.line {
			w.end(so)
		}
		part, rest, more = strings.Cut(rest, "\n")
		clear(w.line)
		w.line[w.extend("", part)] = true
	}
}

// extend returns what a line consists of after literal text.
func (w *lineNames) extend(so, text string) string {
	if so == ended {
		return ended
	}
	name, _, is := strings.Cut(strings.TrimLeft(so+text, " \t\r"), "=")
	if is {
		w.add(name, true)
	}
	if is || len(name) > maxName {
		return ended
	}
	return name
}

// end ends a line. One without = is a name.
func (w *lineNames) end(so string) {
	if so = strings.TrimSpace(so); so != ended {
		w.add(so, true)
	}
}

// add adds a name, or the text that one begins with.
func (w *lineNames) add(name string, whole bool) {
	if prefix, known := w.names[name]; w.names != nil && name != "" && (!known || prefix) {
		w.names[name] = whole
	}
}

// lineBreaks are the ways to write a line break in a string of a template.
var lineBreaks = []string{"\n", `\n`, `\x`, `\u`, `\U`, `\0`}

// action adds what an action writes, which the source shows if it is a string.
func (w *lineNames) action(pipe *parse.PipeNode) {
	if s, is := pipe.Cmds[0].Args[0].(*parse.StringNode); is && len(pipe.Cmds) == 1 && len(pipe.Decl) == 0 {
		w.text(s.Text)
		return
	}
	source := pipe.String()
	w.left -= len(source)
	if w.line[""] && len(pipe.Decl) == 0 || slices.ContainsFunc(lineBreaks, func(s string) bool { return strings.Contains(source, s) }) {
		w.names = nil
		return
	}
	if len(pipe.Decl) > 0 {
		return
	}
	for so := range w.line {
		if so != ended {
			w.add(so, false)
		}
	}
	w.line = map[string]bool{ended: true}
}

// branch follows both lists.
func (w *lineNames) branch(then, otherwise *parse.ListNode) {
	before := maps.Clone(w.line)
	w.list(then)
	after := w.line
	w.line = before
	w.list(otherwise)
	maps.Copy(w.line, after)
}

// loop follows the body of a loop until a further run adds nothing.
func (w *lineNames) loop(n *parse.RangeNode) {
	broken, continued := w.broken, w.continued
	entry := maps.Clone(w.line)
	for before := -1; w.names != nil && before < len(entry); {
		before = len(entry)
		w.broken, w.continued, w.line = map[string]bool{}, map[string]bool{}, maps.Clone(entry)
		w.list(n.List)
		maps.Copy(entry, w.line)
		maps.Copy(entry, w.continued)
		if len(entry) > maxNames {
			w.names = nil
		}
	}
	w.line = entry
	w.branch(nil, n.ElseList)
	maps.Copy(w.line, w.broken)
	w.broken, w.continued = broken, continued
}

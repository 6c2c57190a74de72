package expr

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxWarnings is the maximum number of warnings for one string.
const maxWarnings = 8

// maxProblems is the maximum number of errors that are reported for one string.
const maxProblems = 32

// compiler splits a string into literal text and expressions.
type compiler struct {
	text  string
	place Place
	scope *Scope

	parts       []part
	literal     []byte // the literal text since the last expression
	plain       int    // length of all literal text
	expressions int
	open        int  // doubled opening braces that are not closed yet
	escaped     bool // a doubled brace was replaced by a single one
	holds       bool // the string contains an expression, possibly a doubled one
	arena       []node
	scratch     []node // nodes of expressions that are parsed only to check whether they are valid
	problems    []Diagnostic
}

// hasBrace reports whether the string must be parsed. A single closing brace matters only in places where it is an error.
func hasBrace(text string, place Place) bool {
	if place == Strict {
		return strings.ContainsAny(text, "{}")
	}
	return strings.IndexByte(text, '{') >= 0
}

// lenient reports whether braces without a valid expression are literal.
func (c *compiler) lenient() bool { return c.place == Free || c.place == Var || c.place == Regex }

func (c *compiler) compile(mode Mode) (*Text, []Diagnostic) {
	t := &Text{source: c.text}
	c.parts = t.first[:0]
	for pos := 0; pos >= 0 && pos < len(c.text); {
		next := strings.IndexAny(c.text[pos:], "{}")
		if next < 0 {
			next = len(c.text) - pos
		}
		c.literal = append(c.literal, c.text[pos:pos+next]...)
		if pos += next; pos == len(c.text) {
			break
		}
		if c.text[pos] == '{' {
			pos = c.opening(pos)
		} else {
			pos = c.closing(pos)
		}
	}
	c.flush()
	c.limits()
	if mode == Always {
		for i := range c.problems {
			c.problems[i].Warning = false
		}
	}
	slices.SortStableFunc(c.problems, func(a, b Diagnostic) int { return cmp.Compare(a.Column, b.Column) })
	if slices.ContainsFunc(c.problems, func(p Diagnostic) bool { return !p.Warning }) {
		return nil, c.problems
	}
	c.finish(t)
	return t, c.problems
}

// finish completes the Text of a string without errors.
func (c *compiler) finish(t *Text) {
	switch {
	case c.expressions > 0:
		t.parts = c.parts
		t.whole = len(c.parts) == 1 && c.parts[0].format == nil
	case c.lenient() && !c.holds:
		t.value = c.text // doubled braces are literal too
	case len(c.parts) == 1:
		t.value = c.parts[0].literal
	}
}

// limits checks the limits that depend on the whole string.
func (c *compiler) limits() {
	if c.expressions == 0 {
		return
	}
	if len(c.text) > MaxText {
		c.problem(0, fmt.Sprintf("text of %d bytes is longer than %d", len(c.text), MaxText), "")
	}
	if c.expressions > MaxExpressions {
		c.problem(0, fmt.Sprintf("%d expressions, %d are allowed", c.expressions, MaxExpressions), "")
	}
	if c.plain > MaxResult {
		c.problem(0, fmt.Sprintf("the result would be longer than %d bytes", MaxResult), "")
	}
}

// opening handles the { at pos and returns the position at which to continue, or -1 to stop.
func (c *compiler) opening(pos int) int {
	rest := c.text[pos+1:]
	switch {
	case strings.HasPrefix(rest, "{"):
		c.literal = append(c.literal, '{')
		c.open++
		c.escaped = true
		if !c.holds && c.lenient() && opens(rest[1:]) {
			c.holds = c.doubled(pos + 2)
		}
		return pos + 2
	case c.place != Strict && pos > 0 && c.text[pos-1] == '$':
		return c.shell(pos)
	case c.place == Regex && regexClass(c.text[:pos]), c.lenient() && repetition(rest):
		c.literal = append(c.literal, '{')
		return pos + 1
	case opens(rest):
		return c.expression(pos)
	case c.place == Strict:
		c.problem(pos, "stray {", strayHint(rest))
		return -1
	}
	c.literal = append(c.literal, '{')
	return pos + 1
}

// shell skips ${…}, which is the syntax of shells and of Flux.
func (c *compiler) shell(pos int) int {
	end := strings.IndexByte(c.text[pos:], '}')
	if end < 0 {
		end = len(c.text) - pos - 1 // no expression can follow
	}
	c.literal = append(c.literal, c.text[pos:pos+end+1]...)
	return pos + end + 1
}

// closing handles the } at pos, which is not part of an expression.
func (c *compiler) closing(pos int) int {
	if c.open > 0 && strings.HasPrefix(c.text[pos+1:], "}") {
		c.literal = append(c.literal, '}')
		c.open--
		return pos + 2
	}
	if c.place == Strict {
		c.problem(pos, "stray }", "")
		return -1
	}
	c.literal = append(c.literal, '}')
	return pos + 1
}

// expression handles the { at pos, which may begin an expression.
func (c *compiler) expression(pos int) int {
	p := parser{text: c.text, pos: pos + 1, scope: c.scope, arena: c.arena, quiet: c.lenient() && len(c.problems) >= maxWarnings}
	parsed := p.parse()
	c.arena = p.arena
	if !p.failed && len(p.errs) == 0 {
		return c.accept(pos, &p, parsed)
	}
	if !c.lenient() {
		c.addErrors(p.errs)
		if p.failed || len(c.problems) >= maxProblems {
			return -1
		}
		c.expressions++
		return p.pos
	}
	if !slices.ContainsFunc(p.errs, func(e parseError) bool { return !e.lenient }) {
		c.warn(p.errs[0])
		c.literal = append(c.literal, '{')
		return pos + 1
	}
	c.addErrors(p.errs)
	if len(c.problems) >= maxProblems {
		return -1
	}
	c.literal = append(c.literal, '{')
	return pos + 1
}

// accept adds a valid expression, unless it is literal text.
func (c *compiler) accept(pos int, p *parser, parsed part) int {
	if c.lenient() && !p.named {
		c.literal = append(c.literal, c.text[pos:p.pos]...)
		return p.pos
	}
	c.holds = true
	c.expressions++
	if c.expressions > MaxExpressions {
		return p.pos // counted for the error message but not kept
	}
	if whole := pos == 0 && p.pos == len(c.text) && parsed.format == nil; isCollection(parsed.node.kind) && !(whole && c.keepsKind()) {
		c.problem(pos, parsed.node.kind.String()+" is not a string", "choose an element, or write .join(\",\")")
		return p.pos
	}
	parsed.node.walk(func(n *node) {
		if n.missing != nil {
			n.missing.Column = column(c.text, n.pos)
		}
	})
	c.flush()
	c.parts = append(c.parts, parsed)
	return p.pos
}

// keepsKind reports whether the place accepts a list or a map.
func (c *compiler) keepsKind() bool { return c.place == Var || c.place == Arg }

// doubled reports whether a valid expression in doubled braces begins at pos.
func (c *compiler) doubled(pos int) bool {
	p := parser{text: c.text, pos: pos, scope: c.scope, quiet: true, arena: c.scratch[:0]}
	p.parse()
	c.scratch = p.arena
	return !p.failed && len(p.errs) == 0 && p.named && strings.HasPrefix(c.text[p.pos:], "}")
}

// flush ends a piece of literal text.
func (c *compiler) flush() {
	if len(c.literal) == 0 {
		return
	}
	c.plain += len(c.literal)
	c.parts = append(c.parts, part{literal: string(c.literal)})
	c.literal = c.literal[:0]
}

func (c *compiler) problem(pos int, message, hint string) {
	c.problems = append(c.problems, Diagnostic{Column: column(c.text, pos), Message: message, Hint: hint})
}

func (c *compiler) addErrors(list []parseError) {
	for _, e := range list {
		c.problem(e.pos, e.message, e.hint)
	}
}

func (c *compiler) warn(e parseError) {
	if len(c.problems) >= maxWarnings {
		return
	}
	c.problems = append(c.problems, Diagnostic{
		Column:  column(c.text, e.pos),
		Message: e.message + ": this { stays as it is",
		Hint:    cmp.Or(e.hint, "write expressions: Disabled if none is meant"),
		Warning: true,
	})
}

// column returns the column of a byte of the text, counted from 1.
func column(text string, pos int) int { return utf8.RuneCountInString(text[:pos]) + 1 }

// opens reports whether s, the text after a brace, may begin an expression. JSON, {}, { x } and {"x"} do not.
func opens(s string) bool {
	return s != "" && (isLetter(s[0]) || isDigit(s[0]) || s[0] == '(' || s[0] == '-' || s[0] == '@')
}

// regexClass reports whether the text ends in \p, \P or \x, whose braces belong to the regular expression.
func regexClass(s string) bool {
	n := len(s)
	if n < 2 || s[n-2] != '\\' || !strings.ContainsRune("pPx", rune(s[n-1])) {
		return false
	}
	backslashes := 0
	for n-2-backslashes >= 0 && s[n-2-backslashes] == '\\' {
		backslashes++
	}
	return backslashes%2 == 1
}

// repetition reports whether s, the text after a brace, is the rest of a repetition in a regular expression: {1,2} or {3,}. It is
// never an expression and needs no warning. {3} is literal too, because it contains no name.
func repetition(s string) bool {
	digits := strings.TrimLeft(s, "0123456789")
	most, comma := strings.CutPrefix(digits, ",")
	return comma && len(digits) < len(s) && strings.HasPrefix(strings.TrimLeft(most, "0123456789"), "}")
}

// strayHint returns a hint for a brace that does not begin an expression.
func strayHint(rest string) string {
	switch {
	case strings.HasPrefix(rest, " "):
		return "an expression begins right after its brace"
	case strings.HasPrefix(rest, "}"):
		return "an expression needs a name"
	}
	return "write {{ for a literal brace"
}

// TemplateHint returns a hint for a string that looks like a Go template, which only the template fields expand, or "" for any
// other string.
func TemplateHint(text string) string {
	_, rest, ok := strings.Cut(text, "{{")
	if !ok {
		return ""
	}
	rest = strings.TrimLeft(strings.TrimPrefix(rest, "-"), " ")
	for _, start := range []string{".", "$", "range ", "if ", "with ", "len ", "index ", "printf "} {
		if strings.HasPrefix(rest, start) {
			return "a Go template belongs in labelsTemplate"
		}
	}
	return ""
}

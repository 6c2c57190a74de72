package tmpl

import (
	"slices"
	"sort"
	"strings"
	"text/template/parse"
)

// Shapes keeps the code of templates while the rules of an object are compiled: the templates of a catalog of devices often differ in
// nothing but their literal text, and share their code. It is not safe for concurrent use; a nil *Shapes keeps nothing.
type Shapes struct{ known map[string]shape }

// shape is the code of all templates with the same actions, and its tree. The code is nil if such templates cannot share it.
type shape struct {
	code *code
	tree *parse.Tree
}

// maxShared is the maximum length in bytes of a template that shares its code. Longer ones are rarely similar, and are not worth
// compiling twice if the code cannot be shared.
const maxShared = 4 << 10

// placeholder replaces each text in the source of a shape. The parser neither trims nor splits it.
const placeholder = "\x00"

// segment is a literal string or an action: its position in the source of the shape, and in that of the template.
type segment struct{ shape, source int }

// compile returns a template that shares its code with others, and its warnings. It returns nil if the template has to be compiled
// alone, for example because it has errors, whose positions and messages depend on the text.
func (s *Shapes) compile(source string, opt Options) (*Template, []Diagnostic) {
	if s == nil || len(source) > maxShared {
		return nil, nil
	}
	c := newCompiler(source, opt)
	key, ok := c.t.split()
	if !ok {
		return nil, nil
	}
	same, ok := s.known[string(key)]
	if !ok {
		same = newShape(string(key), len(c.t.literals), opt)
		if s.known == nil {
			s.known = map[string]shape{}
		}
		s.known[string(key)] = same
	}
	if same.code == nil {
		return nil, nil
	}
	c.t.code = same.code
	c.warnOfBareLines(same.tree)
	return c.finish()
}

func newShape(source string, literals int, opt Options) shape {
	c := newCompiler(source, opt)
	c.shape = true
	trees, ok := c.parse()
	if !ok || len(trees) > 1 {
		return shape{}
	}
	c.compile(trees)
	whole := len(c.t.literals) == literals && !slices.ContainsFunc(c.t.literals, func(text string) bool { return text != placeholder })
	if c.alone || len(c.problems) > 0 || !whole {
		return shape{}
	}
	return shape{c.t.code, trees[mainName]}
}

// split finds the literal strings and the actions of the source, and returns the source of the shape. It returns false if the source has
// definitions or comments, or an action that does not end.
func (t *Template) split() (shape []byte, ok bool) {
	source := t.source
	for _, special := range []string{"/*", "define", "block"} {
		if strings.Contains(source, special) {
			return nil, false
		}
	}
	shape = make([]byte, 0, len(source))
	trim := false // the action before trims the text behind it
	for pos := 0; ; {
		text, rest, more := strings.Cut(source[pos:], "{{")
		action := pos + len(text)
		if trim {
			text = strings.TrimLeft(text, space)
		}
		start := action - len(text)
		if more && len(rest) > 1 && rest[0] == '-' && strings.IndexByte(space, rest[1]) >= 0 {
			text = strings.TrimRight(text, space)
		}
		if text != "" {
			t.literals, t.segments = append(t.literals, text), append(t.segments, segment{len(shape), start})
			shape = append(shape, placeholder...)
		}
		if !more {
			return shape, true
		}
		_, end, _ := scanAction(source, action+len("{{"))
		inside, closed := strings.CutSuffix(source[action:end], "}}")
		if !closed {
			return nil, false
		}
		t.segments = append(t.segments, segment{len(shape), action})
		shape = append(shape, source[action:end]...)
		n := len(inside)
		trim = n > 1 && inside[n-1] == '-' && strings.IndexByte(space, inside[n-2]) >= 0
		pos = end
	}
}

// space is what the parser trims.
const space = " \t\r\n"

// offset returns the position in the source of a position in the code.
func (t *Template) offset(at int) int {
	i := sort.Search(len(t.segments), func(i int) bool { return t.segments[i].shape > at }) - 1
	if i < 0 {
		return at
	}
	return t.segments[i].source + at - t.segments[i].shape
}

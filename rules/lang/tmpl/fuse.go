package tmpl

import (
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/lang/match"
)

// lineStmt is a sequence of text and fields of the dot. Most bodies of ranges consist of one. It is optimized for instances and
// attributes; for other values it runs the statements one by one.
type lineStmt struct {
	at    int
	parts []part
	slow  block
}

// part is text or, if name is set, a field.
type part struct {
	text  []byte
	field string
	key   facts.Key // key of the field
	stmt  *printStmt
}

// fuse combines sequences of text and fields of the dot.
func fuse(b block) block {
	var out block
	for i := 0; i < len(b); {
		parts := fusible(b[i:])
		if len(parts) < 2 {
			out = append(out, b[i])
			i++
			continue
		}
		line := &lineStmt{at: placeOf(b[i]), parts: parts, slow: b[i : i+len(parts) : i+len(parts)]}
		out = append(out, line)
		i += len(parts)
	}
	return out
}

func placeOf(st stmt) int {
	if n, ok := st.(*textStmt); ok {
		return n.at
	}
	return st.(*printStmt).at
}

// fusible returns the parts at the start of a block.
func fusible(b block) (parts []part) {
	for _, st := range b {
		switch n := st.(type) {
		case *textStmt:
			parts = append(parts, part{text: n.text})
			continue
		case *printStmt:
			if f, ok := n.pipe.(*fieldExpr); ok && f.base == nil && len(f.path) == 1 {
				parts = append(parts, part{field: f.path[0], key: facts.MakeKey(f.path[0]), stmt: n})
				continue
			}
		}
		return parts
	}
	return parts
}

func (n *lineStmt) exec(s *state, dot value) signal {
	if dot.kind != kindElement {
		return n.slow.exec(s, dot)
	}
	element := dot.ref.(*match.Element)
	if s.steps += len(n.parts); s.steps > MaxSteps {
		s.step(n.at)
	}
	out := s.out
	for i := range n.parts {
		p := &n.parts[i]
		if p.stmt == nil {
			out = append(out, p.text...)
			continue
		}
		text, ok := element.Instance.GetKey(p.key)
		if !ok {
			text = field(p.stmt.pipe.(*fieldExpr).at, dot, p.field).str
		} else if dot.num != isAsIs {
			text = oneLine(text)
		}
		out = append(out, text...)
	}
	s.out = out
	s.checkOutput(n.at)
	return goOn
}

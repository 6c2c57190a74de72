package expr

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// parseError is an error in one expression.
type parseError struct {
	pos           int // byte offset in the text
	message, hint string
	// lenient is set if the text is literal instead, in places where literal braces are allowed.
	lenient bool
}

// parser parses one expression. It continues after unknown names, to report all of them, and stops at any other error.
type parser struct {
	text  string
	pos   int
	scope *Scope
	quiet bool // skips hints

	nodes, depth int
	named        bool // the expression contains a name
	failed       bool
	errs         []parseError
	arena        []node
}

// parse parses an expression, its format and the closing brace.
func (p *parser) parse() part {
	parsed := part{node: p.binary(1)}
	p.blanks()
	switch {
	case p.failed:
		return parsed
	case p.peek() == ':':
		parsed.format = p.format()
	case p.peek() == 0:
		p.syntax(len(p.text), "missing }", "")
	case p.peek() != '}':
		p.unexpected()
	}
	p.pos++
	parsed.steps = p.nodes
	if !p.failed && len(p.errs) == 0 {
		p.check(&parsed)
	}
	return parsed
}

// check checks the expression as a whole.
func (p *parser) check(parsed *part) {
	n := parsed.node
	switch {
	case n.op == opVars:
		p.fail(n.pos, "vars needs a name", `write vars.NAME or vars["NAME"]`)
	case parsed.format == nil:
	case isCollection(n.kind):
		p.fail(n.pos, n.kind.String()+" has no format", "")
	case n.constant():
		if _, message := parsed.format.append(nil, n.value); message != "" {
			p.fail(n.pos, message, "")
		}
	case n.kind == Int:
		if _, message := parsed.format.append(nil, OfInt(0)); message != "" {
			p.fail(n.pos, message, "")
		}
	}
}

// format parses the format after the colon.
func (p *parser) format() *format {
	p.pos++
	near := p.text[p.pos:min(len(p.text), p.pos+maxQuote)] // limited, because searching to the end for each brace of a long string is quadratic
	end := strings.IndexByte(near, '}')
	if end < 0 {
		p.syntax(p.pos+len(near), "missing }", "")
		return nil
	}
	spec := p.text[p.pos : p.pos+end]
	p.pos += end
	if spec == "" {
		return nil
	}
	f, ok := parseFormat(spec)
	if !ok {
		p.syntax(p.pos, "bad format specification "+spec, "such as 02d, x, >8 or ,")
	}
	return f
}

// binary parses operands and operators of at least the given rank.
func (p *parser) binary(rank int) *node {
	if p.depth++; p.depth > maxDepth {
		p.fail(p.pos, fmt.Sprintf("parentheses nested deeper than %d", maxDepth), "")
	}
	defer func() { p.depth-- }()
	x := p.unary()
	for !p.failed {
		p.blanks()
		o, text, r := p.operator()
		if r < rank {
			return x
		}
		n := p.node(o, p.pos, Int)
		p.pos += len(text)
		n.x, n.y = x, p.binary(r+1)
		x = p.operate(n)
	}
	return x
}

// operator returns the next binary operator, or rank 0 if there is none.
func (p *parser) operator() (op, string, int) {
	rest := p.text[p.pos:]
	if foreign, ok := isForeign(rest); ok && !strings.HasPrefix(rest, "<<") && !strings.HasPrefix(rest, ">>") {
		p.syntax(p.pos, "unsupported operator "+foreign, "")
		return opBad, "", 0
	}
	for i := range binaryOps {
		if o := &binaryOps[i]; strings.HasPrefix(rest, o.text) {
			return o.op, o.text, o.rank
		}
	}
	return opBad, "", 0
}

// operate checks the operands of an operator and evaluates it if they are constant.
func (p *parser) operate(n *node) *node {
	if p.failed {
		return n
	}
	for _, operand := range []*node{n.x, n.y} {
		if operand != nil && isCollection(operand.kind) {
			p.fail(operand.pos, operand.kind.String()+" is not a number", "")
			return n
		}
	}
	if n.y != nil && n.y.constant() {
		if message := badOperand(n.op, n.y.value); message != "" {
			p.fail(n.pos, message, "")
			return n
		}
	}
	return p.fold(n)
}

// fold evaluates a node whose operands are constant.
func (p *parser) fold(n *node) *node {
	for _, operand := range []*node{n.x, n.y, n.z} {
		if operand != nil && !operand.constant() {
			return n
		}
	}
	e := evaluator{source: p.text}
	v, err := e.eval(n)
	if err != nil {
		if !err.Missing {
			p.fail(n.pos, err.Message, "")
		}
		return n
	}
	n.op, n.value, n.kind = opLiteral, v, v.kind
	n.x, n.y, n.z, n.call = nil, nil, nil, nil
	return n
}

func (p *parser) unary() *node {
	p.blanks()
	if p.peek() != '-' {
		return p.postfix(p.primary())
	}
	n := p.node(opNeg, p.pos, Int)
	p.pos++
	if p.depth++; p.depth > maxDepth {
		p.fail(p.pos, fmt.Sprintf("nested deeper than %d", maxDepth), "")
		return n
	}
	n.x = p.unary()
	p.depth--
	return p.operate(n)
}

func (p *parser) primary() *node {
	if p.failed {
		return p.node(opBad, p.pos, anyKind)
	}
	switch b := p.peek(); {
	case isDigit(b):
		return p.integer()
	case b == '"' || b == '\'':
		n := p.node(opLiteral, p.pos, String)
		n.value = OfText(p.quoted())
		return n
	case b == '(':
		p.pos++
		n := p.binary(1)
		p.expect(')')
		return n
	case b == '@':
		return p.reference()
	case isLetter(b):
		return p.name()
	case b == 0:
		p.syntax(len(p.text), "missing }", "")
	default:
		if o, ok := isForeign(p.text[p.pos:]); ok {
			p.syntax(p.pos, "unsupported operator "+o, "")
		} else {
			p.syntax(p.pos, "value expected", "")
		}
	}
	return p.node(opBad, p.pos, anyKind)
}

// integer parses a number. It rejects a leading zero, because many languages read such numbers as octal.
func (p *parser) integer() *node {
	start := p.pos
	for isWord(p.peek()) {
		p.pos++
	}
	text := p.text[start:p.pos]
	n := p.node(opLiteral, start, Int)
	var number uint64
	var err error
	switch digits, hex := strings.CutPrefix(text, "0x"); {
	case hex && !strings.Contains(digits, "_"):
		number, err = strconv.ParseUint(digits, 16, 63)
	case len(text) > 1 && text[0] == '0':
		err = strconv.ErrSyntax
	default:
		number, err = strconv.ParseUint(text, 10, 63)
	}
	if err != nil {
		p.syntax(start, "bad number "+shown(text), "decimal without leading zeros, or 0x and hexadecimal; 64 bits")
	}
	n.value = OfInt(int64(number))
	return n
}

// quoted parses a string in single or double quotes. There are no escapes: a string cannot contain the quotes around it.
func (p *parser) quoted() string {
	quote := p.text[p.pos]
	end := strings.IndexByte(p.text[p.pos+1:], quote)
	if end < 0 {
		p.syntax(p.pos, "missing closing quote", "")
		return ""
	}
	text := p.text[p.pos+1 : p.pos+1+end]
	p.pos += end + 2
	return text
}

// postfix parses indices, slices, elements and functions after a value.
func (p *parser) postfix(x *node) *node {
	for !p.failed {
		switch p.peek() {
		case '[':
			x = p.bracket(x)
		case '.':
			start := p.pos
			p.pos++
			if !isLetter(p.peek()) {
				p.pos = start
				p.unexpected()
				return x
			}
			word := p.word()
			if p.peek() == '(' {
				x = p.callOf(x, word, start+1)
			} else {
				x = p.attr(x, word, start+1)
			}
		case '(':
			p.syntax(p.pos, "unexpected (", "functions follow a value: node.upper()")
			return x
		default:
			return x
		}
	}
	return x
}

// bracket reads an index or a slice.
func (p *parser) bracket(x *node) *node {
	start := p.pos
	p.pos++
	if x.op == opVars {
		return p.quotedVar(x)
	}
	n := p.node(opIndex, start, anyKind)
	n.x = x
	if x.kind == Int || x.kind == Bool {
		p.fail(start, x.kind.String()+" has no index", "")
		return n
	}
	p.blanks()
	if p.peek() != ':' {
		n.y = p.binary(1)
		p.blanks()
	}
	if p.peek() != ':' {
		p.expect(']')
		if x.kind == String {
			n.kind = String
		}
		return p.fold(n)
	}
	n.op, n.kind = opSlice, x.kind
	p.pos++
	p.blanks()
	if p.peek() == ':' {
		p.syntax(p.pos, "a slice has no step", "")
	} else if p.peek() != ']' {
		n.z = p.binary(1)
		p.blanks()
	}
	p.expect(']')
	return p.fold(n)
}

// quotedVar parses the name and the bracket of vars["name"].
func (p *parser) quotedVar(x *node) *node {
	p.blanks()
	if b := p.peek(); b != '"' && b != '\'' {
		p.fail(p.pos, "vars needs a quoted name", `write vars["NAME"]`)
		return x
	}
	name := p.quoted()
	p.blanks()
	p.expect(']')
	return p.variable(x, name, p.pos)
}

// attr returns the node of x.name.
func (p *parser) attr(x *node, name string, pos int) *node {
	n := p.node(opAttr, pos, anyKind)
	n.x, n.name = x, name
	if p.failed {
		return n
	}
	switch x.kind {
	case String, Int, Bool:
		p.fail(pos, fmt.Sprintf("%s has no element %s", x.kind, shown(name)), fieldHint(name))
	}
	n.missing = p.missing("no element " + name)
	return n
}

// fieldHint returns a hint for a field name that is a function.
func fieldHint(name string) string {
	if functions[name] != nil {
		return "a function needs parentheses: ." + name + "()"
	}
	return ""
}

// callOf parses the arguments of a function.
func (p *parser) callOf(x *node, name string, pos int) *node {
	n := p.node(opCall, pos, anyKind)
	n.x = x
	n.call = functions[name]
	if n.call == nil {
		p.fail(pos, "unknown function "+shown(name), hint(name, functionNames()))
		return n
	}
	n.kind = n.call.kind
	p.pos++ // skip the parenthesis
	count := 0
	for p.blanks(); !p.failed && p.peek() != ')'; p.blanks() {
		if count > 0 {
			p.expect(',')
		}
		argument := p.binary(1)
		switch count++; count {
		case 1:
			n.y = argument
		case 2:
			n.z = argument
		}
	}
	p.expect(')')
	if p.failed {
		return n
	}
	if count != n.call.args {
		p.fail(pos, fmt.Sprintf("%s takes %s", name, plural(n.call.args, "argument")), "as in "+n.call.usage)
		return n
	}
	if message := n.call.check(n); message != "" {
		p.fail(pos, message, "as in "+n.call.usage)
		return n
	}
	return p.fold(n)
}

// node creates a node and counts it.
func (p *parser) node(o op, pos int, kind Kind) *node {
	if p.nodes++; p.nodes > MaxNodes {
		p.fail(pos, fmt.Sprintf("expression has more than %d parts", MaxNodes), "")
	}
	if len(p.arena) == cap(p.arena) {
		p.arena = make([]node, 0, 8)
	}
	p.arena = append(p.arena, node{op: o, pos: pos, kind: kind})
	return &p.arena[len(p.arena)-1]
}

// missing returns the error for a value that does not exist. Its column is set when the expression is accepted.
func (p *parser) missing(message string) *Error { return &Error{Message: message, Missing: true} }

// unexpected reports the next token as unexpected.
func (p *parser) unexpected() {
	if p.failed {
		return
	}
	if foreign, ok := isForeign(p.text[p.pos:]); ok {
		p.syntax(p.pos, "unsupported operator "+foreign, "")
		return
	}
	start := p.pos
	word := p.word()
	if word == "" {
		r, _ := utf8.DecodeRuneInString(p.text[start:])
		word = string(r)
	}
	p.pos = start
	p.syntax(start, "unexpected "+shown(word), "")
}

// syntax reports text that is not an expression; fail reports an expression that cannot work. Both stop the parser.
func (p *parser) syntax(pos int, message, hint string) {
	p.stop(parseError{pos: pos, message: message, hint: hint, lenient: true})
}

func (p *parser) fail(pos int, message, hint string) {
	p.stop(parseError{pos: pos, message: message, hint: hint})
}

func (p *parser) stop(e parseError) {
	if p.failed {
		return
	}
	p.failed = true
	if len(p.errs) == 0 { // after an unknown name, the error is probably a consequence of it
		p.errs = append(p.errs, e)
	}
}

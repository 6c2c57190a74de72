package expr

import (
	"slices"
	"strings"
)

// op is the operation of a node of the syntax tree.
type op uint8

const (
	opBad op = iota // a syntax error; never evaluated
	opLiteral
	opNode        // the name of the node
	opHost        // the name of the node up to the first dot
	opNumber      // the num-th number in the name of the node; 0 is the last one
	opLabels      // the labels of the node
	opAnnotations // the annotations of the node
	opVars        // the word vars, which must be followed by a name
	opVar
	opElement // @feature.element
	opFeature // @feature
	opMatched
	opItem
	opAttr  // x.name
	opIndex // x[y]
	opSlice // x[y:z], y and z may be nil
	opNeg
	opOr
	opXor
	opAnd
	opShl
	opShr
	opAdd
	opSub
	opMul
	opDiv
	opMod
	opCall // x.function(y, z)
)

// binaryOps are the operators with two operands. An operator with a higher rank binds tighter.
var binaryOps = [...]struct {
	text string
	op   op
	rank int
}{
	{"<<", opShl, 4},
	{">>", opShr, 4},
	{"|", opOr, 1},
	{"^", opXor, 2},
	{"&", opAnd, 3},
	{"+", opAdd, 5},
	{"-", opSub, 5},
	{"*", opMul, 6},
	{"/", opDiv, 6},
	{"%", opMod, 6},
}

// foreignOps are operators of other languages, for a better message than "unexpected".
var foreignOps = []string{"**", "//", "==", "!=", "<=", ">=", "&&", "||", "!", "<", ">", "=", "~", "?"}

// node is a node of the syntax tree.
type node struct {
	op      op
	kind    Kind // kind of the result, as far as known
	pos     int  // byte offset in the text
	x, y, z *node
	value   Value     // of opLiteral; the number of opNumber
	name    string    // name of a variable, feature or attribute
	element string    // of opElement
	call    *function // of opCall
	missing *Error    // created at compile time, since missing features are common
}

func (n *node) constant() bool { return n.op == opLiteral }

func isCollection(k Kind) bool { return k == ListKind || k == MapKind || k == collection }

func (n *node) walk(visit func(*node)) {
	if n == nil {
		return
	}
	visit(n)
	n.x.walk(visit)
	n.y.walk(visit)
	n.z.walk(visit)
}

func isLetter(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || b == '_'
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

func isWord(b byte) bool { return isLetter(b) || isDigit(b) }

// isForeign returns the operator of another language that s begins with.
func isForeign(s string) (string, bool) {
	i := slices.IndexFunc(foreignOps, func(o string) bool { return strings.HasPrefix(s, o) })
	if i < 0 {
		return "", false
	}
	return foreignOps[i], true
}

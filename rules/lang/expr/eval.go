package expr

import (
	"math"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxShift is the maximum number of bits by which a number may be shifted: one more would reach the sign bit.
const maxShift = 62

// evaluator evaluates nodes in an Env. Its methods return a nil *Error for success.
type evaluator struct {
	env    Env
	source string
}

// part evaluates an expression of a string.
func (e evaluator) part(p *part) (Value, error) {
	if !e.env.Spend(p.steps) {
		return Value{}, e.spent(p.node)
	}
	v, err := e.eval(p.node)
	if err != nil {
		return Value{}, err
	}
	return v, nil
}

// spend takes steps from the budget. Constants are evaluated without a budget, because the length of the string limits their cost.
func (e evaluator) spend(steps int) bool {
	return steps == 0 || e.env == nil || e.env.Spend(steps)
}

// appendValue appends a formatted value.
func (e evaluator) appendValue(dst []byte, p *part, v Value) ([]byte, error) {
	if p.format != nil {
		dst, message := p.format.append(dst, v)
		if message != "" {
			return dst, e.fail(p.node, message)
		}
		return dst, nil
	}
	dst, ok := v.appendText(dst)
	if !ok {
		return dst, e.fail(p.node, v.kind.String()+" is not a string")
	}
	return dst, nil
}

func (e evaluator) eval(n *node) (Value, *Error) {
	switch n.op {
	case opLiteral:
		return n.value, nil
	case opOr, opXor, opAnd, opShl, opShr, opAdd, opSub, opMul, opDiv, opMod:
		return e.binary(n)
	case opNeg:
		return e.negate(n)
	case opAttr, opIndex, opSlice:
		return e.inside(n)
	case opCall:
		return e.call(n)
	case opNumber:
		return e.number(n, e.env.Node().Name, n.value.num)
	case opNode:
		return OfText(e.env.Node().Name), nil
	case opHost:
		host, _, _ := strings.Cut(e.env.Node().Name, ".")
		return OfText(host), nil
	case opLabels:
		return OfMap(Texts(e.env.Node().Labels)), nil
	case opAnnotations:
		return OfMap(Texts(e.env.Node().Annotations)), nil
	}
	return e.lookup(n)
}

// lookup evaluates names whose value may not exist on the node.
func (e evaluator) lookup(n *node) (Value, *Error) {
	var v Value
	ok := true
	switch n.op {
	case opVar:
		v, ok = e.env.Var(n.name)
	case opElement:
		v, ok = e.env.Element(n.name, n.element)
	case opFeature:
		v, ok = e.env.Feature(n.name)
	case opMatched:
		v, ok = e.env.Matched(n.name)
	case opItem:
		v = e.env.Item()
	}
	return e.found(n, v, ok)
}

// found returns an error for a value that is absent or masked.
func (e evaluator) found(n *node, v Value, ok bool) (Value, *Error) {
	if !ok || v.kind == Missing {
		return Value{}, n.missing
	}
	if v.kind == Masked {
		return Value{}, e.fail(n, "the value is masked")
	}
	return v, nil
}

// number returns the i-th number in a string, counted from 1; 0 is the last one and -1 the one before it.
func (e evaluator) number(n *node, text string, i int64) (Value, *Error) {
	digits, ok := numberIn(text, i)
	if !ok {
		return Value{}, n.missing
	}
	number, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return Value{}, e.fail(n, "number "+shown(digits)+" is too large")
	}
	return OfInt(number), nil
}

// numberIn finds the i-th run of decimal digits.
func numberIn(text string, i int64) (string, bool) {
	if i > 0 {
		for pos := 0; pos < len(text); pos++ {
			start := pos
			for pos < len(text) && isDigit(text[pos]) {
				pos++
			}
			if pos > start {
				if i--; i == 0 {
					return text[start:pos], true
				}
			}
		}
		return "", false
	}
	for pos := len(text); pos > 0; pos-- {
		end := pos
		for pos > 0 && isDigit(text[pos-1]) {
			pos--
		}
		if pos < end {
			if i++; i == 1 {
				return text[pos:end], true
			}
		}
	}
	return "", false
}

func (e evaluator) operand(n *node) (int64, *Error) {
	v, err := e.eval(n)
	if err != nil {
		return 0, err
	}
	if v.kind == Int {
		return v.num, nil
	}
	number, ok := v.Number()
	if !ok {
		return 0, e.fail(n, notNumber(v))
	}
	return number, nil
}

func (e evaluator) negate(n *node) (Value, *Error) {
	x, err := e.operand(n.x)
	if err != nil {
		return Value{}, err
	}
	if x == math.MinInt64 {
		return Value{}, e.fail(n, overflow)
	}
	return OfInt(-x), nil
}

func (e evaluator) binary(n *node) (Value, *Error) {
	x, err := e.operand(n.x)
	if err != nil {
		return Value{}, err
	}
	y, err := e.operand(n.y)
	if err != nil {
		return Value{}, err
	}
	result, message := arithmetic(n.op, x, y)
	if message != "" {
		return Value{}, e.fail(n, message)
	}
	return OfInt(result), nil
}

const overflow = "the result does not fit into 64 bits"

// arithmetic computes with 64-bit integers; / and % round towards minus infinity.
func arithmetic(o op, x, y int64) (int64, string) {
	switch o {
	case opOr:
		return x | y, ""
	case opXor:
		return x ^ y, ""
	case opAnd:
		return x & y, ""
	case opAdd:
		sum := x + y
		return sum, ifOverflow((sum > x) != (y > 0))
	case opSub:
		difference := x - y
		return difference, ifOverflow((difference < x) != (y > 0))
	case opMul:
		return multiply(x, y)
	}
	if message := badOperand(o, OfInt(y)); message != "" {
		return 0, message
	}
	switch o {
	case opShl:
		shifted := x << y
		return shifted, ifOverflow(shifted>>y != x)
	case opShr:
		return x >> y, ""
	case opDiv:
		if x == math.MinInt64 && y == -1 {
			return 0, overflow
		}
		quotient := x / y
		if x%y != 0 && (x < 0) != (y < 0) {
			quotient--
		}
		return quotient, ""
	}
	if y == -1 {
		return 0, ""
	}
	remainder := x % y
	if remainder != 0 && (remainder < 0) != (y < 0) {
		remainder += y
	}
	return remainder, ""
}

// badOperand returns the problem of a right operand that is invalid for every left operand.
func badOperand(o op, y Value) string {
	number, ok := y.Number()
	switch {
	case !ok:
		return notNumber(y)
	case (o == opDiv || o == opMod) && number == 0:
		return "division by zero"
	case (o == opShl || o == opShr) && (number < 0 || number > maxShift):
		return "shift by " + strconv.FormatInt(number, 10) + ", 0 to 62 are allowed"
	}
	return ""
}

func multiply(x, y int64) (int64, string) {
	high, low := bits.Mul64(magnitude(x), magnitude(y))
	limit := uint64(math.MaxInt64)
	if (x < 0) != (y < 0) {
		limit++
	}
	return x * y, ifOverflow(high != 0 || low > limit)
}

func magnitude(x int64) uint64 {
	if x < 0 {
		return -uint64(x)
	}
	return uint64(x)
}

func ifOverflow(is bool) string {
	if is {
		return overflow
	}
	return ""
}

func notNumber(v Value) string {
	if v.kind == String {
		return strconv.Quote(shown(v.text)) + " is not a number"
	}
	return v.String() + " is not a number"
}

// inside evaluates x.name, x[y] and x[y:z].
func (e evaluator) inside(n *node) (Value, *Error) {
	x, err := e.eval(n.x)
	if err != nil {
		return Value{}, err
	}
	switch n.op {
	case opAttr:
		return e.attr(n, x)
	case opSlice:
		return e.slice(n, x)
	}
	y, err := e.eval(n.y)
	if err != nil {
		return Value{}, err
	}
	return e.index(n, x, y)
}

func (e evaluator) attr(n *node, x Value) (Value, *Error) {
	if x.kind != MapKind {
		hint := ""
		if x.kind == ListKind {
			hint = ": choose an element of the list first, [0]"
		}
		return Value{}, e.fail(n, x.kind.String()+" has no element "+shown(n.name)+hint)
	}
	v, ok := x.dict.Get(n.name)
	return e.found(n, v, ok)
}

func (e evaluator) index(n *node, x, y Value) (Value, *Error) {
	if x.kind == MapKind {
		if y.kind != String {
			return Value{}, e.fail(n, "a map needs a string as its key")
		}
		v, ok := x.dict.Get(y.text)
		if !ok || v.kind == Missing {
			return Value{}, e.missing(n, "no element "+shown(y.text))
		}
		return e.found(n, v, true)
	}
	if x.kind != ListKind && x.kind != String {
		return Value{}, e.fail(n, x.kind.String()+" has no index")
	}
	i, ok := y.Number()
	if !ok {
		return Value{}, e.fail(n, notNumber(y))
	}
	length := int64(x.Len())
	if i < 0 {
		i += length
	}
	if i < 0 || i >= length {
		return Value{}, e.missing(n, "no element "+y.String())
	}
	if x.kind == ListKind {
		v := x.list.At(int(i))
		if v.kind == Missing {
			return Value{}, e.missing(n, "no element "+y.String())
		}
		return e.found(n, v, true)
	}
	return OfText(sliceText(x.text, i, i+1)), nil
}

func (e evaluator) slice(n *node, x Value) (Value, *Error) {
	if x.kind != ListKind && x.kind != String {
		return Value{}, e.fail(n, x.kind.String()+" has no slices")
	}
	length := int64(x.Len())
	from, err := e.bound(n.y, 0, length)
	if err != nil {
		return Value{}, err
	}
	to, err := e.bound(n.z, length, length)
	if err != nil {
		return Value{}, err
	}
	to = max(from, to)
	if x.kind == String {
		return OfText(sliceText(x.text, from, to)), nil
	}
	return OfList(subList{x.list, int(from), int(to)}), nil
}

// bound evaluates a bound of a slice and clamps it; negative bounds count from the end.
func (e evaluator) bound(n *node, absent, length int64) (int64, *Error) {
	if n == nil {
		return absent, nil
	}
	i, err := e.operand(n)
	if err != nil {
		return 0, err
	}
	if i < 0 {
		i += length
	}
	return min(max(i, 0), length), nil
}

// sliceText returns the characters from index from to index to, exclusive, where 0 <= from <= to.
func sliceText(s string, from, to int64) string {
	if utf8.RuneCountInString(s) == len(s) {
		return s[min(from, int64(len(s))):min(to, int64(len(s)))]
	}
	start, end, count := len(s), len(s), int64(0)
	for i := range s {
		if count == from {
			start = i
		}
		if count == to {
			end = i
			break
		}
		count++
	}
	return s[start:end]
}

// subList is a slice of a list.
type subList struct {
	list     List
	from, to int
}

func (l subList) Len() int       { return l.to - l.from }
func (l subList) At(i int) Value { return l.list.At(l.from + i) }

func (e evaluator) fail(n *node, message string) *Error {
	return &Error{Column: column(e.source, n.pos), Message: message, TooLarge: message == overflow}
}

func (e evaluator) missing(n *node, message string) *Error {
	return &Error{Column: column(e.source, n.pos), Message: message, Missing: true}
}

func (e evaluator) spent(n *node) *Error {
	return &Error{Column: e.column(n), Message: ErrBudget.Error(), cause: ErrBudget}
}

// column returns the column of a node in the string, or 0 for the string itself.
func (e evaluator) column(n *node) int {
	if n == nil {
		return 0
	}
	return column(e.source, n.pos)
}

func (e evaluator) tooLong(n *node) *Error {
	return &Error{Column: e.column(n), Message: "the result is longer than " + strconv.Itoa(MaxResult) + " bytes"}
}

package expr

import (
	"hash/fnv"
	"strconv"
	"strings"
)

// function describes and implements a function of the expression language.
type function struct {
	name  string
	usage string // how to call it
	says  string // description for the reference
	args  int
	kind  Kind // kind of its result
	// onList and textArgs define the argument types. All other functions take a scalar and numbers.
	onList   bool
	textArgs bool
	run      func(e evaluator, n *node, x, y, z Value) (Value, *Error)
}

// functionList holds all functions. The function default has no run, since it accepts a missing value.
var functionList = []*function{
	{name: "block_number", usage: "n1.block_number(42)", says: "the number of the block of 42 that contains a number: 1 for 1 to 42, 2 for 43 to 84", args: 1, kind: Int, run: blockNumber},
	{name: "block_offset", usage: "n1.block_offset(42)", says: "the position within that block, 1 to 42", args: 1, kind: Int, run: blockOffset},
	{name: "default", usage: `rack.default("none")`, says: "the value, or the argument if the value is missing", args: 1, kind: anyKind, onList: true},
	{name: "hash", usage: "node.hash(8)", says: "a number below 8 that depends only on the string, for sharding", args: 1, kind: Int, run: hash},
	{name: "int", usage: "rack.int()", says: "the number in a string", args: 0, kind: Int, run: toInt},
	{name: "join", usage: `list.join(",")`, says: "the elements of a list as one string", args: 1, kind: String, onList: true, textArgs: true, run: join},
	{name: "label", usage: "@system.dmiid.product_name.label()", says: "any string as a valid label value", args: 0, kind: String, run: label},
	{name: "len", usage: "node.len()", says: "the number of characters or elements", args: 0, kind: Int, onList: true, run: length},
	{name: "lower", usage: "node.lower()", says: "the string in lower case", args: 0, kind: String, run: lower},
	{name: "num", usage: "host.num(0)", says: "a number within a string: 1 the first, 0 the last, -1 the one before it", args: 1, kind: Int, run: num},
	{name: "replace", usage: `node.replace("a", "b")`, says: "the string with each a replaced by b", args: 2, kind: String, textArgs: true, run: replace},
	{name: "split", usage: `host.split("-")`, says: "the parts of a string, as a list", args: 1, kind: ListKind, textArgs: true, run: split},
	{name: "sum", usage: `@dra.device.sum("capacity.memory")`, says: "the sum of an element of all instances in a list: a number, or text such as 0.5 if it is a fraction", args: 1, kind: anyKind, onList: true, textArgs: true, run: sum},
	{name: "trim", usage: "node.trim()", says: "the string without blanks at both ends", args: 0, kind: String, run: trim},
	{name: "upper", usage: "node.upper()", says: "the string in upper case", args: 0, kind: String, run: upper},
}

// functions holds the functions by name.
var functions = func() map[string]*function {
	byName := make(map[string]*function, len(functionList))
	for _, f := range functionList {
		byName[f.name] = f
	}
	return byName
}()

func functionNames() []string { return sortedKeys(functions) }

// FunctionDoc describes a function in the reference.
type FunctionDoc struct {
	Name, Usage, Says string
}

// Functions describes all functions, sorted by name.
func Functions() []FunctionDoc {
	docs := make([]FunctionDoc, len(functionList))
	for i, f := range functionList {
		docs[i] = FunctionDoc{Name: f.name, Usage: f.usage, Says: f.says}
	}
	return docs
}

// check returns the problem of a call, as far as it is known before evaluation.
func (f *function) check(n *node) string {
	if isCollection(n.x.kind) && !f.onList {
		return n.x.kind.String() + " is not a string"
	}
	for _, argument := range []*node{n.y, n.z} {
		switch {
		case argument == nil:
		case f.textArgs && (argument.kind == Int || isCollection(argument.kind)):
			return f.name + " needs text, in quotes"
		case f.name == "block_number" || f.name == "block_offset" || f.name == "hash":
			if v := argument.value; argument.constant() {
				if number, ok := v.Number(); !ok || number < 1 {
					return f.name + " needs a number above zero"
				}
			}
		}
	}
	return ""
}

// call evaluates a function and takes steps for the bytes that it processes.
func (e evaluator) call(n *node) (Value, *Error) {
	x, err := e.eval(n.x)
	if n.call.run == nil { // the function default
		if err != nil && err.Missing {
			return e.eval(n.y)
		}
		return x, err
	}
	if err != nil {
		return Value{}, err
	}
	var y, z Value
	if n.y != nil {
		if y, err = e.eval(n.y); err != nil {
			return Value{}, err
		}
	}
	if n.z != nil {
		if z, err = e.eval(n.z); err != nil {
			return Value{}, err
		}
	}
	if n.call.textArgs && (n.y != nil && y.kind != String || n.z != nil && z.kind != String) {
		return Value{}, e.fail(n, n.call.name+" needs text, as in "+n.call.usage)
	}
	if isCollection(x.kind) && !n.call.onList {
		return Value{}, e.fail(n, x.kind.String()+" is not a string")
	}
	if steps := len(x.text) / bytesPerStep; !e.spend(steps) {
		return Value{}, e.spent(n)
	}
	return n.call.run(e, n, x, y, z)
}

// bytesPerStep is the number of bytes that a function processes in about the time of one operator.
const bytesPerStep = 256

// text returns the string form of a scalar, up to the maximum length that functions process.
func (e evaluator) text(n *node, v Value) (string, *Error) {
	if v.kind == String && len(v.text) <= maxValue {
		return v.text, nil
	}
	if v.kind == String {
		return "", e.fail(n, "text longer than "+strconv.Itoa(maxValue)+" bytes")
	}
	text, ok := v.Text()
	if !ok {
		return "", e.fail(n, v.kind.String()+" is not a string")
	}
	return text, nil
}

func upper(e evaluator, n *node, x, _, _ Value) (Value, *Error) {
	text, err := e.text(n, x)
	return OfText(strings.ToUpper(text)), err
}

func lower(e evaluator, n *node, x, _, _ Value) (Value, *Error) {
	text, err := e.text(n, x)
	return OfText(strings.ToLower(text)), err
}

func trim(e evaluator, n *node, x, _, _ Value) (Value, *Error) {
	text, err := e.text(n, x)
	return OfText(strings.TrimSpace(text)), err
}

func replace(e evaluator, n *node, x, y, z Value) (Value, *Error) {
	text, err := e.text(n, x)
	if err != nil {
		return Value{}, err
	}
	if y.text == "" {
		return Value{}, e.fail(n, "replace needs something to replace")
	}
	grown := len(text) + strings.Count(text, y.text)*(len(z.text)-len(y.text))
	if grown > maxValue {
		return Value{}, e.fail(n, "replace makes a string longer than "+strconv.Itoa(maxValue)+" bytes")
	}
	return OfText(strings.ReplaceAll(text, y.text, z.text)), nil
}

func split(e evaluator, n *node, x, y, _ Value) (Value, *Error) {
	text, err := e.text(n, x)
	if err != nil {
		return Value{}, err
	}
	if y.text == "" {
		return Value{}, e.fail(n, "split needs a separator")
	}
	if strings.Count(text, y.text) >= MaxItems {
		return Value{}, e.fail(n, "split makes more than "+strconv.Itoa(MaxItems)+" parts")
	}
	return OfList(Names(strings.Split(text, y.text))), nil
}

func join(e evaluator, n *node, x, y, _ Value) (Value, *Error) {
	if x.kind != ListKind {
		return Value{}, e.fail(n, "join needs a list")
	}
	if !e.spend(x.list.Len()) {
		return Value{}, e.spent(n)
	}
	var b []byte
	for i := range x.list.Len() {
		if i > 0 {
			b = append(b, y.text...)
		}
		item := x.list.At(i)
		var ok bool
		if b, ok = item.appendText(b); !ok {
			return Value{}, e.fail(n, item.kind.String()+" in a list is not a string")
		}
		if len(b) > maxValue {
			return Value{}, e.fail(n, "join makes a string longer than "+strconv.Itoa(maxValue)+" bytes")
		}
	}
	return OfText(string(b)), nil
}

func length(_ evaluator, _ *node, x, _, _ Value) (Value, *Error) { return OfInt(int64(x.Len())), nil }

// sum adds an element of each map in a list. It is missing if a map lacks it: a sum of what is known would be wrong.
func sum(e evaluator, n *node, x, y, _ Value) (Value, *Error) {
	if x.kind != ListKind {
		return Value{}, e.fail(n, "sum needs a list of instances")
	}
	if !e.spend(x.list.Len()) {
		return Value{}, e.spent(n)
	}
	var total decimal
	for i := range x.list.Len() {
		item := x.list.At(i)
		if item.kind != MapKind {
			return Value{}, e.fail(n, "sum needs a list of instances, not of "+item.kind.String())
		}
		value, ok := item.dict.Get(y.text)
		if !ok || value.kind == Missing {
			return Value{}, e.missing(n, "instance "+strconv.Itoa(i)+" has no "+y.text)
		}
		if _, err := e.found(n, value, true); err != nil {
			return Value{}, err
		}
		number, ok := decimalOf(value)
		if !ok {
			return Value{}, e.fail(n, notNumber(value))
		}
		if !total.add(number) {
			return Value{}, e.fail(n, overflow)
		}
	}
	return total.value(), nil
}

func toInt(e evaluator, n *node, x, _, _ Value) (Value, *Error) {
	number, ok := x.Number()
	if !ok {
		return Value{}, e.fail(n, notNumber(x))
	}
	return OfInt(number), nil
}

func num(e evaluator, n *node, x, y, _ Value) (Value, *Error) {
	text, err := e.text(n, x)
	if err != nil {
		return Value{}, err
	}
	i, ok := y.Number()
	if !ok {
		return Value{}, e.fail(n, notNumber(y))
	}
	if _, ok := numberIn(text, i); !ok {
		return Value{}, e.missing(n, strconv.Quote(shown(text))+" has no number "+strconv.FormatInt(i, 10))
	}
	return e.number(n, text, i)
}

// block returns a number and the size of the blocks in which it is counted.
func (e evaluator) block(n *node, x, y Value) (number, size int64, err *Error) {
	number, ok := x.Number()
	if !ok {
		return 0, 0, e.fail(n, notNumber(x))
	}
	size, ok = y.Number()
	if !ok || size < 1 {
		return 0, 0, e.fail(n, n.call.name+" needs a number above zero")
	}
	if number == -1<<63 {
		return 0, 0, e.fail(n, overflow)
	}
	return number - 1, size, nil
}

func blockNumber(e evaluator, n *node, x, y, _ Value) (Value, *Error) {
	number, size, err := e.block(n, x, y)
	if err != nil {
		return Value{}, err
	}
	quotient, _ := arithmetic(opDiv, number, size)
	return e.plusOne(n, quotient)
}

func blockOffset(e evaluator, n *node, x, y, _ Value) (Value, *Error) {
	number, size, err := e.block(n, x, y)
	if err != nil {
		return Value{}, err
	}
	remainder, _ := arithmetic(opMod, number, size)
	return e.plusOne(n, remainder)
}

// plusOne adds one, for results that are counted from one.
func (e evaluator) plusOne(n *node, number int64) (Value, *Error) {
	sum, message := arithmetic(opAdd, number, 1)
	if message != "" {
		return Value{}, e.fail(n, message)
	}
	return OfInt(sum), nil
}

const (
	maxLabel    = 63 // maximum length of a label value in Kubernetes
	labelDigits = 8  // number of hexadecimal digits of the hash that replaces a truncated end
)

// label converts any string to a valid label value. Each run of invalid characters becomes one -, and the ends are letters or
// digits. A string that is too long ends in a hash of the whole string, so that strings that differ only at the end stay distinct.
func label(e evaluator, n *node, x, _, _ Value) (Value, *Error) {
	text, err := e.text(n, x)
	if err != nil {
		return Value{}, err
	}
	legal := legalLabel(text)
	if len(legal) > maxLabel {
		sum := strconv.FormatUint(mix(text), 16)
		sum = strings.Repeat("0", 16-len(sum)) + sum
		legal = trimLabel(legal[:maxLabel-labelDigits-1]) + "-" + sum[:labelDigits]
	}
	return OfText(legal), nil
}

func legalLabel(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !isLabelRune(r) }) < 0 {
		return trimLabel(text)
	}
	b := make([]byte, 0, len(text))
	replaced := false
	for _, r := range text {
		if isLabelRune(r) {
			b = append(b, byte(r))
			replaced = false
		} else if !replaced {
			b = append(b, '-')
			replaced = true
		}
	}
	return trimLabel(string(b))
}

func trimLabel(s string) string { return strings.Trim(s, "-_.") }

func isLabelRune(r rune) bool {
	return r < 0x80 && (isWord(byte(r)) || r == '-' || r == '.')
}

func hash(e evaluator, n *node, x, y, _ Value) (Value, *Error) {
	text, err := e.text(n, x)
	if err != nil {
		return Value{}, err
	}
	below, ok := y.Number()
	if !ok || below < 1 {
		return Value{}, e.fail(n, "hash needs a number above zero")
	}
	return OfInt(int64(mix(text) % uint64(below))), nil
}

// mix hashes a string with FNV-1a and then the finalizer of MurmurHash3: the low bits of FNV-1a depend too much on those of the
// input to be used for remainders. Do not change it, or nodes move between shards.
func mix(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

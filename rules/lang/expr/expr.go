// Package expr compiles and evaluates the {expressions} in the strings of rules.
package expr

import (
	"fmt"
	"slices"
)

// Limits on user input. They bound the time and the memory that a string can cost.
const (
	// MaxText is the maximum length of a string with expressions in bytes: four times the longest annotation that is
	// written.
	MaxText = 4 << 10
	// MaxNodes is the maximum number of operators, functions, names and literals in an expression. Real ones have
	// under twenty.
	MaxNodes = 64
	// MaxExpressions is the maximum number of expressions in a string. A label value, with its 63 characters, holds
	// 16 at most.
	MaxExpressions = 32
	// MaxResult is the maximum length in bytes of a string made from expressions: the length of the longest
	// annotation.
	MaxResult = 1 << 10
	// MaxItems is the maximum number of elements that split returns and loops iterate over: NICs, disks and devices
	// of large servers fit.
	MaxItems = 256
	// maxValue is the maximum length in bytes of a string within an expression, so that a chain of replacements, each
	// of which multiplies, ends early.
	maxValue = 16 << 10
	// maxDepth is the maximum depth of nested parentheses, since the parser is recursive.
	maxDepth = 64
)

// Place is the use of a string, which determines what its braces mean.
type Place uint8

const (
	// Strict is a place where braces are never literal: keys and values of labels and taints, extended resources. Any
	// brace that is neither part of an expression nor doubled is an error.
	Strict Place = iota
	// Free is an annotation or a message. Braces without a valid expression are literal, with a warning if they look
	// like one. An expression must hold a name, otherwise it is literal too: [a-z]{3} stays unchanged. Doubled braces
	// mean single ones only in a string that holds an expression, possibly a doubled one.
	Free
	// Var is the value of a variable: like Free, but a list or a map may be its value.
	Var
	// Arg is an argument of a condition or action: like Strict for braces that look like an expression; other braces
	// are literal.
	Arg
	// Regex is a regular expression as an argument: like Free, and \p{…} and \x{…} stay unchanged.
	Regex
)

// Mode is the expressions field of a rule. The zero Mode is Auto.
type Mode uint8

const (
	// Auto keeps braces that may be literal, with a warning.
	Auto Mode = iota
	// Always turns each such warning into an error (expressions: Strict).
	Always
	// Disabled keeps all strings unchanged.
	Disabled
)

// ParseMode parses a rule's expressions field.
func ParseMode(s string) (Mode, error) {
	switch s {
	case "", "Auto":
		return Auto, nil
	case "Strict":
		return Always, nil
	case "Disabled":
		return Disabled, nil
	}
	return Auto, fmt.Errorf("unknown mode %q: Auto, Strict or Disabled", s)
}

// Text is a compiled string. It is immutable and safe for concurrent use.
type Text struct {
	source string
	parts  []part // nil for a string without expressions
	first  [3]part
	whole  bool // exactly one expression, without a format
	value  string
}

// part is a literal piece of a string, or an expression with an optional format.
type part struct {
	literal string
	node    *node
	format  *format
	steps   int
}

// Compile parses a string, resolves its names in the scope and evaluates constants. If a problem is not a warning,
// the Text is nil. All independent problems are returned, in the order of their columns. A nil scope is an
// empty one.
func Compile(text string, place Place, mode Mode, scope *Scope) (*Text, []Problem) {
	if mode == Disabled || !hasBrace(text, place) {
		return Literal(text), nil
	}
	if len(text) > MaxText && (place == Strict || place == Arg) {
		return nil, []Problem{{Column: 1, Message: fmt.Sprintf("text of %d bytes is longer than %d", len(text), MaxText)}}
	}
	if scope == nil {
		scope = &Scope{}
	}
	c := compiler{text: text, place: place, scope: scope}
	return c.compile(mode)
}

// Literal returns a Text without expressions.
func Literal(text string) *Text { return &Text{source: text, value: text} }

// Source returns the string as its author wrote it.
func (t *Text) Source() string { return t.source }

// IsLiteral reports whether the string is the same on every node. Format then returns it without reading its Env.
func (t *Text) IsLiteral() bool { return t.parts == nil }

// IsWhole reports whether the string is exactly one expression, whose kind Eval keeps.
func (t *Text) IsWhole() bool { return t.whole }

// Names returns the variables that the string reads, sorted.
func (t *Text) Names() []string { return t.collect(func(n *node) bool { return n.op == opVar }) }

// Features returns the features ("domain.feature") that the string reads, sorted.
func (t *Text) Features() []string {
	return t.collect(func(n *node) bool { return n.op == opElement || n.op == opFeature })
}

// ReadsNode reports whether the string reads the name of the node, anything derived from it, or its metadata, so that
// it may differ between nodes with equal features.
func (t *Text) ReadsNode() bool {
	return t.reads(func(n *node) bool {
		return n.op == opNode || n.op == opHost || n.op == opNumber || n.op == opLabels || n.op == opAnnotations
	})
}

// ReadsMatched reports whether the string reads elements that the matchers of its rule matched.
func (t *Text) ReadsMatched() bool { return t.reads(func(n *node) bool { return n.op == opMatched }) }

// collect returns the sorted names of the nodes that want selects.
func (t *Text) collect(want func(*node) bool) []string {
	var names []string
	t.walk(func(n *node) {
		if want(n) {
			names = append(names, n.name)
		}
	})
	slices.Sort(names)
	return slices.Compact(names)
}

func (t *Text) reads(want func(*node) bool) bool {
	found := false
	t.walk(func(n *node) { found = found || want(n) })
	return found
}

func (t *Text) walk(visit func(*node)) {
	for i := range t.parts {
		t.parts[i].node.walk(visit)
	}
}

// Eval returns the value on a node. The value of a whole expression keeps its kind; everything else is a string. The
// error is an *Error.
func (t *Text) Eval(env Env) (Value, error) {
	if t.parts == nil {
		return OfText(t.value), nil
	}
	if !t.whole {
		text, err := t.Format(env)
		return OfText(text), err
	}
	e := evaluator{env: env, source: t.source}
	v, err := e.part(&t.parts[0])
	if err != nil {
		return Value{}, err
	}
	if v.kind == String && len(v.text) > MaxResult {
		return Value{}, e.tooLong(t.parts[0].node)
	}
	return v, nil
}

// Format returns the expanded string on a node. The error is an *Error.
func (t *Text) Format(env Env) (string, error) {
	if t.parts == nil {
		return t.value, nil
	}
	var buffer [128]byte // most results are label values, which are shorter
	result, err := t.Append(buffer[:0], env)
	return string(result), err
}

// Append appends the expanded string on a node. The error is an *Error; dst is then returned unchanged.
func (t *Text) Append(dst []byte, env Env) ([]byte, error) {
	if t.parts == nil {
		return append(dst, t.value...), nil
	}
	start := len(dst)
	e := evaluator{env: env, source: t.source}
	for i := range t.parts {
		p := &t.parts[i]
		if p.node == nil {
			dst = append(dst, p.literal...)
		} else {
			v, err := e.part(p)
			if err != nil {
				return dst[:start], err
			}
			if dst, err = e.appendValue(dst, p, v); err != nil {
				return dst[:start], err
			}
		}
		if len(dst)-start > MaxResult {
			return dst[:start], e.tooLong(t.parts[0].node)
		}
	}
	if !e.spend((len(dst) - start) / bytesPerStep) {
		return dst[:start], e.spent(t.parts[0].node)
	}
	return dst, nil
}

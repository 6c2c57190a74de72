// Package expr compiles and evaluates the {expressions} in the strings of rules.
package expr

import (
	"fmt"
	"slices"
)

// Limits on user input. They limit the time and memory that a string can cost.
const (
	// MaxText is the maximum length in bytes of a string with expressions: four times the longest annotation that is written.
	MaxText = 4 << 10
	// MaxNodes is the maximum number of operators, functions, names and literals in an expression. Real expressions have fewer than
	// twenty.
	MaxNodes = 64
	// MaxExpressions is the maximum number of expressions in a string. A label value of 63 characters can contain at most 16.
	MaxExpressions = 32
	// MaxResult is the maximum length in bytes of the result of a string with expressions: the length of the longest annotation.
	MaxResult = 1 << 10
	// MaxItems is the maximum number of elements that split returns and that loops iterate over: enough for the NICs, disks and
	// devices of large servers.
	MaxItems = 256
	// maxValue is the maximum length in bytes of a string within an expression. It stops chains of replacements, each of which
	// multiplies the length.
	maxValue = 16 << 10
	// maxDepth is the maximum depth of nested parentheses, because the parser is recursive.
	maxDepth = 64
)

// Place is the use of a string. It determines the meaning of braces.
type Place uint8

const (
	// Strict is for keys and values of labels and taints, and for extended resources: braces are never literal. A brace that is
	// neither part of an expression nor doubled is an error.
	Strict Place = iota
	// Free is for annotations and messages. Braces without a valid expression are literal, with a warning if they look like an
	// expression. An expression without a name is literal too: [a-z]{3} stays unchanged. Doubled braces mean single ones only in a
	// string that contains an expression, which may itself be doubled.
	Free
	// Var is for the values of variables: like Free, but the value may be a list or a map.
	Var
	// Arg is for arguments of conditions and actions: like Strict for braces that look like an expression; other braces are
	// literal.
	Arg
	// Regex is for regular expressions as arguments: like Free, and \p{…} and \x{…} stay unchanged.
	Regex
)

// Mode is the expressions field of a rule. The zero Mode is Auto.
type Mode uint8

const (
	// Auto keeps braces that may be literal and adds a warning.
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
	whole  bool // exactly one expression and no format
	value  string
}

// part is a literal piece of a string, or an expression with an optional format.
type part struct {
	literal string
	node    *node
	format  *format
	steps   int
}

// Compile parses a string, resolves its names in the scope and evaluates constants. It returns all independent problems, ordered by
// column. The Text is nil unless all problems are warnings. A nil scope is an empty scope.
func Compile(text string, place Place, mode Mode, scope *Scope) (*Text, []Diagnostic) {
	if mode == Disabled || !hasBrace(text, place) {
		return Literal(text), nil
	}
	if len(text) > MaxText && (place == Strict || place == Arg) {
		return nil, []Diagnostic{{Column: 1, Message: fmt.Sprintf("text of %d bytes is longer than %d", len(text), MaxText)}}
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

// IsWhole reports whether the string is exactly one expression. Eval then returns a value of the expression's kind.
func (t *Text) IsWhole() bool { return t.whole }

// Names returns the variables that the string reads, sorted.
func (t *Text) Names() []string { return t.collect(func(n *node) bool { return n.op == opVar }) }

// Features returns the features ("domain.feature") that the string reads, sorted.
func (t *Text) Features() []string {
	return t.collect(func(n *node) bool { return n.op == opElement || n.op == opFeature })
}

// ReadsNode reports whether the string reads the name or metadata of the node, or anything derived from the name, so that it may
// differ between nodes with equal features.
func (t *Text) ReadsNode() bool {
	return t.ReadsMetadata() || t.reads(func(n *node) bool { return n.op == opNode || n.op == opHost || n.op == opNumber })
}

// ReadsMetadata reports whether the string reads labels or annotations of the node.
func (t *Text) ReadsMetadata() bool {
	return t.reads(func(n *node) bool { return n.op == opLabels || n.op == opAnnotations })
}

// ReadsMatched reports whether the string reads elements that the rule's matchers matched.
func (t *Text) ReadsMatched() bool { return t.reads(func(n *node) bool { return n.op == opMatched }) }

// collect returns the sorted names of the syntax tree nodes that want selects.
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

// Eval returns the value on a node. The value of a whole expression keeps its kind; all other values are strings. The error is an
// *Error.
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
	var buffer [128]byte // most results are label values, which are at most 63 bytes long
	result, err := t.Append(buffer[:0], env)
	return string(result), err
}

// Append appends the expanded string on a node. The error is an *Error; Append then returns dst unchanged.
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

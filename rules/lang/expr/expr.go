// Package expr compiles and evaluates the {expressions} that may stand in the text of rules.
package expr

import (
	"fmt"
	"slices"
)

// Limits on what a user can write. They keep the time and the memory that any text can cost small and known beforehand.
const (
	// MaxText is how long a text with expressions may be, in bytes: four times the longest annotation that is written.
	MaxText = 4 << 10
	// MaxNodes is how many operators, functions, names and literals an expression may have. Real ones have under twenty.
	MaxNodes = 64
	// MaxExpressions is how many expressions a text may have. A label value, with its 63 characters, holds 16 at most.
	MaxExpressions = 32
	// MaxResult is how long the text made from expressions may be, in bytes: as long as the longest annotation.
	MaxResult = 1 << 10
	// MaxItems is how many elements split returns and loops go over: NICs, disks and devices of large servers fit.
	MaxItems = 256
	// maxValue is how long a text may get within an expression, in bytes, so that a chain of replacements, each of which
	// multiplies, ends early.
	maxValue = 16 << 10
	// maxDepth is how deep parentheses may be nested, since the parser is recursive.
	maxDepth = 64
)

// Place says what a text is used for, which decides what its braces mean.
type Place uint8

const (
	// Strict is where braces can never be text: keys and values of labels and taints, extended resources. Any brace that is
	// not part of an expression or doubled is a mistake.
	Strict Place = iota
	// Free is annotations and messages. Braces that are no valid expression are text, and draw a warning if they look like
	// one. An expression holds a name, or it is text too: [a-z]{3} stays what it is. Doubled braces mean single ones only in
	// text that holds an expression, possibly a doubled one.
	Free
	// Var is the value of a variable: like Free, but a list or a map may be its value.
	Var
	// Arg is an argument of a condition or action: like Strict for what looks like an expression, other braces are text.
	Arg
	// Regex is a regular expression as an argument: like Free, and \p{…} and \x{…} are left alone.
	Regex
)

// Mode is the expressions field of a rule. The zero Mode is Auto.
type Mode uint8

const (
	// Auto leaves braces alone, with a warning, where they may be text.
	Auto Mode = iota
	// Always makes each such warning an error (expressions: Strict).
	Always
	// Disabled takes all text as it is.
	Disabled
)

// ParseMode returns the mode that a rule's expressions field says.
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

// Text is compiled text. It is immutable and safe for concurrent use.
type Text struct {
	source string
	parts  []part // nil for text without expressions
	first  [3]part
	whole  bool // exactly one expression, without a format
	value  string
}

// part is a piece of literal text, or an expression with an optional format.
type part struct {
	literal string
	node    *node
	format  *format
	steps   int
}

// Compile parses text, resolves its names in the scope and evaluates what is constant. If a problem is not a warning the
// Text is nil. All problems that can be told apart are returned, in the order of their columns. A nil scope is an empty one.
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

// Literal returns text without expressions.
func Literal(text string) *Text { return &Text{source: text, value: text} }

// Source returns the text as it was written.
func (t *Text) Source() string { return t.source }

// IsLiteral reports whether the text is the same on every node. Format returns it then without looking at its Env.
func (t *Text) IsLiteral() bool { return t.parts == nil }

// IsWhole reports whether the text is exactly one expression, whose kind Eval keeps.
func (t *Text) IsWhole() bool { return t.whole }

// Names returns the variables that the text reads, sorted.
func (t *Text) Names() []string { return t.collect(func(n *node) bool { return n.op == opVar }) }

// Features returns the features ("domain.feature") that the text reads, sorted.
func (t *Text) Features() []string {
	return t.collect(func(n *node) bool { return n.op == opElement || n.op == opFeature })
}

// ReadsNode reports whether the text reads the name of the node or anything derived from it, or its metadata: whether it may
// differ between nodes with equal features.
func (t *Text) ReadsNode() bool {
	return t.reads(func(n *node) bool {
		return n.op == opNode || n.op == opHost || n.op == opNumber || n.op == opLabels || n.op == opAnnotations
	})
}

// ReadsMatched reports whether the text reads what the matchers of its rule matched.
func (t *Text) ReadsMatched() bool { return t.reads(func(n *node) bool { return n.op == opMatched }) }

// collect returns the sorted names of the nodes that want chooses.
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

// Eval returns the text's value on a node. The value of a whole expression keeps its kind, everything else is text. The
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

// Format returns the text as it reads on a node. The error is an *Error.
func (t *Text) Format(env Env) (string, error) {
	if t.parts == nil {
		return t.value, nil
	}
	var buffer [128]byte // most results are label values, which are shorter
	result, err := t.Append(buffer[:0], env)
	return string(result), err
}

// Append appends the text as it reads on a node. The error is an *Error; dst is returned unchanged with it.
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

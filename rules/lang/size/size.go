// Package size estimates the memory of compiled rules before they are compiled.
//
// The estimates depend only on the author's input, not on measurements: an object has the same size on every machine and with every
// version of Go. They are upper bounds of the memory that stays in use, by a factor of up to three.
package size

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"
)

// Budget is the number of bytes that may still be used. It is not safe for concurrent use. A nil *Budget is unlimited.
type Budget struct {
	left, used int
	over       bool
}

// NewBudget returns a budget of the given number of bytes.
func NewBudget(bytes int) *Budget { return &Budget{left: bytes} }

// Take takes bytes from the budget and reports whether enough bytes were left. If not, the budget is exhausted.
func (b *Budget) Take(bytes int) bool {
	if b == nil {
		return true
	}
	b.over = b.over || bytes > b.left
	if b.over {
		return false
	}
	b.left -= bytes
	b.used += bytes
	return true
}

// Over reports whether Take failed.
func (b *Budget) Over() bool { return b != nil && b.over }

// Used returns the number of bytes taken.
func (b *Budget) Used() int {
	if b == nil {
		return 0
	}
	return b.used
}

// MaxProgram is the maximum number of instructions of a compiled regular expression: nested repetitions such as ((a{100}){10}) turn
// the 1,024 bytes of a pattern into megabytes, and searches take time in proportion.
const MaxProgram = 10_000

// Sizes of the parts of a compiled regular expression in bytes: the fixed part, an instruction (package regexp keeps two forms of
// an anchored expression), and a bound of a character class. They were measured with 15 kinds of patterns and rounded up.
const (
	regexpBytes      = 640
	instructionBytes = 144
	runeBytes        = 8
)

// Pattern is a parsed regular expression.
type Pattern struct {
	// Tree is the syntax tree.
	Tree *syntax.Regexp
	// Steps is the number of instructions before the compiler merges equal ones.
	Steps int

	text  string
	runes int
}

// Parse parses a regular expression (RE2, as in package regexp) and rejects one with more than MaxProgram
// instructions.
func Parse(text string) (*Pattern, error) {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	p := &Pattern{Tree: tree, text: text}
	p.Steps, p.runes = count(tree)
	if p.Steps > MaxProgram {
		return nil, fmt.Errorf("the regular expression takes more than %d steps: lower its repetition counts", MaxProgram)
	}
	return p, nil
}

// Bytes returns the size of the compiled pattern.
func (p *Pattern) Bytes() int {
	return regexpBytes + len(p.text) + (p.Steps-p.runes)*instructionBytes + p.runes*runeBytes
}

// Compile compiles the pattern if the budget allows it, and returns ErrOver otherwise.
func (p *Pattern) Compile(b *Budget) (*regexp.Regexp, error) {
	if !b.Take(p.Bytes()) {
		return nil, ErrOver
	}
	return regexp.Compile(p.text)
}

// Defer is like Compile, but compiles the pattern when it is used for the first time: what is only reviewed is never matched. The
// result is safe for concurrent use.
func (p *Pattern) Defer(b *Budget) (func() *regexp.Regexp, error) {
	if !b.Take(p.Bytes()) {
		return nil, ErrOver
	}
	text := p.text
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) }), nil
}

// Compile parses and compiles a regular expression within a budget.
func Compile(text string, b *Budget) (*regexp.Regexp, error) {
	p, err := Parse(text)
	if err != nil {
		return nil, err
	}
	return p.Compile(b)
}

// ErrOver reports that the budget is exhausted. The compiler of the object reports the error.
var ErrOver = errors.New("the object takes too much memory when it is compiled")

// count returns the number of instructions, up to slightly more than MaxProgram, and the number of bounds of character classes.
func count(re *syntax.Regexp) (steps, runes int) {
	steps = 1 + len(re.Rune)
	if re.Op == syntax.OpCharClass {
		runes = len(re.Rune)
	}
	for _, sub := range re.Sub {
		s, r := count(sub)
		steps, runes = steps+s, runes+r
		if steps > MaxProgram {
			return steps, runes
		}
	}
	if re.Op == syntax.OpRepeat {
		times := max(re.Max, re.Min+1, 1)
		steps, runes = steps*times, runes*times
	}
	return steps, runes
}

// Sizes of strings that may contain expressions, in bytes: the string itself and its result on each node, each expression, and each
// byte between braces.
const (
	textBytes       = 720
	expressionBytes = 640
	braceBytes      = 96
)

// Text returns the size of a key or value of an output that may contain expressions.
func Text(s string) int {
	n := 2 * len(s)
	first := strings.IndexByte(s, '{')
	if last := strings.LastIndexByte(s, '}'); first >= 0 && last > first {
		n += strings.Count(s, "{")*expressionBytes + (last-first)*braceBytes
	}
	return n
}

// Entry returns the size of an entry of a map of outputs.
func Entry(key, value string) int { return textBytes + Text(key) + Text(value) }

// templateBytes is the size of a byte within {{ and }}, actionBytes that of an action.
const (
	templateBytes = 32
	actionBytes   = 128
)

// Template returns the size of a Go template, without its regular expressions.
func Template(source string) int {
	n := textBytes + 2*len(source)
	for {
		_, rest, ok := strings.Cut(source, "{{")
		if !ok {
			return n
		}
		inside, after, _ := strings.Cut(rest, "}}")
		n += actionBytes + templateBytes*len(inside)
		source = after
	}
}

// JSON returns the size of arguments in JSON: each value, and each expression in a string.
func JSON(raw []byte) int {
	const valueBytes = 160
	n, start, inside := valueBytes, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inside && c == '\\':
			i++
		case c == '"':
			if inside {
				n += Text(string(raw[start:i]))
			}
			inside, start = !inside, i+1
		case !inside && (c == ',' || c == '[' || c == ':'):
			n += valueBytes
		}
	}
	return n
}

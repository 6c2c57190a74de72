// Package size estimates how much memory compiled rules take, before they are compiled.
//
// The estimates are counts of what an author wrote, never measurements: the same object has the same size on every machine and
// in every version of Go. They are upper bounds of what stays in memory, by up to a factor of three.
package size

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// Budget is the number of bytes that may still be compiled. It is not safe for concurrent use. A nil *Budget is unlimited.
type Budget struct {
	left, used int
	over       bool
}

// NewBudget returns a budget of a number of bytes.
func NewBudget(bytes int) *Budget { return &Budget{left: bytes} }

// Take takes bytes out of the budget, and reports whether they were left. Once they were not, nothing is left.
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

// Over reports whether more was asked for than was left.
func (b *Budget) Over() bool { return b != nil && b.over }

// Used returns the number of bytes taken.
func (b *Budget) Used() int {
	if b == nil {
		return 0
	}
	return b.used
}

// MaxProgram is the maximum number of instructions of a compiled regular expression: nested repetitions ((a{100}){10}) turn the
// 1,024 bytes that a pattern may be long into megabytes, and the time of a search grows with them.
const MaxProgram = 10_000

// What parts of a compiled regular expression take, in bytes: the fixed part, an instruction in both forms that package regexp
// keeps of an anchored one, and a bound of a character class. Measured with 15 shapes of patterns and rounded up.
const (
	regexpBytes      = 640
	instructionBytes = 144
	runeBytes        = 8
)

// Pattern is a parsed regular expression.
type Pattern struct {
	// Tree is the syntax tree.
	Tree *syntax.Regexp
	// Steps is the number of instructions, without the sharing that a compiler may find.
	Steps int

	text  string
	runes int
}

// Parse parses a regular expression (RE2, as package regexp reads it), and rejects one of more than MaxProgram instructions.
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

// Bytes returns how much memory the compiled pattern takes.
func (p *Pattern) Bytes() int {
	return regexpBytes + len(p.text) + (p.Steps-p.runes)*instructionBytes + p.runes*runeBytes
}

// Compile compiles the pattern if the budget has room for it. The error without room is ErrOver.
func (p *Pattern) Compile(b *Budget) (*regexp.Regexp, error) {
	if !b.Take(p.Bytes()) {
		return nil, ErrOver
	}
	return regexp.Compile(p.text)
}

// Compile parses and compiles a regular expression within a budget.
func Compile(text string, b *Budget) (*regexp.Regexp, error) {
	p, err := Parse(text)
	if err != nil {
		return nil, err
	}
	return p.Compile(b)
}

// ErrOver is the error of what the budget has no room for. The object that the budget is of reports it as a whole.
var ErrOver = errors.New("the object takes too much memory when it is compiled")

// count returns the size of a program, up to a little over MaxProgram, and how much of that are bounds of character classes.
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

// What strings take that may hold expressions, in bytes: the string itself with what it gives on each node, each expression in
// it, and each byte between braces.
const (
	textBytes       = 720
	expressionBytes = 640
	braceBytes      = 96
)

// Text returns how much memory a key or value of an output takes that may hold expressions.
func Text(s string) int {
	n := 2 * len(s)
	first := strings.IndexByte(s, '{')
	if last := strings.LastIndexByte(s, '}'); first >= 0 && last > first {
		n += strings.Count(s, "{")*expressionBytes + (last-first)*braceBytes
	}
	return n
}

// Entry returns how much memory an entry of a map of outputs takes.
func Entry(key, value string) int { return textBytes + Text(key) + Text(value) }

// templateBytes is the memory that a byte within {{ and }} takes, actionBytes that of an action.
const (
	templateBytes = 32
	actionBytes   = 128
)

// Template returns how much memory a Go template takes, without the regular expressions in it.
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

// JSON returns how much memory arguments take that are written as JSON: each value, and each expression in a string.
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

package expr

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Diagnostic is an error or warning of Compile.
type Diagnostic struct {
	// Column is the position in characters, counted from 1.
	Column int
	// Message describes the problem.
	Message string
	// Hint suggests what to write instead. It may be empty.
	Hint string
	// Warning is set if the string can still be used, with the braces as literal text.
	Warning bool
}

// Error returns the problem on one line.
func (p Diagnostic) Error() string {
	if p.Hint == "" {
		return fmt.Sprintf("column %d: %s", p.Column, p.Message)
	}
	return fmt.Sprintf("column %d: %s (%s)", p.Column, p.Message, p.Hint)
}

// Error is the reason why a string has no value on a node.
type Error struct {
	// Column is the position in characters, counted from 1.
	Column int
	// Message describes the reason.
	Message string
	// Missing is set if the string refers to something that does not exist on this node. This is not an error of the rule; only the
	// output that needs the value is left out.
	Missing bool
	// TooLarge is set if a number does not fit into 64 bits. It depends on the node as Missing does: the outputs that do not need the
	// number are written.
	TooLarge bool

	cause error
}

// Error returns the error on one line.
func (e *Error) Error() string { return fmt.Sprintf("column %d: %s", e.Column, e.Message) }

// Unwrap returns ErrBudget if the budget was the reason.
func (e *Error) Unwrap() error { return e.cause }

// maxCaretLine is the maximum number of characters in a line that Caret returns, so that the caret fits into a narrow terminal.
const maxCaretLine = 72

// Caret returns the line of the text that contains the column, followed by a line with a caret. It replaces control characters by
// blanks.
func Caret(text string, column int) string {
	runes := []rune(text)
	column = min(max(column-1, 0), len(runes))
	start, end := column, column
	for start > 0 && runes[start-1] != '\n' {
		start--
	}
	for end < len(runes) && runes[end] != '\n' {
		end++
	}
	if column-start > maxCaretLine/2 && end-start > maxCaretLine {
		start = column - maxCaretLine/2
	}
	end = min(end, start+maxCaretLine)

	var b strings.Builder
	for _, r := range runes[start:end] {
		if r < ' ' || r == utf8.RuneError {
			r = ' '
		}
		b.WriteRune(r)
	}
	b.WriteByte('\n')
	b.WriteString(strings.Repeat(" ", column-start))
	b.WriteByte('^')
	return b.String()
}

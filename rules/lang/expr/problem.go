package expr

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Problem is what is wrong with a text, as Compile finds it.
type Problem struct {
	// Column is the place in characters: 1 is the first one of the text.
	Column int
	// Message says what is wrong.
	Message string
	// Hint says what to write instead. It may be empty.
	Hint string
	// Warning says that the text can be used, with the braces in question as literal text.
	Warning bool
}

// Error returns the problem on one line.
func (p Problem) Error() string {
	if p.Hint == "" {
		return fmt.Sprintf("column %d: %s", p.Column, p.Message)
	}
	return fmt.Sprintf("column %d: %s (%s)", p.Column, p.Message, p.Hint)
}

// Error is why a text has no value on a node.
type Error struct {
	// Column is the place in characters: 1 is the first one of the text.
	Column int
	// Message says why.
	Message string
	// Missing says that something the text names does not exist on this node, which is no mistake: the output that needs it
	// is left out.
	Missing bool

	cause error
}

// Error returns the error on one line.
func (e *Error) Error() string { return fmt.Sprintf("column %d: %s", e.Column, e.Message) }

// Unwrap returns ErrBudget if the budget was the reason.
func (e *Error) Unwrap() error { return e.cause }

// maxCaretLine is how much of a line Caret shows, so that the caret stays in a terminal that is not very wide.
const maxCaretLine = 72

// Caret shows where in a text a problem is: the line of the text that holds the column, and below it a caret. Control
// characters show as blanks.
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

package match

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/assay-project/assay/rules/clip"
)

// EvalError says that an expression could not be evaluated on what a node has, such as a number compared with text.
type EvalError struct {
	// Term is the position of the term in its list.
	Term int
	// Feature is the name as the author typed it.
	Feature string
	// Key is the name of the element or attribute; empty if the expression is a matchName.
	Key string
	// Instance is the position of the first instance concerned, or -1.
	Instance int
	// Found is what the node has.
	Found string
	// Err says what is wrong with it.
	Err error
}

// Error names the element, what it is and why that is of no use.
func (e *EvalError) Error() string {
	where := e.Feature
	if e.Key != "" {
		where += "/" + e.Key
	} else {
		where += " (matchName)"
	}
	if e.Instance >= 0 {
		where += " of instance " + strconv.Itoa(e.Instance)
	}
	if errors.Is(e.Err, ErrWork) {
		return fmt.Sprintf("%s: %v", e.Feature, e.Err)
	}
	return fmt.Sprintf("%s is %s: %v", where, quote(e.Found), e.Err)
}

// Unwrap returns Err.
func (e *EvalError) Unwrap() error { return e.Err }

// maxQuoted bounds how much of a value goes into a message, which ends up in conditions and Events.
const maxQuoted = 64

// quote puts a value into a message.
func quote(s string) string { return strconv.Quote(clip.Text(s, maxQuoted)) }

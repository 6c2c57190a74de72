package match

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/assay-project/assay/rules/clip"
)

// EvalError reports that an expression could not be evaluated on a node's facts, for example because it compares a number with a
// word.
type EvalError struct {
	// Term is the position of the term in its list.
	Term int
	// Feature is the name as the author wrote it.
	Feature string
	// Key is the name of the element or attribute; empty if the expression is a matchName.
	Key string
	// Instance is the position of the first instance with this error, or -1.
	Instance int
	// Found is the value on the node.
	Found string
	// Err is the reason.
	Err error
}

// Error returns a message with the element, its value and the reason.
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

// maxQuoted is the maximum number of bytes of a value in a message, which is shown in conditions and Events.
const maxQuoted = 64

// quote quotes and shortens a value for a message.
func quote(s string) string { return strconv.Quote(clip.Text(s, maxQuoted)) }

package cli

// The exit codes. Scripts and CI jobs may rely on them.
const (
	ExitFound = 1 // errors were found, a test failed, or a rule could not be evaluated
	ExitUsage = 2 // the command could not run: invalid flag or argument, unreadable file, no connection to the cluster
)

// FoundError is the error of a command with a negative result.
type FoundError struct{ Err error }

// Error implements error.
func (e FoundError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns the error with the message.
func (e FoundError) Unwrap() error { return e.Err }

// Found returns the error of a command with a negative result, whose message is printed.
func Found(err error) error { return FoundError{err} }

// ErrFound is a FoundError without a message.
var ErrFound = FoundError{}

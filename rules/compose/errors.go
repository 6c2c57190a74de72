package compose

import (
	"fmt"
	"strings"
)

// MissingError reports that a base does not exist.
type MissingError struct {
	Base string // the requested base
	From string // the document that refers to it; empty if it is below all documents
}

func (e *MissingError) Error() string {
	if e.From == "" {
		return "the default template " + e.Base + " does not exist"
	}
	if e.Base == "" {
		return "a base has no name: only assay template reads files and URLs; assay template copy --embed-all FILE embeds them"
	}
	return "missing base " + e.Base
}

// CycleError reports that a document is based on itself.
type CycleError struct {
	Path []string // starts and ends with the same name
}

func (e *CycleError) Error() string { return "cycle: " + strings.Join(e.Path, " -> ") }

// OrderError reports that documents require contradictory orders of bases.
type OrderError struct {
	Bases []string // sorted
}

func (e *OrderError) Error() string {
	return "inconsistent base order among " + strings.Join(e.Bases, ", ")
}

// DigestError reports that a base does not match its pinned digest.
type DigestError struct {
	Base, From string
	Want, Got  string
}

func (e *DigestError) Error() string {
	return fmt.Sprintf("base %s of %s has digest %s, not %s", e.Base, e.From, e.Got, e.Want)
}

// LimitError reports that an assembly exceeds a limit.
type LimitError struct {
	What       string
	Got, Limit int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("too many %s: %d, at most %d are allowed", e.What, e.Got, e.Limit)
}

// ValueError reports that documents cannot be combined because of a field's value.
type ValueError struct {
	Path     string // such as nodeSelector.matchLabels
	Problem  string
	Document string // the document with the value
}

func (e *ValueError) Error() string { return e.Problem + " at " + e.Path }

// typeConflict reports that two documents disagree on whether a field is a string, a list or a map.
func typeConflict(path, document string) error {
	return &ValueError{Path: path, Problem: "type conflict", Document: document}
}

// Errors is a list of errors.
type Errors []error

func (e Errors) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the errors, for errors.As and errors.Is.
func (e Errors) Unwrap() []error { return e }

// orNil returns nil if there are no errors, and the error itself if there is one.
func (e Errors) orNil() error {
	switch len(e) {
	case 0:
		return nil
	case 1:
		return e[0]
	}
	return e
}

package yamltree

import (
	"cmp"
	"slices"
)

// Severity is the severity of a Problem.
type Severity string

// The severities: errors for input that is rejected, warnings for valid input that is probably not intended.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Problem is an error or a warning about a file.
type Problem struct {
	// File is the name of the file. It is empty in lists about one file, whose reader knows it.
	File string
	Position
	Severity Severity
	// Code identifies the kind of problem, for tools that filter: syntax, duplicate-key, unknown-field, type, …
	Code string
	// Path is the path of the field, such as spec.rules[0].labels[x]. It is empty for problems of the whole file.
	Path string
	// Object is the kind and name of the object.
	Object string
	// Message describes the problem and what to write instead.
	Message string
}

// String returns file:line:column: path: message, without the parts that are empty.
func (p Problem) String() string {
	text := p.Position.String() + ": "
	if p.File != "" {
		text = p.File + ":" + text
	}
	if p.Path != "" {
		text += p.Path + ": "
	}
	return text + p.Message
}

// Error returns the same, for a problem that is an error.
func (p Problem) Error() string { return p.String() }

// Sort sorts problems by position.
func Sort(list []Problem) {
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(a.Compare(b.Position), cmp.Compare(a.Message, b.Message))
	})
}

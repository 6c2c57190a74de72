// Package yamltree parses YAML into trees of nodes with positions.
//
// Parsing does not stop at the first error: all errors of a file are collected as Problems with line and column, and documents
// without errors are parsed. Aliases and merged maps are expanded. The package does not depend on the kinds of objects.
package yamltree

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Position is a position in a file: line and character, both counted from 1. A column of 0 means the whole line.
type Position struct {
	Line   int `json:"line"`
	Column int `json:"column"`
}

// String returns line:column.
func (p Position) String() string { return fmt.Sprintf("%d:%d", p.Line, p.Column) }

// Compare compares positions by their order in a file.
func (p Position) Compare(other Position) int {
	return cmp.Or(cmp.Compare(p.Line, other.Line), cmp.Compare(p.Column, other.Column))
}

// At returns the position of a node.
func At(n *yaml.Node) Position { return Position{Line: n.Line, Column: n.Column} }

// The codes of problems.
const (
	CodeSyntax       = "syntax"
	CodeDuplicateKey = "duplicate-key"
	CodeLimit        = "limit"
	CodeEncoding     = "encoding"
)

// Options limit the size of a file. 0 means unlimited.
type Options struct {
	// Bytes is the maximum size.
	Bytes int
	// Nodes is the maximum number of nodes after aliases are expanded: nine lines with aliases of aliases expand to a billion
	// nodes.
	Nodes int
	// Depth is the maximum nesting depth.
	Depth int
	// Brackets is the maximum number of opening brackets that are not closed yet, in strings and comments too. The parser takes time
	// that is quadratic in it: 4 s for 30 kB.
	Brackets int
	// Documents is the maximum number of documents. Further documents are not parsed.
	Documents int
	// AtAnchors sets the position of an expanded value to that of its anchor instead of its alias.
	AtAnchors bool
}

// Text is the parsed content of a YAML or JSON file. It is immutable except for its nodes, which belong to the caller.
type Text struct {
	// Documents are the document nodes that could be parsed, in order, with comments and with aliases expanded. Each has one child.
	Documents []*yaml.Node
	// Problems are sorted by position.
	Problems []Problem

	lines []string
	marks map[Position]bool // positions of separate exclamation marks
}

// Parse parses all documents of a file. It always returns a Text.
func Parse(data []byte, options Options) *Text {
	t := &Text{}
	problem := unreadable(data, options.Bytes)
	if problem == nil {
		problem = unclosed(data, options.Brackets)
	}
	if problem != nil {
		t.Problems = append(t.Problems, *problem)
		return t
	}
	source := string(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	t.lines = strings.Split(strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n"), "\n")
	t.marks = lostMarks(t.lines)
	p := &parser{text: t, options: options}
	for _, c := range chunks(t.lines) {
		if options.Documents > 0 && len(t.Documents) >= options.Documents {
			p.problem(Position{c.first + 1, 1}, CodeLimit, "the file contains more than %d documents; the others are ignored", options.Documents)
			break
		}
		p.chunk(c)
	}
	Sort(t.Problems)
	return t
}

// Err returns all problems as one error with one line each, or nil if there are none. name is the name of the file.
func (t *Text) Err(name string) error {
	var all []error
	for _, p := range t.Problems {
		p.File = name
		all = append(all, p)
	}
	return errors.Join(all...)
}

// Bytes returns the content without a byte order mark, and with \n as line breaks.
func (t *Text) Bytes() []byte { return []byte(strings.Join(t.lines, "\n")) }

// Lines returns the number of lines.
func (t *Text) Lines() int { return len(t.lines) }

// Line returns a line, counted from 1, or "" if it does not exist.
func (t *Text) Line(n int) string {
	if n < 1 || n > len(t.lines) {
		return ""
	}
	return t.lines[n-1]
}

// From returns the rest of a line, starting at a position.
func (t *Text) From(at Position) string {
	line, column := t.Line(at.Line), at.Column
	if column < 1 {
		return ""
	}
	for ; column > 1 && line != ""; column-- {
		_, size := utf8.DecodeRuneInString(line)
		line = line[size:]
	}
	return line
}

// unclosed returns the problem if data has more opening brackets that are not closed yet than the limit.
func unclosed(data []byte, limit int) *Problem {
	open, line := 0, 1
	for _, c := range data {
		switch c {
		case '\n':
			line++
		case '[', '{':
			if open++; limit > 0 && open > limit {
				return &Problem{Position: Position{line, 1}, Severity: Error, Code: CodeLimit, Message: fmt.Sprintf("too many brackets that are not closed: at most %d are allowed", limit)}
			}
		case ']', '}':
			open = max(0, open-1)
		}
	}
	return nil
}

// unreadable returns the problem if data is not valid text.
func unreadable(data []byte, limit int) *Problem {
	at := func(offset int, code, format string, args ...any) *Problem {
		before := data[:offset]
		line := bytes.Count(before, []byte("\n")) + 1
		column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
		return &Problem{Position: Position{line, column}, Severity: Error, Code: code, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case limit > 0 && len(data) > limit:
		return at(0, CodeLimit, "too many bytes: %d, at most %d are allowed", len(data), limit)
	case bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")):
		return at(0, CodeEncoding, "the file is UTF-16; save it as UTF-8")
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return at(i, CodeEncoding, "the file is binary, not YAML")
	}
	if !utf8.Valid(data) {
		for i := 0; i < len(data); {
			r, size := utf8.DecodeRune(data[i:])
			if r == utf8.RuneError && size <= 1 {
				return at(i, CodeEncoding, "the byte 0x%02x is not valid UTF-8; save the file as UTF-8", data[i])
			}
			i += size
		}
	}
	return nil
}

// chunk holds the lines of one document.
type chunk struct {
	lines []string
	first int // index of its first line in the file
	last  bool
}

// text returns the content of a document. It ends in a line break if the document does.
func (c chunk) text() []byte {
	text := strings.Join(c.lines, "\n")
	if !c.last {
		text += "\n"
	}
	return []byte(text)
}

// chunks splits a file at document separators, so that an error in one document does not hide errors in others. Comments and
// directives before a separator belong to the next document.
func chunks(lines []string) []chunk {
	var out []chunk
	start := 0
	cut := func(end int) {
		if body := lines[start:end]; !blank(body) {
			out = append(out, chunk{lines: body, first: start, last: end == len(lines)})
		}
	}
	for i, line := range lines {
		switch {
		case line == "---" || strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "---\t"):
			if preamble(lines[start:i]) {
				continue
			}
			cut(i)
			start = i
		case line == "..." || strings.HasPrefix(line, "... "):
			cut(i)
			start = i + 1
		}
	}
	cut(len(lines))
	return out
}

// blank reports whether a document contains only comments.
func blank(lines []string) bool {
	for _, line := range lines {
		line = strings.TrimSpace(strings.TrimPrefix(line, "---"))
		if line != "" && line[0] != '#' && !strings.HasPrefix(line, "%YAML") {
			return false
		}
	}
	return true
}

// preamble reports whether lines may come before the separator of a document.
func preamble(lines []string) bool {
	for _, line := range lines {
		if strings.TrimSpace(line) != "" && line[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

// lostMarks returns the positions of separate exclamation marks: YAML reads "! eq" as plain eq.
func lostMarks(lines []string) map[Position]bool {
	marks := map[Position]bool{}
	for i, line := range lines {
		for from := 0; ; {
			at := strings.IndexByte(line[from:], '!')
			if at < 0 {
				break
			}
			from += at + 1
			if from < len(line) && (line[from] == ' ' || line[from] == '\t') {
				marks[Position{i + 1, utf8.RuneCountInString(line[:from])}] = true
			}
		}
	}
	return marks
}

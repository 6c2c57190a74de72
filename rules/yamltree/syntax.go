package yamltree

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxSearch is the maximum size in bytes of documents in which the position of a syntax error is searched by bisection, which
// parses the document repeatedly. For larger documents, the position of the parser is reported.
const maxSearch = 1 << 20

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax explains a syntax error. The parser's own message is about tokens, and its line is the start of the enclosing block.
func (p *parser) syntax(c chunk, err error) {
	message := yamlLine.ReplaceAllString(err.Error(), "")
	row, column := c.offender(err, message)
	if r, col, why := suspect(c.lines, row); why != "" {
		row, column, message = r, col, why
	} else {
		row, column, message = c.explain(row, column, message)
	}
	p.problem(Position{c.first + row + 1, column + 1}, CodeSyntax, "%s", message)
}

// offender returns the row and column, counted from 0, of the character that the parser rejects.
func (c chunk) offender(err error, message string) (row, column int) {
	if len(c.text()) > maxSearch {
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil && m[1] != "" {
			row, _ = strconv.Atoi(m[1])
		}
		row = min(max(row-1, 0), len(c.lines)-1)
		return row, indentOf(c.lines[row])
	}
	// The parser reads from left to right: all prefixes of the document that include the rejected character give the same error.
	known := commented(c.lines)
	fails := func(rows int, rest string) bool { return commented(append(slices.Clip(c.lines[:rows]), rest)) == known }
	last := len(c.lines) - 1
	closers := func(int, string) string { return "" }
	if inFlow(message) {
		// Within brackets the end of the document is also an error, often the same one, so close the brackets.
		last = c.consumed()
		closers = func(row int, line string) string { return closing(c.unclosed(row, line)) }
	}
	row = sort.Search(last, func(i int) bool { return fails(i, c.lines[i]+closers(i, c.lines[i])) })
	runes := []rune(c.lines[row])
	column = sort.Search(len(runes), func(i int) bool {
		line := string(runes[:i+1])
		return fails(row, line+closers(row, line))
	})
	return row, max(min(column, len(runes)-1), 0)
}

// commented returns the parser's error for lines after a comment line. Without a comment line, the parser does not count the first
// line and reports a different error.
func commented(lines []string) string {
	var n yaml.Node
	if err := yaml.Unmarshal([]byte("#\n"+strings.Join(lines, "\n")+"\n"), &n); err != nil {
		return err.Error()
	}
	return ""
}

// inFlow reports whether a message is about a list in brackets or a map in braces.
func inFlow(message string) bool {
	return strings.Contains(message, "',' or") || message == "did not find expected node content"
}

// consumed returns the row at which the parser stops reading.
func (c chunk) consumed() int {
	r := &oneByte{text: c.text()}
	var n yaml.Node
	_ = yaml.NewDecoder(r).Decode(&n) // the error is already known
	return min(strings.Count(strings.TrimRight(string(r.text[:r.at]), " \t\n"), "\n"), len(c.lines)-1)
}

// oneByte is a reader that counts the bytes read from it.
type oneByte struct {
	text []byte
	at   int
}

func (r *oneByte) Read(p []byte) (int, error) {
	if r.at >= len(r.text) {
		return 0, io.EOF
	}
	n := copy(p[:1], r.text[r.at:])
	r.at += n
	return n, nil
}

// bracket is an opening bracket or brace and its position.
type bracket struct {
	row, column int
	opens       rune
}

// unclosed returns the brackets that are open at the end of a row, outermost first; line is the content of the row. It does not
// recognize block scalars, but works for common input.
func (c chunk) unclosed(row int, line string) []bracket {
	var all []bracket
	closed := 0
	for i := row; i >= 0; i-- {
		if i < row {
			line = c.lines[i]
		}
		open, more := brackets(i, []rune(line))
		if len(open) > closed {
			all = append(open[:len(open)-closed], all...)
			closed = 0
		} else {
			closed -= len(open)
		}
		closed += more
	}
	return all
}

// brackets returns the brackets of one line that are not closed in the line, and the number of brackets from earlier lines that it
// closes.
func brackets(row int, runes []rune) (open []bracket, closed int) {
	quote, before := rune(0), '\n' // before is the last character that is not a space
	for column, r := range runes {
		switch {
		case quote != 0 && r == quote && (r == '\'' || runes[column-1] != '\\'):
			quote = 0
		case quote != 0 || r == ' ':
			continue
		case (r == '"' || r == '\'') && begins(before):
			quote = r
		case r == '#' && (column == 0 || runes[column-1] == ' '):
			return open, closed
		case (r == '[' || r == '{') && begins(before):
			open = append(open, bracket{row, column, r})
		case (r == ']' || r == '}') && len(open) == 0:
			closed++
		case r == ']' && open[len(open)-1].opens == '[', r == '}' && open[len(open)-1].opens == '{':
			open = open[:len(open)-1]
		}
		before = r
	}
	return open, closed
}

// begins reports whether a value may begin after a character.
func begins(before rune) bool { return strings.ContainsRune("\n:-,[{?", before) }

// closing returns the characters that close brackets.
func closing(open []bracket) string {
	var b strings.Builder
	for _, o := range slices.Backward(open) {
		b.WriteRune(map[rune]rune{'[': ']', '{': '}'}[o.opens])
	}
	return b.String()
}

// explain explains the parser's message at a position, and returns the position that the author must change.
func (c chunk) explain(row, column int, message string) (int, int, string) {
	line := c.lines[row]
	indent, before := indentOf(line), cut(line, column)
	if len(before) > indent && !strings.Contains(before[indent:], " ") { // within the first word of the line
		column = indent
	}
	if row, column, ok := c.openQuote(row); ok {
		return row, column, unclosedQuote
	}
	switch {
	case inFlow(message):
		return c.explainFlow(row, column, message)
	case message == "mapping values are not allowed in this context":
		if column > indent {
			return row, column, `a second ": " in one line; put the value in quotes, or begin the key on a line of its own`
		}
		return row, indent, "this key is indented deeper than the line above allows; align it with the keys beside it"
	case message == "did not find expected key":
		switch {
		case strings.HasSuffix(before, `"`) || strings.HasSuffix(before, "'"):
			return row, column, `the text in quotes ends before this; write \" for a quote in double quotes, and '' for one in single quotes`
		case strings.HasPrefix(line[indent:], "- "):
			return row, column, "a list item where a key is expected; align it with the items of the list that it belongs to"
		}
		return row, column, "expected a key; align it with the keys of the map that it belongs to"
	case message == "did not find expected '-' indicator":
		return row, column, `expected "- " as in the items above; align the line with them, or indent it deeper to continue an item`
	case message == "could not find expected ':'":
		return row, column, "expected KEY: VALUE, with a space after the colon; indent it deeper to continue the text above"
	case message == "block sequence entries are not allowed in this context":
		return row, column, `a list cannot begin here; write "- " on a line of its own`
	case message == "found unexpected end of stream":
		return row, column, unclosedQuote
	case message == "found unknown escape character":
		return row, column, `invalid escape in double quotes; write \\ for a backslash, or put the text in single quotes`
	case strings.HasPrefix(message, "unknown anchor"):
		column = utf8.RuneCountInString(line[:max(strings.LastIndexByte(before, '*'), 0)])
		return row, column, "YAML reads * as an alias; put the value in quotes"
	}
	return row, column, message
}

// cut returns the first characters of a line.
func cut(line string, characters int) string {
	runes := []rune(line)
	return string(runes[:min(characters, len(runes))])
}

const unclosedQuote = "the quote that begins here is not closed"

// begun matches a line with a double-quoted string that does not end in the line.
var begun = regexp.MustCompile(`^[^"#]*(?:"[^"]*"[^"#]*)*(?:: |- |[\[{,] ?)("(?:[^"\\]|\\.)*)$`)

// openQuote searches for a quote shortly before a row that is not closed in its line: the string ends at the next quote, and the
// text after that is invalid.
func (c chunk) openQuote(row int) (int, int, bool) {
	if !strings.Contains(c.lines[row], `"`) {
		return 0, 0, false
	}
	for i := row - 1; i >= max(row-lookBack, 0); i-- {
		if strings.Count(c.lines[i], `"`)%2 == 0 {
			continue
		}
		if m := begun.FindStringSubmatchIndex(c.lines[i]); m != nil {
			return i, utf8.RuneCountInString(c.lines[i][:m[2]]), true
		}
		break
	}
	return 0, 0, false
}

// explainFlow explains an error within brackets or braces: if one is not closed, the parser stops lines later.
func (c chunk) explainFlow(row, column int, message string) (int, int, string) {
	line := c.lines[row]
	upTo := cut(line, column+1)
	open := c.unclosed(row, upTo)
	ended := strings.TrimSpace(line[len(upTo):]) == "" && row >= len(c.lines)-2
	if len(open) > 0 {
		last := open[len(open)-1]
		mismatch := strings.HasSuffix(upTo, "]") || strings.HasSuffix(upTo, "}")
		if mismatch || ended || last.row < row && blockLine.MatchString(strings.TrimSpace(line)) {
			return last.row, last.column, fmt.Sprintf("the %c that begins here is not closed", last.opens)
		}
	}
	if strings.Contains(message, "',' or") {
		return row, column, "expected a comma, or the end of the list or map in brackets"
	}
	return row, column, "expected a value"
}

// blockLine matches lines that are usually outside of brackets.
var blockLine = regexp.MustCompile(`^(- |[\w./-]+:( |$))`)

// lookBack is the maximum number of lines between an error and the line that the parser rejects.
const lookBack = 3

// unquoted matches values that begin with a reserved character.
var unquoted = regexp.MustCompile("^\\s*(?:- +)*(?:[^\\s#'\"][^#'\"]*?: +|- +)([@`%{*&!][^\\s]*)")

// suspect searches for common errors, first near a row and then in all lines.
func suspect(lines []string, near int) (row, column int, why string) {
	for _, check := range []func(string) (int, string){tab, helm, reserved} {
		for i := near; i >= max(near-lookBack, 0); i-- {
			if column, why := check(lines[i]); why != "" {
				return i, column, why
			}
		}
	}
	for _, check := range []func(string) (int, string){tab, helm} {
		for i := range lines {
			if column, why := check(lines[i]); why != "" {
				return i, column, why
			}
		}
	}
	return 0, 0, ""
}

func tab(line string) (int, string) {
	indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
	if at := strings.IndexByte(indent, '\t'); at >= 0 && strings.TrimSpace(line) != "" {
		return at, "a tab; indent YAML with spaces only"
	}
	return -1, ""
}

func helm(line string) (int, string) {
	at := strings.Index(line, "{{")
	if at < 0 || quotedAt(line, at) {
		return -1, ""
	}
	return utf8.RuneCountInString(line[:at]), helmReason
}

func reserved(line string) (int, string) {
	m := unquoted.FindStringSubmatchIndex(line)
	if m == nil {
		return -1, ""
	}
	return utf8.RuneCountInString(line[:m[2]]), reservedReason(line[m[2]:m[3]], line[m[2]:])
}

// reservedReason returns the reason why a value needs quotes.
func reservedReason(word, rest string) string {
	switch word[0] {
	case '@', '`', '%':
		return "YAML keeps " + word[:1] + " at the beginning for itself; put the value in quotes: \"" + strings.TrimSpace(rest) + "\""
	case '{':
		if end := strings.IndexByte(rest, '}'); end >= 0 && strings.TrimSpace(rest[end+1:]) != "" && !strings.ContainsAny(rest[end+1:end+2], ",]} #") {
			return "YAML reads { as a map; put text that begins with an expression in quotes: \"" + strings.TrimSpace(rest) + "\""
		}
	case '*':
		return "YAML reads * as an alias; put the value in quotes: \"" + strings.TrimSpace(rest) + "\""
	}
	return ""
}

const helmReason = "this looks like a Helm template; render it first: helm template … | assay lint -"

// helmAction matches the start of a Go template action. Without a space after the braces, it is more likely a string expression.
var helmAction = regexp.MustCompile(`^\{\{(-| *[.$"]| +\w)`)

// quotedAt reports whether a column is within quotes.
func quotedAt(line string, at int) bool {
	return strings.Count(line[:at], `"`)%2 == 1 || strings.Count(line[:at], `'`)%2 == 1
}

func indentOf(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

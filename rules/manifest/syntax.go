package manifest

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax explains why a document is no YAML. The parser's own message is about tokens, and its line that of the construct
// it was in; the usual reasons are found by looking at the text.
func (p *parser) syntax(c chunk, err error) {
	lines := strings.Split(strings.TrimSuffix(c.text, "\n"), "\n")
	line := 1
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil && m[1] != "" {
		line, _ = strconv.Atoi(m[1])
	}
	message := yamlLine.ReplaceAllString(err.Error(), "")
	line = min(max(line, 1), len(lines))
	at := Position{Line: c.first + line, Column: indentOf(lines[line-1]) + 1}
	if row, column, why := suspect(lines, line-1); why != "" {
		at, message = Position{Line: c.first + row + 1, Column: column + 1}, why
	}
	p.problem(at, "syntax", "%s", message)
}

// lookBack is how far before the line that the parser names the mistake may be.
const lookBack = 3

// unquoted finds values that begin with a character which YAML keeps for itself.
var unquoted = regexp.MustCompile("^\\s*(?:- +)*(?:[^\\s#'\"][^#'\"]*?: +|- +)([@`%{*&!][^\\s]*)")

// suspect looks for what usually is wrong, first near the line that the parser names and then anywhere. It returns the row
// and the column from 0.
func suspect(lines []string, near int) (row, column int, why string) {
	tab := func(i int) (int, string) {
		indent := lines[i][:len(lines[i])-len(strings.TrimLeft(lines[i], " \t"))]
		if at := strings.IndexByte(indent, '\t'); at >= 0 && strings.TrimSpace(lines[i]) != "" {
			return at, "a tab; YAML is indented with blanks only"
		}
		return -1, ""
	}
	helm := func(i int) (int, string) {
		at := strings.Index(lines[i], "{{")
		if at < 0 || quotedAt(lines[i], at) {
			return -1, ""
		}
		return utf8.RuneCountInString(lines[i][:at]), helmReason
	}
	reserved := func(i int) (int, string) {
		m := unquoted.FindStringSubmatchIndex(lines[i])
		if m == nil {
			return -1, ""
		}
		return utf8.RuneCountInString(lines[i][:m[2]]), reservedReason(lines[i][m[2]:m[3]], lines[i][m[2]:])
	}
	for _, check := range []func(int) (int, string){tab, helm, reserved} {
		for i := max(near-lookBack, 0); i < min(near+lookBack, len(lines)); i++ {
			if column, why := check(i); why != "" {
				return i, column, why
			}
		}
	}
	for _, check := range []func(int) (int, string){tab, helm} {
		for i := range lines {
			if column, why := check(i); why != "" {
				return i, column, why
			}
		}
	}
	return 0, 0, ""
}

// reservedReason says why a value needs quotes.
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

// quotedAt reports whether a column is within quotes.
func quotedAt(line string, at int) bool {
	return strings.Count(line[:at], `"`)%2 == 1 || strings.Count(line[:at], `'`)%2 == 1
}

func indentOf(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// article says what a node is, to somebody who wrote it.
func article(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a map"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	}
	switch n.ShortTag() {
	case "!!bool":
		return "the boolean " + n.Value
	case "!!int", "!!float":
		return "the number " + n.Value
	}
	return "text"
}

package fix

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// errPlace reports that a node cannot be located in its text. The rule that contains the node is then not rewritten.
var errPlace = errors.New("cannot find the node in the text")

// source is a file and the offsets of its lines.
type source struct {
	text  string
	lines []int
	eol   string
}

func newSource(text []byte) *source {
	s := &source{text: string(text), lines: []int{0}, eol: "\n"}
	for i := 0; i < len(s.text); {
		r, size := utf8.DecodeRuneInString(s.text[i:])
		i += size
		switch r {
		case '\r':
			if i < len(s.text) && s.text[i] == '\n' {
				i++
			}
			s.lines = append(s.lines, i)
		case '\n', '\u0085', '\u2028', '\u2029': // the line breaks of YAML
			s.lines = append(s.lines, i)
		}
	}
	if bytes.Contains(text, []byte("\r\n")) {
		s.eol = "\r\n"
	}
	return s
}

// start returns the offset of a node.
func (s *source) start(n *yaml.Node) (int, error) {
	if n.Line < 1 || n.Line > len(s.lines) {
		return 0, errPlace
	}
	at := s.lines[n.Line-1]
	for range n.Column - 1 {
		_, size := utf8.DecodeRuneInString(s.text[at:])
		if size == 0 {
			return 0, errPlace
		}
		at += size
	}
	return at, nil
}

// span returns the offsets of the start and the end of a node.
func (s *source) span(n *yaml.Node) (from, to int, err error) {
	if from, err = s.start(n); err != nil {
		return 0, 0, err
	}
	rest := s.text[from:]
	switch {
	case n.Anchor != "":
		return 0, 0, errPlace
	case n.Kind == yaml.AliasNode:
		return s.exactly(from, "*"+n.Value)
	case n.Kind == yaml.ScalarNode:
		return s.scalar(from, n)
	case n.Style&yaml.FlowStyle != 0:
		return s.flow(from, n)
	case len(n.Content) == 0 || rest == "":
		return 0, 0, errPlace
	}
	_, to, err = s.span(n.Content[len(n.Content)-1])
	return from, to, err
}

func (s *source) exactly(from int, want string) (int, int, error) {
	if !strings.HasPrefix(s.text[from:], want) {
		return 0, 0, errPlace
	}
	return from, from + len(want), nil
}

func (s *source) scalar(from int, n *yaml.Node) (int, int, error) {
	rest := s.text[from:]
	switch n.Style {
	case 0:
		return s.exactly(from, n.Value)
	case yaml.DoubleQuotedStyle:
		for i := 1; i < len(rest) && rest[0] == '"'; i++ {
			switch rest[i] {
			case '\\':
				i++
			case '"':
				return from, from + i + 1, nil
			}
		}
	case yaml.SingleQuotedStyle:
		for i := 1; i < len(rest) && rest[0] == '\''; i++ {
			if rest[i] != '\'' {
				continue
			}
			if i+1 == len(rest) || rest[i+1] != '\'' {
				return from, from + i + 1, nil
			}
			i++
		}
	}
	return 0, 0, errPlace // the value is a tag or a block scalar
}

// flow returns the range of a list or map in brackets: up to the first closing bracket after its content.
func (s *source) flow(from int, n *yaml.Node) (int, int, error) {
	open, shut := "[", byte(']')
	if n.Kind == yaml.MappingNode {
		open, shut = "{", '}'
	}
	if _, _, err := s.exactly(from, open); err != nil {
		return 0, 0, err // a pair in a list without its own brackets
	}
	at := from + 1
	if len(n.Content) > 0 {
		_, end, err := s.span(n.Content[len(n.Content)-1])
		if err != nil {
			return 0, 0, err
		}
		at = max(at, end)
	}
	for at < len(s.text) {
		switch c := s.text[at]; {
		case c == shut:
			return from, at + 1, nil
		case c == '#':
			end := strings.IndexAny(s.text[at:], "\r\n")
			if end < 0 {
				return 0, 0, errPlace
			}
			at += end
		case strings.IndexByte(" \t\r\n,:", c) >= 0: // a colon before an empty value
			at++
		default:
			return 0, 0, errPlace
		}
	}
	return 0, 0, errPlace
}

package facts

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is the maximum nesting depth. Features have five levels; only unknown members can be deeper.
const maxDepth = 32

// scanner parses JSON (RFC 8259) without building a tree. The strings that it returns refer to the memory of the text.
type scanner struct {
	text string
	pos  int
}

var (
	errEnd   = errors.New("unexpected end of JSON")
	errDepth = fmt.Errorf("nested more than %d levels deep", maxDepth)
)

// unexpected returns an error with the expected and the actual text.
func (s *scanner) unexpected(want string) error {
	if s.pos >= len(s.text) {
		return errEnd
	}
	r, _ := utf8.DecodeRuneInString(s.text[s.pos:])
	return fmt.Errorf("offset %d: %q instead of %s", s.pos, r, want)
}

func (s *scanner) space() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the next byte that is not a blank, or 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.pos >= len(s.text) {
		return 0
	}
	return s.text[s.pos]
}

// null skips a null and reports whether there was one.
func (s *scanner) null() bool {
	if s.peek() == 'n' && strings.HasPrefix(s.text[s.pos:], "null") {
		s.pos += len("null")
		return true
	}
	return false
}

// object calls member for each member of an object. member must read the value. null is an object without members.
func (s *scanner) object(member func(name string) error) error {
	if s.null() {
		return nil
	}
	return s.list('{', '}', "an object", func() error {
		name, err := s.string()
		if err != nil {
			return err
		}
		if s.peek() != ':' {
			return s.unexpected("a colon")
		}
		s.pos++
		return member(name)
	})
}

// array calls element for each element of an array. element must read it. null is an empty array.
func (s *scanner) array(element func() error) error {
	if s.null() {
		return nil
	}
	return s.list('[', ']', "an array", element)
}

func (s *scanner) list(open, end byte, what string, element func() error) error {
	if s.peek() != open {
		return s.unexpected(what)
	}
	s.pos++
	if s.peek() == end {
		s.pos++
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.pos++
			s.space()
		case end:
			s.pos++
			return nil
		default:
			return s.unexpected("a comma or the end of " + what)
		}
	}
}

// string reads a string.
func (s *scanner) string() (string, error) {
	if s.peek() != '"' {
		return "", s.unexpected("a string")
	}
	start := s.pos + 1
	for i := start; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			s.pos = i + 1
			return s.text[start:i], nil
		case c == '\\':
			return s.escaped(start, i)
		case c < ' ':
			s.pos = i
			return "", s.unexpected("a character of a string")
		}
	}
	return "", errEnd
}

// escapes maps characters after a backslash to their values. The value of invalid escapes is 0.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escaped parses the rest of a string that begins at start and has its first backslash at i.
func (s *scanner) escaped(start, i int) (string, error) {
	var b strings.Builder
	b.Grow(max(stringEnd(s.text, i)-start, 0))
	for i < len(s.text) {
		c := s.text[i]
		switch {
		case c == '"':
			b.WriteString(s.text[start:i])
			s.pos = i + 1
			return b.String(), nil
		case c < ' ':
			s.pos = i
			return "", s.unexpected("a character of a string")
		case c != '\\':
			i++
			continue
		}
		b.WriteString(s.text[start:i])
		if i+1 >= len(s.text) {
			return "", errEnd
		}
		if s.text[i+1] == 'u' {
			r, n := unescape(s.text[i:])
			if n == 0 {
				s.pos = i
				return "", s.unexpected("four hexadecimal digits after \\u")
			}
			b.WriteRune(r)
			i += n
			start = i
			continue
		}
		plain := escapes[s.text[i+1]]
		if plain == 0 {
			s.pos = i + 1
			return "", s.unexpected("an escape")
		}
		b.WriteByte(plain)
		i += 2
		start = i
	}
	return "", errEnd
}

// unescape decodes \uXXXX, or a surrogate pair, and returns its length, or 0 if it is malformed. It returns U+FFFD for half a pair,
// as encoding/json does.
func unescape(text string) (rune, int) {
	const length = len(`\u0000`)
	r, ok := hex(text)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, length
	}
	if second, ok := hex(text[length:]); ok {
		if pair := utf16.DecodeRune(r, second); pair != utf8.RuneError {
			return pair, 2 * length
		}
	}
	return utf8.RuneError, length
}

func hex(text string) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(text[2:6], 16, 16)
	return rune(n), err == nil
}

// skip skips a value and returns it. It only searches the end: values seen before need no check, and other values are parsed
// afterwards.
func (s *scanner) skip() (string, error) {
	switch s.peek() {
	case '{', '[':
		return s.skipNested()
	case '"':
		start := s.pos
		end := stringEnd(s.text, start+1)
		if end < 0 {
			return "", errEnd
		}
		s.pos = end
		return s.text[start:end], nil
	}
	start := s.pos
	for s.pos < len(s.text) && !strings.ContainsRune(",]} \t\r\n", rune(s.text[s.pos])) {
		s.pos++
	}
	if s.pos == start {
		return "", s.unexpected("a value")
	}
	return s.text[start:s.pos], nil
}

func (s *scanner) skipNested() (string, error) {
	text, depth := s.text, 0
	for i := s.pos; i < len(text); i++ {
		switch text[i] {
		case '"':
			// This is inlined because most of the time is spent here: names and values are short.
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			if depth++; depth > maxDepth {
				s.pos = i
				return "", fmt.Errorf("offset %d: %w", i, errDepth)
			}
		case '}', ']':
			if depth--; depth == 0 {
				span := text[s.pos : i+1]
				s.pos = i + 1
				return span, nil
			}
		}
	}
	return "", errEnd
}

// stringEnd returns the position after the string whose first character is at i, or -1.
func stringEnd(text string, i int) int {
	for ; i < len(text); i++ {
		switch text[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return -1
}

// ignore skips an unknown member. The member must be valid JSON.
func (s *scanner) ignore() error {
	start := s.pos
	span, err := s.skip()
	if err != nil {
		return err
	}
	if span != "{}" && !json.Valid([]byte(span)) {
		return fmt.Errorf("offset %d: not valid JSON", start)
	}
	return nil
}

// end checks that there is no further text.
func (s *scanner) end() error {
	if s.space(); s.pos < len(s.text) {
		return s.unexpected("the end")
	}
	return nil
}

package expr

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// maxFormat is the maximum length of a format in characters.
	maxFormat = 8
	// maxWidth is the maximum width of a formatted value: the maximum length of a label value.
	maxWidth = 63
)

// format is a compiled format specification: [[fill]align][+][#][0][width][,][.precision][type].
type format struct {
	fill      string // one character, or empty for the default
	align     byte   // < > ^ =, or 0 for the default of the kind
	plus      bool
	prefix    bool // #
	zero      bool
	width     int
	comma     bool
	precision int // -1 if none
	verb      byte
}

// parseFormat parses the format after the colon and rejects combinations that can never be valid.
func parseFormat(spec string) (*format, bool) {
	if utf8.RuneCountInString(spec) > maxFormat {
		return nil, false
	}
	f := &format{precision: -1}
	spec = f.parseAlign(spec)
	f.plus, spec = cutByte(spec, '+')
	f.prefix, spec = cutByte(spec, '#')
	f.zero, spec = cutByte(spec, '0')
	f.width, spec = cutNumber(spec, 0)
	f.comma, spec = cutByte(spec, ',')
	if rest, ok := strings.CutPrefix(spec, "."); ok {
		if f.precision, spec = cutNumber(rest, -1); f.precision < 0 {
			return nil, false
		}
	}
	if len(spec) == 1 && strings.ContainsRune("dxXobs", rune(spec[0])) {
		f.verb, spec = spec[0], ""
	}
	if spec != "" || f.width > maxWidth {
		return nil, false
	}
	return f, f.sensible()
}

func (f *format) parseAlign(spec string) string {
	r, size := utf8.DecodeRuneInString(spec)
	if len(spec) > size && isAlign(spec[size]) && r != utf8.RuneError && r >= ' ' && r != '{' {
		f.fill, f.align = spec[:size], spec[size]
		return spec[size+1:]
	}
	if spec != "" && isAlign(spec[0]) {
		f.align = spec[0]
		return spec[1:]
	}
	return spec
}

// sensible reports whether the parts can be combined: commas require a decimal number, a precision requires a string.
func (f *format) sensible() bool {
	if f.comma && f.verb != 'd' && f.verb != 0 {
		return false
	}
	if f.verb == 's' && f.numeric() {
		return false
	}
	return f.precision < 0 || (f.verb == 's' || f.verb == 0) && !f.numeric()
}

// numeric reports whether a part of the format requires a number.
func (f *format) numeric() bool { return f.plus || f.prefix || f.zero || f.comma || f.align == '=' }

// append appends the formatted value, or returns the reason why it cannot be formatted.
func (f *format) append(dst []byte, v Value) ([]byte, string) {
	asText := f.verb == 's' || f.verb == 0 && !f.numeric() && (v.kind == String || v.kind == Bool)
	if asText {
		if v.kind == Int {
			return dst, "a number cannot be formatted as text"
		}
		text, ok := v.Text()
		if !ok {
			return dst, v.kind.String() + " has no format"
		}
		return f.appendText(dst, text), ""
	}
	number, ok := v.Number()
	if !ok {
		return dst, notNumber(v)
	}
	if f.precision >= 0 {
		return dst, "a number has no precision"
	}
	return f.appendNumber(dst, number), ""
}

func (f *format) appendText(dst []byte, text string) []byte {
	if f.precision >= 0 {
		text = sliceText(text, 0, int64(f.precision))
	}
	missing := f.width - utf8.RuneCountInString(text)
	return f.pad(dst, "", text, missing, '<')
}

func (f *format) appendNumber(dst []byte, number int64) []byte {
	base, prefix := 10, ""
	switch f.verb {
	case 'x', 'X':
		base, prefix = 16, "0"+string(f.verb)
	case 'o':
		base, prefix = 8, "0o"
	case 'b':
		base, prefix = 2, "0b"
	}
	if !f.prefix || base == 10 {
		prefix = ""
	}
	sign, magnitude := "", uint64(number)
	switch {
	case number < 0:
		sign, magnitude = "-", -magnitude
	case f.plus:
		sign = "+"
	}
	digits := strconv.FormatUint(magnitude, base)
	if f.verb == 'X' {
		digits = strings.ToUpper(digits)
	}
	lead := sign + prefix
	if f.zero && f.align == 0 {
		digits = f.zeros(digits, f.width-len(lead))
	} else if f.comma {
		digits = commas(digits)
	}
	return f.pad(dst, lead, digits, f.width-len(lead)-len(digits), '>')
}

// zeros pads a number with zeros. Commas group them like other digits.
func (f *format) zeros(digits string, width int) string {
	if !f.comma {
		return strings.Repeat("0", max(0, width-len(digits))) + digits
	}
	for grouped := commas(digits); ; grouped = commas(digits) {
		if len(grouped) >= width {
			return grouped
		}
		digits = "0" + digits
	}
}

// pad appends lead and text, with fill characters as required by the alignment.
func (f *format) pad(dst []byte, lead, text string, missing int, natural byte) []byte {
	align := f.align
	if align == 0 {
		align = natural
	}
	missing = max(missing, 0)
	before, between, after := 0, 0, 0
	switch align {
	case '<':
		after = missing
	case '>':
		before = missing
	case '^':
		before = missing / 2
		after = missing - before
	default:
		between = missing
	}
	dst = f.repeat(dst, before)
	dst = append(dst, lead...)
	dst = f.repeat(dst, between)
	dst = append(dst, text...)
	return f.repeat(dst, after)
}

func (f *format) repeat(dst []byte, n int) []byte {
	fill := f.fill
	switch {
	case fill != "":
	case f.zero:
		fill = "0"
	default:
		fill = " "
	}
	for range n {
		dst = append(dst, fill...)
	}
	return dst
}

// commas groups decimal digits by three.
func commas(digits string) string {
	var b strings.Builder
	for i := range len(digits) {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteByte(digits[i])
	}
	return b.String()
}

func isAlign(b byte) bool { return b == '<' || b == '>' || b == '^' || b == '=' }

func cutByte(s string, b byte) (bool, string) {
	if s != "" && s[0] == b {
		return true, s[1:]
	}
	return false, s
}

// cutNumber removes a decimal number from the start of s and returns it, or returns absent if there is none.
func cutNumber(s string, absent int) (int, string) {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	if n == 0 {
		return absent, s
	}
	number, err := strconv.Atoi(s[:n])
	if err != nil {
		return absent, s
	}
	return number, s[n:]
}

package dictionary

import (
	"slices"
	"strconv"
	"strings"

	"github.com/assay-project/assay/rules/version"
)

// Kind is what the values of an element look like.
type Kind uint8

// The kinds of values.
const (
	// Text is any string.
	Text Kind = iota
	// Flag has no value.
	Flag
	// Bool is true or false.
	Bool
	// Bit is 0 or 1.
	Bit
	// Integer is a decimal number.
	Integer
	// Bytes is a decimal number of bytes.
	Bytes
	// Number is a decimal number, on some architectures with letters in upper case.
	Number
	// Version is a version; see rules/version.
	Version
	// Hex2 and Hex4 are hexadecimal numbers of two or four digits in lower case.
	Hex2
	Hex4
	// Enum is one of a list of strings.
	Enum
	// Option is the value of an option of the kernel: y, m, a number or a string.
	Option
)

// kinds describes the kinds in the documentation.
var kinds = [...]string{
	Text: "string", Flag: "flag", Bool: "`true` or `false`", Bit: "`0` or `1`", Integer: "integer", Bytes: "bytes", Number: "number",
	Version: "version", Hex2: "2 hexadecimal digits", Hex4: "4 hexadecimal digits", Enum: "string",
	Option: "`y`, `m`, a number or a string",
}

// Says describes the values of the element, for the documentation.
func (e *Element) Says() string {
	switch {
	case e.Kind == Enum && !e.More:
		return "`" + strings.Join(e.Values, "`, `") + "`"
	case e.Unit != "":
		return kinds[e.Kind] + ", " + e.Unit
	}
	return kinds[e.Kind]
}

// Width is the number of digits of a hexadecimal kind, and 0 of others.
func (k Kind) Width() int {
	switch k {
	case Hex2:
		return 2
	case Hex4:
		return 4
	}
	return 0
}

// Numeric reports whether the values are integers.
func (k Kind) Numeric() bool { return k == Integer || k == Bytes || k == Bit }

// Unknown is the value of an attribute of instances that every instance has and that could not be read.
const Unknown = "unknown"

// Has reports whether the element may have a value.
func (e *Element) Has(value string) bool {
	switch e.Kind {
	case Flag:
		return false
	case Bool:
		return value == "true" || value == "false"
	case Bit:
		return value == "0" || value == "1"
	case Integer, Bytes:
		_, err := strconv.ParseInt(value, 10, 64)
		return err == nil && value[0] != '+'
	case Number:
		return value != "" && strings.Trim(value, "0123456789ABCDEF") == ""
	case Version:
		_, err := version.Parse(value)
		return err == nil
	case Hex2, Hex4:
		return len(value) == e.Kind.Width() && strings.Trim(value, "0123456789abcdef") == ""
	case Enum:
		return e.More || slices.Contains(e.Values, value)
	}
	return true
}

// Typical returns values that the element has on different machines, at least one unless it is a flag. For a Bool and a Bit these are
// all values.
func (e *Element) Typical() []string {
	switch {
	case e.Kind == Bool:
		return []string{"true", "false"}
	case e.Kind == Bit:
		return []string{"0", "1"}
	case len(e.Values) > 0:
		return e.Values
	case e.Kind == Flag:
		return nil
	}
	return []string{"example"}
}

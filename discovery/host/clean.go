package host

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxValueLength bounds one value, in bytes. The kernel's command line, the longest thing in a kernel configuration, has
// at most 2,048; a USB serial number at most 126 characters.
const MaxValueLength = 2048

// Clean makes a value fit to be published: valid UTF-8, printable, without surrounding space, at most MaxValueLength
// bytes. Much of what sysfs shows is written by the device itself (the serial number of a USB stick), so it is text of a
// stranger: it must not be able to forge a line in a log, to hide or reorder characters, or to break the JSON of a whole
// NodeFeature. What is not printable becomes "_"; NUL ends the value, as DMI tables and device trees mean it.
func Clean(b []byte) string { return CleanTo(b, MaxValueLength) }

// CleanTo is Clean with a bound of its own, for text that is taken apart and not published as it is.
func CleanTo(b []byte, bound int) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	b = bytes.TrimSpace(b)
	if len(b) > bound {
		b = cut(b, bound)
	}
	if plain(b) {
		return string(b)
	}
	s := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, string(b))
	// A replaced byte needs no more room than it had, but an invalid one may have been read as three.
	if len(s) > bound {
		s = string(cut([]byte(s), bound))
	}
	return strings.TrimSpace(s)
}

// plain reports whether a value is printable ASCII, as nearly all are.
func plain(b []byte) bool {
	for _, c := range b {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// cut shortens a value to the bound without splitting a character.
func cut(b []byte, n int) []byte {
	for lowest := n - utf8.UTFMax; n > 0 && n > lowest && !utf8.RuneStart(b[n]); {
		n--
	}
	return b[:n]
}

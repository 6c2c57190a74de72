package host

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxValueLength is the maximum length of a value in bytes. The kernel's command line, the longest value in a kernel configuration,
// has at most 2,048; a USB serial number at most 126 characters.
const MaxValueLength = 2048

// byteOrderMark begins files that some editors write.
const byteOrderMark = "\uFEFF"

// Text returns the text in a file that a parser splits into lines: without a byte order mark, and without zero bytes at the end, which
// kernels and firmware add to some of their files.
func Text(data []byte) []byte {
	return bytes.TrimRight(bytes.TrimPrefix(data, []byte(byteOrderMark)), "\x00")
}

// Clean sanitizes a value for publishing: valid UTF-8, printable, without surrounding space, at most MaxValueLength bytes. Many
// values in sysfs come from the device (such as the serial number of a USB stick) and are untrusted: they must not be able to forge
// log lines, to hide or reorder characters, or to break the JSON of the NodeFeature. Unprintable characters become "_"; a zero byte
// ends the value, as in DMI tables, device trees, and the lists of CPUs of Linux 5.15.
func Clean(b []byte) string { return CleanTo(b, MaxValueLength) }

// CleanTo is Clean with another limit, for text that is parsed and not published as a whole.
func CleanTo(b []byte, bound int) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	b = bytes.TrimSpace(bytes.TrimPrefix(b, []byte(byteOrderMark)))
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
	// A replaced byte needs no more space, but an invalid one may have been read as three.
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

// cut truncates a value at a character boundary.
func cut(b []byte, n int) []byte {
	for lowest := n - utf8.UTFMax; n > 0 && n > lowest && !utf8.RuneStart(b[n]); {
		n--
	}
	return b[:n]
}

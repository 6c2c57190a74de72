// Package clip shortens text for messages.
package clip

import "strings"

// Text returns s shortened to at most most bytes, with an ellipsis if it is shortened. It does not split characters.
func Text(s string, most int) string {
	if len(s) <= most {
		return s
	}
	end := most
	for end > 0 && s[end]&0xc0 == 0x80 { // not the first byte of a character
		end--
	}
	return strings.ToValidUTF8(s[:end], "\uFFFD") + "…"
}

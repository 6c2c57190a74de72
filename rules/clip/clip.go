// Package clip shortens text for messages.
package clip

import "strings"

// Text returns at most that many bytes of s, with an ellipsis behind if some are missing. It never ends in a part of a character.
func Text(s string, most int) string {
	if len(s) <= most {
		return s
	}
	end := most
	for end > 0 && s[end]&0xc0 == 0x80 { // a byte within a character
		end--
	}
	return strings.ToValidUTF8(s[:end], "\uFFFD") + "…"
}

// Package clip shortens and formats text for messages.
package clip

import (
	"fmt"
	"strings"
)

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

// Count returns a number with its noun, such as "1 node" and "2 nodes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

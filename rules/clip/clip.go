// Package clip shortens, quotes and formats text for messages.
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

// Join joins the first strings of a list, at most most, and adds the number of the others: "a, b, and 3 more".
func Join(list []string, separator string, most int) string {
	shown := list[:min(len(list), most)]
	return strings.Join(shown, separator) + More(separator, len(list)-len(shown))
}

// More returns what follows the first strings of a list if n more are left out, or "" if none are.
func More(separator string, n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("%sand %d more", separator, n)
}

// Count returns a number with its noun, such as "1 node" and "2 nodes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

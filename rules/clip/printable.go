package clip

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Unprintable reports whether a character moves the cursor of a terminal, hides or reorders text, or ends a line.
func Unprintable(r rune) bool {
	return r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}

// Printable replaces unprintable characters: features may come from untrusted devices.
func Printable(s string) string {
	if strings.IndexFunc(s, Unprintable) < 0 {
		return s
	}
	return strings.Map(func(r rune) rune {
		if Unprintable(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// Quote returns a string in YAML, in double quotes, without unprintable characters. Its value is s, except for invalid UTF-8.
func Quote(s string) string {
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // of a string
	}
	text := strings.TrimSuffix(out.String(), "\n")
	if strings.IndexFunc(text, Unprintable) < 0 {
		return text
	}
	out.Reset()
	for _, r := range text {
		if Unprintable(r) {
			fmt.Fprintf(&out, `\U%08x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// QuoteAll returns strings in YAML, separated by commas.
func QuoteAll(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = Quote(s)
	}
	return strings.Join(out, ", ")
}

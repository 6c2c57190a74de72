package match

import (
	"regexp"
	"slices"
	"testing"
)

// FuzzPattern compares literals and the search in sorted names with the automaton that they replace.
func FuzzPattern(f *testing.F) {
	for _, p := range append(somePatterns, "^^a", "a$$", "$^", "(^a|b$)c?", "^(a|b)?$", "[a-c]$", "a{2}", "(?:a|ab)(?:c|bcd)", "x*^a", "a$x*", "(?-s)a.", "\\Aab\\z", "a|$", "(?U)a.*", "\\Qa.b\\E", "[^\\x00-\\x{10FFFF}]", "\uFFFD") {
		for _, v := range []string{"", "abc", "xab\n", "aab", "bc"} {
			f.Add(p, v)
		}
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		if len(text) > MaxTextLength {
			return
		}
		patterns, err := compilePattern(text, nil)
		if err != nil {
			return
		}
		list := &inRegexp{patterns: patterns}
		want := regexp.MustCompile(text).MatchString(value)
		if got := list.check(value, new(Work)) == yes; got != want {
			t.Errorf("%q on %q: %v, the automaton says %v", text, value, got, want)
		}
		names := []string{value, "~none", "~other"}
		slices.Sort(names)
		want = slices.ContainsFunc(names, regexp.MustCompile(text).MatchString)
		if got := list.anyOf(names, new(Work)); got != want {
			t.Errorf("%q among %q: %v, the automaton says %v", text, names, got, want)
		}
	})
}

package clip_test

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/clip"
)

func TestText(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"Short":               {"abc", "abc"},
		"AtTheLimit":          {"abcd", "abcd"},
		"Longer":              {"abcde", "abcd…"},
		"NoPartOfACharacter":  {"abcé", "abc…"},
		"AWholeCharacterFits": {"abéd", "abé…"},
		"NoCharacterFits":     {"\x80\x80\x80\x80\x80", "…"},
		"InvalidIsReplaced":   {"a\xffbcd", "a\uFFFDbc…"},
		"Nothing":             {"", ""},
	} {
		if got := clip.Text(tc.text, 4); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestJoin(t *testing.T) {
	list := []string{"a", "b", "c"}
	for most, want := range map[int]string{4: "a; b; c", 3: "a; b; c", 2: "a; b; and 1 more", 1: "a; and 2 more"} {
		if got := clip.Join(list, "; ", most); got != want {
			t.Errorf("at most %d: %q, want %q", most, got, want)
		}
	}
}

func TestQuote(t *testing.T) {
	for name, text := range map[string]string{
		"Plain": "abc", "Quotes": `a"b\c`, "Markup": "<a&b>", "Direction": "a\u202eb", "Line": "a\u2028b\nc", "NextLine": "a\u0085b", "Tag": "a\U000e0041b",
	} {
		got := clip.Quote(text)
		if strings.ContainsFunc(got, clip.Unprintable) {
			t.Errorf("%s: got unprintable characters in %q", name, got)
		}
		var back string
		if err := yaml.Unmarshal([]byte(got), &back); err != nil || back != text {
			t.Errorf("%s: %s is read as %q, %v; want %q", name, got, back, err, text)
		}
	}
}

package clip_test

import (
	"testing"

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

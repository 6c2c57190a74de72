package expr

import "testing"

// A repetition in a regular expression stays as it is; everything else in braces may be an expression or an error.
func TestRepetitionsAreLiteral(t *testing.T) {
	for text, want := range map[string]bool{
		"1,2}": true, "3,}": true, "12,345}x": true,
		"3}": false, ",3}": false, ",}": false, "1,2": false, "1,a}": false, "a,2}": false, "1;2}": false, "": false,
	} {
		if got := repetition(text); got != want {
			t.Errorf("{%s is a repetition: %v, want %v", text, got, want)
		}
	}
}

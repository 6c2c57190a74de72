package glob_test

import (
	"testing"

	"github.com/assay-project/assay/rules/glob"
)

func TestMatch(t *testing.T) {
	for in, want := range map[[2]string]bool{
		{"a", "a"}: true, {"a", "b"}: false, {"a", "ab"}: false, {"", ""}: true, {"", "a"}: false,
		{"*", ""}: true, {"*", "anything"}: true, {"**", "x"}: true, {"a*", "a"}: true, {"a*", "ab"}: true, {"a*", "ba"}: false, {"ab*", "a"}: false,
		{"*a", "ba"}: true, {"*b", "abc"}: false, {"a*c", "abc"}: true, {"a*a", "a"}: false, {"a*a", "aa"}: true,
		{"a*b*c", "axbxc"}: true, {"a*b*c", "a-b-b-c"}: true, {"a*b*c", "axxc"}: false, {"a*b*c", "a-c-b"}: false, {"a*b*b", "ab"}: false,
		{"a[b]", "ab"}: false, {"a?", "ab"}: false,
	} {
		if got := glob.Match(in[0], in[1]); got != want {
			t.Errorf("Match(%q, %q) = %t", in[0], in[1], got)
		}
	}
}

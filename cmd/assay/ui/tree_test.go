package ui

import "testing"

func TestSizeIsInTheLargestUnit(t *testing.T) {
	for _, test := range []struct{ name, value, want string }{
		{"l1d.bytes", "32768", "32 KiB"}, {"bytes", "540016640000", "503 GiB"}, {"mib", "1031000", "1007 GiB"}, {"mib", "2097152", "2 TiB"},
		{"l3.bytes", "34603009", "33 MiB"}, {"bytes", "1536", "1.5 KiB"},
		{"bytes", "100", ""}, {"bytes", "-1", ""}, {"bytes", "99999999999999999999", ""}, {"count", "32768", ""},
	} {
		if got := size(test.name, test.value); got != test.want {
			t.Errorf("%s=%s: got %q, want %q", test.name, test.value, got, test.want)
		}
	}
}

func TestFiltersOfValuesSelectTheseValues(t *testing.T) {
	for _, value := range []string{"a", "and", "AND", "a b", `say "x"`, "a,b", "", "x=y", "é", "tab\there"} {
		words, err := splitWords("name In " + quoteWord(value))
		if err != nil || len(words) != 3 || words[2].text != value {
			t.Errorf("%q as %s: got %v, %v", value, quoteWord(value), words, err)
		}
	}
}

func FuzzFilter(f *testing.F) {
	f.Add(`cpu.model.vendor_id = Intel and label a/b In "x y", z`)
	f.Fuzz(func(_ *testing.T, text string) {
		_, _ = parseTerms(text) // it must come back
	})
}

package ui

import (
	"slices"
	"testing"
)

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
	d := newData(&Snapshot{})
	for _, value := range []string{"a", "and", "AND", "or", "not", "a b", `say "x"`, "a,b", "", "x=y", "a(b", "b)", "é", "tab\there"} {
		c, err := compileFilter(d, "(cpu.model.name In "+quoteWord(value)+")")
		if err != nil || c.term == nil || len(c.values) != 1 || c.values[0].text != value {
			t.Errorf("%q as %s: got %+v, %v", value, quoteWord(value), c, err)
		}
	}
}

// TestNaturalOrder: numbers in names are compared as numbers.
func TestNaturalOrder(t *testing.T) {
	sorted := []string{"", "1", "2", "007", "10", "6.8", "6.10", "a1", "a2b", "a10", "b", "node-9", "node-10", "node-10a"}
	order := []string{"", "1", "2", "6.8", "6.10", "007", "10", "a1", "a2b", "a10", "b", "node-9", "node-10", "node-10a"}
	slices.SortFunc(sorted, natural)
	if !slices.Equal(sorted, order) {
		t.Errorf("got %q", sorted)
	}
}

func FuzzFilter(f *testing.F) {
	d := newData(&Snapshot{})
	for _, text := range []string{`cpu.model.vendor_id = Intel and label a/b In "x y", z`, `not (ready or "a b") and rule x`, "((a", "features-age > 3d or name ~ ^a"} {
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text string) {
		_, _ = compileFilter(d, text) // it must come back
	})
}

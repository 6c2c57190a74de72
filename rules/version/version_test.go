package version

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	tests := map[string]struct {
		tolerant string // "" if the input is rejected
		strict   string
	}{
		"1":                        {"1.0.0", "1.0.0"},
		"1.2":                      {"1.2.0", "1.2.0"},
		"v1.2.3":                   {"1.2.3", "1.2.3"},
		"22.04":                    {"22.4.0", "22.4.0"},
		"01.02.03":                 {"1.2.3", "1.2.3"},
		"1.2.3-rc.1":               {"1.2.3", "1.2.3"},
		"1.2.3-01a":                {"1.2.3", "1.2.3"},
		"1.2.3+build.01":           {"1.2.3", "1.2.3"},
		"1.2-rc1+b-2":              {"1.2.0", "1.2.0"},
		"6.8.0-45-generic":         {"6.8.0", "6.8.0"},
		"1.2.3-a+b-c":              {"1.2.3", "1.2.3"},
		"5.14.0-362.el9.x86_64":    {"5.14.0", ""},
		"4.18.0-553.el8_10.x86_64": {"4.18.0", ""},
		"1.2.3-01":                 {"1.2.3", ""},
		"6.1.0+":                   {"6.1.0", ""},
		"1.2.3-":                   {"1.2.3", ""},
		"1.2.3+a+b":                {"1.2.3", ""},
		"1.2.3.4":                  {"1.2.3.4", ""},
		"535.104.05":               {"535.104.5", "535.104.5"},
		"1.2.3.4.5.6.7.8":          {"1.2.3.4.5.6.7.8", ""},
		"1.2.3.4.5.6.7.8.9":        {},
		"5.10.":                    {"5.10.0", ""},
		"5.10.el7":                 {"5.10.0", ""},
		"24.04 LTS":                {"24.4.0", ""},
		"1.x":                      {},
		"1.2.X":                    {},
		"1.*.3":                    {},
		"1.xen":                    {"1.0.0", ""},
		"":                         {},
		"v":                        {},
		"vv1":                      {},
		"V1":                       {},
		" 1":                       {},
		"-1":                       {},
		".5":                       {},
		"latest":                   {},
		"18446744073709551615":     {"18446744073709551615.0.0", "18446744073709551615.0.0"},
		"18446744073709551616":     {},
		"1.18446744073709551616":   {},
	}
	for text, tc := range tests {
		t.Run(text, func(t *testing.T) {
			check(t, "Parse", Parse, text, tc.tolerant)
			check(t, "ParseStrict", ParseStrict, text, tc.strict)
		})
	}
}

func check(t *testing.T, name string, parse func(string) (V, error), text, want string) {
	t.Helper()
	v, err := parse(text)
	if want == "" {
		if err == nil {
			t.Fatalf("%s(%q) = %v, want an error", name, text, v)
		}
		if !strings.Contains(err.Error(), "version \"") {
			t.Errorf("%s(%q): error does not say what it is about: %v", name, text, err)
		}
		return
	}
	if err != nil || v.String() != want {
		t.Errorf("%s(%q) = %v, %v, want %s", name, text, v, err, want)
	}
}

func TestCompare(t *testing.T) {
	tests := map[string]struct {
		a, b string
		want int
	}{
		"IgnoresSuffix":            {"5.14.0-362.el9.x86_64", "5.14.0", 0},
		"IgnoresPrerelease":        {"1.2.3-rc1", "1.2.3", 0},
		"MissingNumbersAreZero":    {"1", "1.0.0", 0},
		"ComparesNumbersNotText":   {"6.10", "6.9", +1},
		"LeadingZerosMeanNothing":  {"22.04", "22.4", 0},
		"FirstDifferenceDecides":   {"1.9.9", "2", -1},
		"FourthNumberCounts":       {"1.2.3.4", "1.2.3.5", -1},
		"MoreNumbersAreNewer":      {"1.2.3.1", "1.2.3", +1},
		"LargestNumberDoesNotWrap": {"18446744073709551615", "0", +1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a, errA := Parse(tc.a)
			b, errB := Parse(tc.b)
			if errA != nil || errB != nil {
				t.Fatal(errA, errB)
			}
			if got := a.Compare(b); got != tc.want {
				t.Errorf("Compare(%s, %s) = %d, want %d", tc.a, tc.b, got, tc.want)
			}
			if got := b.Compare(a); got != -tc.want {
				t.Errorf("Compare(%s, %s) = %d, want %d", tc.b, tc.a, got, -tc.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"1", "v1.2.3-rc.1+b", "5.14.0-362.el9.x86_64", "1.x", "1.2.3.4.5.6.7.8.9", "6.1.0+"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tolerant, err := Parse(s)
		strict, strictErr := ParseStrict(s)
		if strictErr == nil && (err != nil || tolerant != strict) {
			t.Errorf("ParseStrict(%q) = %v, but Parse gives %v, %v", s, strict, tolerant, err)
		}
		if err != nil {
			return
		}
		again, err := Parse(tolerant.String())
		if err != nil || again != tolerant {
			t.Errorf("Parse(%q) = %v, which reads back as %v, %v", s, tolerant, again, err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("5.14.0-362.el9.x86_64"); err != nil {
			b.Fatal(err)
		}
	}
}

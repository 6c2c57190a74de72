package featureset

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

func decode(t testing.TB, text string) *nfdv1alpha1.Features {
	t.Helper()
	var f nfdv1alpha1.Features
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		t.Fatal(err)
	}
	return &f
}

// TestNamesStay checks fixed names: if a name changes, all workers publish all of their sets again, and Version must be
// incremented.
func TestNamesStay(t *testing.T) {
	for text, want := range map[string]string{
		`{"attributes":{"kernel.config":{"elements":{"X":"y","A":"m"}}}}`:                "kernel-config-v1-fa360749640550d85019e1d3e09889e69229b1e2",
		`{"flags":{"cpu.cpuid":{"elements":{"AVX":{},"AES":{}}}}}`:                       "cpu-cpuid-v1-bf4102035318b62efd7c76196e591a348a2bd0f5",
		`{"instances":{"pci.device":{"elements":[{"attributes":{"class":"0300"}},{}]}}}`: "pci-device-v1-f5d8772ec8817e7d9490b5af9543cb4ea3bb4a2d",
		`{"flags":{"Vendor_X.thing":{"elements":null}}}`:                                 "vendor-x-thing-v1-035931a8bac75f5384b50766d680b13a3a92a307",
		`{"flags":{"":{}}}`: "feature-v1-9ad1fdf25d31cb161275a15d8c67b875619aae5e",
	} {
		got, err := Name(decode(t, text))
		if err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestEqualValuesHaveEqualNames(t *testing.T) {
	for name, texts := range map[string][]string{
		"Order": {`{"flags":{"f":{"elements":{"a":{},"b":{}}}}}`, `{"flags":{"f":{"elements":{"b":{},"a":{}}}}}`},
		"Empty": {
			`{"flags":{"f":{}}}`, `{"flags":{"f":{"elements":null}}}`, `{"flags":{"f":{"elements":{}}},"attributes":{},"instances":null}`,
		},
		"Escapes":   {`{"attributes":{"f":{"elements":{"a":"\u00e9\/\u003c"}}}}`, `{"attributes":{"f":{"elements":{"a":"é/<"}}}}`},
		"Instances": {`{"instances":{"f":{"elements":[{}]}}}`, `{"instances":{"f":{"elements":[{"attributes":{}}]}}}`},
	} {
		first, err := Name(decode(t, texts[0]))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, text := range texts[1:] {
			if got, err := Name(decode(t, text)); err != nil || got != first {
				t.Errorf("%s: %q, %v, want %q", name, got, err, first)
			}
		}
	}
}

func TestDifferentValuesHaveDifferentNames(t *testing.T) {
	seen := map[string]string{}
	for _, text := range []string{
		`{"flags":{"f":{}}}`, `{"attributes":{"f":{}}}`, `{"instances":{"f":{}}}`, `{"flags":{"F":{}}}`, `{"flags":{"f.":{}}}`,
		`{"instances":{"f":{"elements":[{}]}}}`, `{"attributes":{"f":{"elements":{"a":"b\",\"c\":\"d"}}}}`, `{"attributes":{"f":{"elements":{"a":"b","c":"d"}}}}`,
	} {
		got, err := Name(decode(t, text))
		if err != nil {
			t.Fatal(err)
		}
		if seen[got] != "" {
			t.Errorf("%s and %s are both %s", text, seen[got], got)
		}
		seen[got] = text
	}
}

func TestRefusesWhatIsNotOneFeature(t *testing.T) {
	for name, f := range map[string]*nfdv1alpha1.Features{
		"None":    {},
		"Two":     decode(t, `{"flags":{"f":{},"g":{}}}`),
		"TwoMaps": decode(t, `{"flags":{"f":{}},"attributes":{"f":{}}}`),
		"NotUTF8": {Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{"f": {Elements: map[string]string{"a": "\xff"}}}},
	} {
		if got, err := Name(f); err == nil {
			t.Errorf("%s: %q, want an error", name, got)
		}
	}
}

func TestVerify(t *testing.T) {
	f := decode(t, `{"flags":{"f":{"elements":{"a":{}}}}}`)
	name, err := Name(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(name, f); err != nil {
		t.Error(err)
	}
	if err := Verify(name, decode(t, `{"flags":{"f":{"elements":{"b":{}}}}}`)); err == nil || errors.Is(err, ErrVersion) {
		t.Errorf("other features: %v, want an error that is not about the version", err)
	}
	for _, other := range []string{"", "x", "a-v1-", "-v1-" + name[len(name)-digestLength:], strings.Replace(name, "-v1-", "-v2-", 1), strings.ToUpper(name), name[1:] + "0"} {
		if err := Verify(other, f); !errors.Is(err, ErrVersion) {
			t.Errorf("%q: %v, want ErrVersion", other, err)
		}
	}
}

func FuzzName(f *testing.F) {
	f.Add("kernel.config", "A", "y", "é", "𐀀")
	f.Add("x", "\ue000", "\U00010000", "a\x00\"\\\n\x7f", "\u2028")
	f.Fuzz(func(t *testing.T, feature, key, value, key2, value2 string) {
		features := &nfdv1alpha1.Features{Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{
			feature: {Elements: map[string]string{key: value, key2: value2}},
		}}
		name, err := Name(features)
		if !utf8.ValidString(feature + "\x00" + key + "\x00" + value + "\x00" + key2 + "\x00" + value2) {
			if err == nil && !utf8.ValidString(value2) { // an equal key may hide an invalid value
				t.Error("a name for invalid UTF-8")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
			t.Errorf("%q: %v", name, errs)
		}
		if err := Known(name); err != nil {
			t.Error(err)
		}
		// The canonical form must be JSON with the same value.
		var c canonical
		c.features(features)
		var back nfdv1alpha1.Features
		if err := json.Unmarshal(c, &back); err != nil {
			t.Fatalf("%v\n%s", err, c)
		}
		if err := Verify(name, &back); err != nil {
			t.Error(err)
		}
		// Keys must be ordered by their code units.
		if got, want := compareUTF16(key, key2), slices.Compare(utf16.Encode([]rune(key)), utf16.Encode([]rune(key2))); got != want {
			t.Errorf("%q and %q compare as %d, want %d", key, key2, got, want)
		}
	})
}

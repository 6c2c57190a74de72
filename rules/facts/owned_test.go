package facts

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// TestFactsDoNotReferToTheTextTheyAreDecodedFrom decodes, overwrites the memory of the text, and reads everything. Columns with one
// distinct value once were parts of the text, and got the values of the next event of a watch.
func TestFactsDoNotReferToTheTextTheyAreDecodedFrom(t *testing.T) {
	rows := func(n, distinct int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(`{"attributes":{"card":"model-%d","sometimes":"v%d"}}`, i%distinct, i%distinct)
			if i > 0 {
				list[i] = strings.ReplaceAll(list[i], `,"sometimes":"v0"`, "")
			}
		}
		return `{"instances":{"vendor.card":{"elements":[` + strings.Join(list, ",") + `]}}}`
	}
	for name, tc := range map[string]struct{ text, encoded string }{
		"OneInstance":     {rows(1, 1), ""},
		"EqualInstances":  {rows(20, 1), ""},
		"SomeDistinct":    {rows(20, 3), ""},
		"AllDistinct":     {rows(20, 20), ""},
		"Wide":            {rows(2000, 1000), ""},
		"Empty":           {`{"instances":{"a.b":{"elements":[{"attributes":{"x":""}}]}},"attributes":{"a.c":{"elements":{"":""}}}}`, ""},
		"Escaped":         {`{"instances":{"a.b":{"elements":[{"attributes":{"\u0061x":"\u0062y"}}]}}}`, ""},
		"OneAttribute":    {`{"attributes":{"kernel.version":{"elements":{"full":"6.1.0"}}}}`, ""},
		"Attributes":      {`{"attributes":{"kernel.version":{"elements":{"full":"6.1.0","major":"6"}}}}`, ""},
		"OneFlag":         {`{"flags":{"cpu.cpuid":{"elements":{"AVX512F":{}}}}}`, ""},
		"Flags":           {`{"flags":{"cpu.cpuid":{"elements":{"AVX512F":{},"AES":{}}}}}`, ""},
		"EncodedInstance": {`{}`, `{"network.virtual":[{"name":"veth0"}]}`},
		"Encoded":         {`{"flags":{"a.b":{"elements":{"c":{}}}}}`, `{"network.virtual":[{"name":"veth0"},{"name":"veth1"}],"usb.device":[{"vendor":"046d"}]}`},
	} {
		for shared, in := range map[string]*Interner{"Shared": NewInterner(), "Alone": nil} {
			t.Run(name+shared, func(t *testing.T) {
				want, err := DecodeWith(strings.Clone(tc.text), strings.Clone(tc.encoded), nil)
				if err != nil {
					t.Fatal(err)
				}
				text, encoded := []byte(tc.text), []byte(tc.encoded)
				got, err := DecodeWith(unsafe.String(unsafe.SliceData(text), len(text)), unsafe.String(unsafe.SliceData(encoded), len(encoded)), in)
				if err != nil {
					t.Fatal(err)
				}
				for _, memory := range [][]byte{text, encoded} {
					for i := range memory {
						memory[i] = 0xAA
					}
				}
				if diff := cmp.Diff(want.Features(), got.Features()); diff != "" {
					t.Errorf("after the text was overwritten (-before +after):\n%s", diff)
				}
			})
		}
	}
}

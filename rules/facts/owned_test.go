package facts

import (
	"fmt"
	"math/rand/v2"
	"runtime"
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

// TestWhatWasDecodedBeforeDoesNotMatter compares an Interner that has decoded other objects with none. The text of a set in
// spec.features was once accepted in spec.encodedInstances, and the other way round, if another object had it at its place, and the
// elements of known sets did not count for the limit.
func TestWhatWasDecodedBeforeDoesNotMatter(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	large := `{"elements":{` + strings.Trim(strings.Repeat(`"":{},`, maxElements/2+1), ",") + `}}`
	sets := []string{
		"null", "{}", "[]", "7", `{"elements":null}`, `{"elements":[]}`, `{"elements":{}}`, `{"elements":{"a":null}}`, `{"elements":{"a":{}}}`,
		`{"elements":{"a":"b"}}`, `{"elements":[{"attributes":{"a":"b"}}]}`, `{"elements":[{"attributes":{"a":"b"}},{}]}`, `{"elements":[{"a":"b"}]}`,
		`[{"a":"b"}]`, `[{"a":"b"},{}]`, `[{"a":null}, {"a":"b"}]`, `[{"attributes":{"a":"b"}}]`, `[{"attributes":"b"}]`, `[{"elements":"b"}]`,
	}
	pick := func() string {
		if random.IntN(300) == 0 {
			return large
		}
		return sets[random.IntN(len(sets))]
	}
	member := func(name string) string { return fmt.Sprintf(`%q:{"a.b":%s,"a.c":%s}`, name, pick(), pick()) }
	in := NewInterner()
	var kept []*Facts // an Interner forgets what nothing uses
	accepted, refused := 0, 0
	for range 20_000 {
		var members []string
		for _, name := range []string{"flags", "attributes", "instances"} {
			if random.IntN(3) == 0 {
				members = append(members, member(name))
			}
		}
		text, encoded := "{"+strings.Join(members, ",")+"}", ""
		if random.IntN(2) == 0 {
			encoded = fmt.Sprintf(`{"a.b":%s}`, pick())
		}
		want, errAlone := DecodeWith(text, encoded, nil)
		got, err := DecodeWith(text, encoded, in)
		if fmt.Sprint(err) != fmt.Sprint(errAlone) {
			t.Fatalf("%.500s and %.500s:\nwithout an Interner: %v\nwith one: %v", text, encoded, errAlone, err)
		}
		if err != nil {
			refused++
			continue
		}
		accepted++
		kept = append(kept, got)
		if diff := cmp.Diff(want.Features(), got.Features()); diff != "" {
			t.Fatalf("%.500s and %.500s (-without an Interner +with):\n%s", text, encoded, diff)
		}
	}
	runtime.KeepAlive(kept)
	if accepted < 1000 || refused < 1000 {
		t.Errorf("%d were accepted and %d refused: the test draws too few of one kind", accepted, refused)
	}
}

package facts

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

const small = `{
	"flags": {"cpu.cpuid": {"elements": {"AVX": {}, "AES": {}}}},
	"attributes": {
		"kernel.version": {"elements": {"major": "6", "full": "6.1.0-1-amd64"}},
		"cpu.cpuid": {"elements": {"LEVEL": "4"}},
		"rule.matched": {"elements": {"forged": "true"}}
	},
	"instances": {"pci.device": {"elements": [
		{"attributes": {"vendor": "10de", "class": "0302"}},
		{"attributes": {"vendor": "15b3"}},
		{"attributes": {"vendor": "10de", "class": "0302"}}
	]}}
}`

func TestDecode(t *testing.T) {
	f := decode(t, small, nil)
	cpu, pci := f.Feature("cpu.cpuid"), f.Feature("pci.device")
	if diff := cmp.Diff([]string{"cpu.cpuid", "kernel.version", "pci.device"}, f.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"AES", "AVX"}, cpu.Flags.Names()); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
	if v, ok := cpu.Attributes.Get("LEVEL"); v != "4" || !ok {
		t.Errorf("LEVEL is %q, %v", v, ok)
	}
	if v, ok := pci.Instances.Get(1, "class"); ok {
		t.Errorf("the second device has the class %q", v)
	}
	want := []map[string]string{{"vendor": "10de", "class": "0302"}, {"vendor": "15b3"}, {"vendor": "10de", "class": "0302"}}
	if diff := cmp.Diff(want, pci.Instances.Select(nil)); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[1], pci.Instances.Instance(1)); diff != "" {
		t.Errorf("second instance (-want +got):\n%s", diff)
	}
	if f.Feature("Cpu.cpuid") != nil || pci.Flags != nil {
		t.Error("found a feature that is not there")
	}
}

func TestDecodeLikeEncodingJSON(t *testing.T) {
	tests := map[string]string{
		"Null":                 `null`,
		"Empty":                `{}`,
		"NullTypes":            `{"flags": null, "attributes": null, "instances": null}`,
		"NullSets":             `{"flags": {"a": null}, "attributes": {"b": null}, "instances": {"c": null}}`,
		"NullElements":         `{"flags": {"a": {"elements": null}}, "instances": {"c": {"elements": [null, {"attributes": null}, {}]}}}`,
		"NullFlagAndValue":     `{"flags": {"a": {"elements": {"x": null}}}, "attributes": {"b": {"elements": {"y": null}}}}`,
		"UnknownMembers":       `{"more": [1, {"a": []}], "flags": {"a": {"elements": {"x": {"y": 1}}, "z": "elements"}}}`,
		"Escapes":              `{"attributes": {"\u0061.b": {"elements": {"\"\\\/\b\f\n\r\t": "\u00e9\ud83d\ude00\ud800x\udc00"}}}}`,
		"DuplicateElement":     `{"attributes": {"a": {"elements": {"x": "1", "w": "0", "x": "2"}}}}`,
		"DuplicateFlag":        `{"flags": {"a": {"elements": {"x": {}, "x": {}}}}}`,
		"DuplicateFeature":     `{"attributes": {"a": {"elements": {"x": "1"}}, "a": {"elements": {"y": "2"}}}}`,
		"DuplicateType":        `{"flags": {"a": {"elements": {"x": {}}}}, "flags": {"b": {"elements": {"y": {}}}}}`,
		"DuplicateElements":    `{"flags": {"a": {"elements": {"x": {}}, "elements": {"y": {}}}}}`,
		"DuplicateInInstance":  `{"instances": {"a": {"elements": [{"attributes": {"x": "1", "x": "2"}}]}}}`,
		"EmptyNames":           `{"flags": {"": {"elements": {"": {}}}}, "attributes": {"": {"elements": {"": ""}}}}`,
		"Unsorted":             `{"attributes": {"b": {"elements": {"z": "1", "a": "2"}}, "a": {"elements": {}}}}`,
		"RuleMatched":          `{"flags": {"rule.matched": {"elements": {"x": {}}}, "system.name": {"elements": {"y": {}}}}}`,
		"OneNameOfThreeTypes":  `{"flags": {"a": {"elements": {"f": {}}}}, "attributes": {"a": {"elements": {"k": "v"}}}, "instances": {"a": {"elements": []}}}`,
		"ControlCharacters":    `{"flags": {"a": {"elements": {"\u0000\n=/..": {}}}}}`,
		"ErrNotJSON":           `nonsense`,
		"ErrNothing":           ``,
		"ErrTruncated":         `{"flags": {"a": {"elements": {"x": {}`,
		"ErrTruncatedString":   `{"flags": {"a": {"elements": {"x`,
		"ErrTrailing":          `{} {}`,
		"ErrComma":             `{"flags": {"a": {"elements": {"x": {},}}}}`,
		"ErrBracket":           `{"flags": {"a": {"elements": {"x": {}]}}}`,
		"ErrNumberForString":   `{"attributes": {"a": {"elements": {"x": 1}}}}`,
		"ErrNumberForFlag":     `{"flags": {"a": {"elements": {"x": 1}}}}`,
		"ErrObjectForArray":    `{"instances": {"a": {"elements": {}}}}`,
		"ErrStringForSet":      `{"flags": {"a": "b"}}`,
		"ErrNewlineInString":   "{\"flags\": {\"a\nb\": null}}",
		"ErrBadEscape":         `{"flags": {"\x": null}}`,
		"ErrBadUnicodeEscape":  `{"flags": {"\u00zz": null}}`,
		"ErrUnknownNotJSON":    `{"more": [1,], "flags": {}}`,
		"ErrBadLiteral":        `{"flags": nul}`,
		"ErrSignInUnicode":     `{"flags": {"\u+123": null}}`,
		"ErrMissingColon":      `{"flags" {}}`,
		"ErrMissingValueInMap": `{"attributes": {"a": {"elements": {"x":}}}}`,
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) { compareWithEncodingJSON(t, text) })
	}
}

// compareWithEncodingJSON decodes a string twice with one Interner, because the second time uses the table of known JSON strings, and
// compares the results with those of encoding/json.
func compareWithEncodingJSON(t *testing.T, text string) {
	t.Helper()
	var want nfdv1alpha1.Features
	wantErr := json.Unmarshal([]byte(text), &want)
	in := NewInterner()
	for range 2 {
		got, err := Decode(text, in)
		if (err != nil) != (wantErr != nil) {
			t.Fatalf("got error %v, encoding/json has %v", err, wantErr)
		}
		if err != nil {
			continue
		}
		if diff := cmp.Diff(New(&want, nil).Features(), got.Features()); diff != "" {
			t.Errorf("encoding/json has - , Decode +:\n%s", diff)
		}
		if !sameSets(got, New(&want, in)) {
			t.Error("Decode and New make different sets of equal features")
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	elements := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"%x":{}`, i)
		}
		return `{"flags":{"a":{"elements":{` + b.String()[1:] + `}}}}`
	}
	tests := map[string]struct{ text, want string }{
		"TooManyCells": {`{"instances":{"a":{"elements":[` + numbered(10_000, func(int) string {
			return `{"attributes":{` + numbered(50, func(j int) string { return fmt.Sprintf(`"%x":""`, j) }) + `}}`
		}) + `]}}}`, "bytes"},
		"NotUTF8":         {"{\"flags\":{\"\xff\":null}}", "UTF-8"},
		"TooLarge":        {strings.Repeat(" ", maxBytes) + "{}", "bytes"},
		"TooManyElements": {elements(maxElements + 1), "elements"},
		"TooDeep":         {`{"more":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`, "deep"},
		"TooDeepInFlag":   {`{"flags":{"a":{"elements":{"x":` + strings.Repeat("{\"a\":", 100) + "1" + strings.Repeat("}", 100) + `}}}}`, "deep"},
		"EndsInAnEscape":  {`{"flags":{"a\`, "end"},
		"EndsInAText":     {`{"flags":{"a\n`, "end"},
		"EndsInHex":       {`{"flags":{"a\u12`, "hexadecimal"},
		"UnknownEscape":   {`{"flags":{"a\x`, "escape"},
		"NamesTheSet":     {`{"flags":{"cpu.cpuid":{"elements":7}}}`, `"cpu.cpuid"`},
	}
	if _, err := Decode(elements(maxElements), NewInterner()); err != nil {
		t.Errorf("as many elements as allowed: %v", err)
	}
	if _, err := Decode(strings.Repeat(" ", maxBytes-len("{}"))+"{}", nil); err != nil {
		t.Errorf("as many bytes as allowed: %v", err)
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Decode(tc.text, NewInterner())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one about %q", err, tc.want)
			}
		})
	}
}

func TestDecodeWithEncodedInstances(t *testing.T) {
	f, err := DecodeWith(small, `{"usb.device": [{"vendor": "046d"}, null, {}], "pci.device": null, "rule.matched": []}`, NewInterner())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"cpu.cpuid", "kernel.version", "pci.device", "usb.device"}, f.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if n := f.Feature("pci.device").Instances.Len(); n != 3 {
		t.Errorf("%d PCI devices, want the three of spec.features", n)
	}
	same, err := Decode(`{"instances": {"usb.device": {"elements": [{"attributes": {"vendor": "046d"}}, {}, {}]}}}`, NewInterner())
	if err != nil || !reflect.DeepEqual(f.Features().Instances["usb.device"], same.Features().Instances["usb.device"]) {
		t.Errorf("USB devices %v, want %v; %v", f.Features().Instances["usb.device"], same.Features().Instances["usb.device"], err)
	}
	for name, encoded := range map[string]string{
		"NotAnObject": `[]`, "Truncated": `{"usb.device": [{"vendor": "046d"}`, "NotUTF8": "{\"\xff\": null}", "NotAList": `{"usb.device": {"elements": []}}`,
		"NotAString": `{"usb.device": [{"vendor": 1}]}`, "MoreMembers": `{}, "attributes": {"system.name": {"elements": {"nodename": "other"}}}`, "TooLarge": `{}` + strings.Repeat(" ", maxBytes),
	} {
		if f, err := DecodeWith(small, encoded, NewInterner()); err == nil {
			t.Errorf("%s: no error, and the features %q", name, f.Names())
		}
	}
}

// TestSurvivesHostileShapes decodes input that would take disproportionate memory in a naive representation.
func TestSurvivesHostileShapes(t *testing.T) {
	instances := func(n int, one func(i int) string) string {
		list := make([]string, n)
		for i := range list {
			list[i] = `{"attributes":{` + one(i) + `}}`
		}
		return `{"instances":{"a.b":{"elements":[` + strings.Join(list, ",") + `]}}}`
	}
	tests := map[string]string{
		"OneAttributeOfItsOwnEach":   instances(50_000, func(i int) string { return fmt.Sprintf(`"%x":""`, i) }),
		"EmptyInstances":             instances(100_000, func(int) string { return "" }),
		"DifferentValues":            instances(40_000, func(i int) string { return fmt.Sprintf(`"a":"%x"`, i) }),
		"AttributeOfTheLastInstance": instances(10_000, func(i int) string { return strings.Repeat(`"a":"x"`, i/9_999) }),
		"HundredThousandFlags":       `{"flags":{"a.b":{"elements":{` + numbered(100_000, func(i int) string { return fmt.Sprintf(`"%x":{}`, i) }) + `}}}}`,
		"HundredThousandAttributes":  `{"attributes":{"a.b":{"elements":{` + numbered(100_000, func(i int) string { return fmt.Sprintf(`"%x":"y"`, i) }) + `}}}}`,
		"FiftyAttributesEach": instances(2_000, func(i int) string {
			return numbered(50, func(j int) string { return fmt.Sprintf(`"%d":"%x"`, j, i*j%97) })
		}),
		"OneLargeValue": `{"attributes":{"a.b":{"elements":{"x":"` + strings.Repeat("y", 1<<20) + `"}}}}`,
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			f := decode(t, text, NewInterner())
			runtime.GC()
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
				t.Errorf("%d bytes of JSON take %d bytes", len(text), grown)
			}
			if len(f.Names()) != 1 {
				t.Errorf("got features %v", f.Names())
			}
			out, err := json.Marshal(f.Features())
			if err != nil {
				t.Fatal(err)
			}
			if again := decode(t, string(out), nil); !cmp.Equal(f.Features(), again.Features()) {
				t.Error("printing and reading again gives something else")
			}
		})
	}
}

// numbered returns a JSON object of n members.
func numbered(n int, one func(i int) string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = one(i)
	}
	return strings.Join(list, ",")
}

func TestSharesEqualSets(t *testing.T) {
	in := NewInterner()
	a, b := decode(t, small, in), decode(t, strings.ReplaceAll(small, "\t", ""), in)
	if !sameSets(a, b) {
		t.Error("strings that differ only in blanks are not shared")
	}
	other := decode(t, strings.ReplaceAll(small, "15b3", "8086"), in)
	if a.Feature("pci.device") == other.Feature("pci.device") || a.Feature("cpu.cpuid") != other.Feature("cpu.cpuid") {
		t.Error("identity does not follow content")
	}
	if a.Feature("pci.device").ID() == other.Feature("pci.device").ID() {
		t.Error("different features have one id")
	}
	made := in.Instances(NewInstances(a.Feature("pci.device").Instances.Select(nil)))
	if made != a.Feature("pci.device").Instances {
		t.Error("a list made by hand is not shared with an equal one that was read")
	}
	runtime.KeepAlive(a)
}

func TestForgetsWhatIsNoLongerUsed(t *testing.T) {
	in := NewInterner()
	for i := range 20 * firstSweep {
		decode(t, fmt.Sprintf(`{"attributes":{"system.name":{"elements":{"nodename":"node-%d"}}}}`, i), in)
		if i%firstSweep == 0 {
			runtime.GC()
		}
	}
	runtime.GC()
	// With two more rounds, each table reaches its next sweep.
	for i := range 8 * firstSweep {
		decode(t, fmt.Sprintf(`{"attributes":{"system.name":{"elements":{"nodename":"other-%d"}}}}`, i), in)
		if i%firstSweep == 0 {
			runtime.GC()
		}
	}
	for name, n := range map[string]int{"attributes": len(in.attributes.entries), "strings": len(in.attributeTexts.entries), "features": len(in.features.entries)} {
		if n > 6*firstSweep {
			t.Errorf("the table of %s still has %d entries", name, n)
		}
	}
}

func TestBoundsKnownTexts(t *testing.T) {
	texts := table[int, int]{limit: 1000}
	v := new(int)
	for i := range 10_000 {
		texts.put(i, v)
	}
	if n := len(texts.entries); n > texts.limit {
		t.Errorf("%d entries with a limit of %d", n, texts.limit)
	}
	runtime.KeepAlive(v)
}

func TestInternsConcurrently(t *testing.T) {
	in := NewInterner()
	results := make([]*Facts, 8)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			for range 50 {
				results[i], _ = Decode(small, in)
			}
		})
	}
	wg.Wait()
	for _, f := range results {
		if !sameSets(f, results[0]) {
			t.Fatal("two goroutines got different sets")
		}
	}
}

func TestMerge(t *testing.T) {
	in := NewInterner()
	a := decode(t, small, in)
	b := decode(t, `{
		"flags": {"cpu.cpuid": {"elements": {"AVX": {}, "SSE": {}}}},
		"attributes": {"kernel.version": {"elements": {"major": "7", "extra": "x"}}, "vendor.only": {"elements": {}}},
		"instances": {"pci.device": {"elements": [{"attributes": {"vendor": "15b3"}}]}}
	}`, in)
	m := Merge(in, a, b)
	if diff := cmp.Diff([]string{"AES", "AVX", "SSE"}, m.Feature("cpu.cpuid").Flags.Names()); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
	want := map[string]string{"major": "7", "full": "6.1.0-1-amd64", "extra": "x"}
	if diff := cmp.Diff(want, m.Feature("kernel.version").Attributes.Map()); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if n := m.Feature("pci.device").Instances.Len(); n != 4 {
		t.Errorf("got %d instances, want 4: duplicates are kept", n)
	}
	if m.Feature("vendor.only") != b.Feature("vendor.only") {
		t.Error("a feature that only one publisher has is not shared")
	}
	if len(Merge(in).Names()) != 0 || Merge(in, a) != a {
		t.Error("merging nothing, or one, is not the identity")
	}
}

func TestOverlay(t *testing.T) {
	base := decode(t, small, nil)
	o := NewOverlay(base)
	if o.Feature("cpu.cpuid") != base.Feature("cpu.cpuid") {
		t.Error("an empty overlay hides its base")
	}
	calls := 0
	o.SetFunc("rule.matched", func() *Feature {
		calls++
		return &Feature{Attributes: NewAttributes(map[string]string{"a": "1"})}
	})
	o.Set("cpu.cpuid", nil)
	for range 2 {
		if v, _ := Lookup(o, MakeKey("rule.matched")).Attributes.Get("a"); v != "1" {
			t.Errorf("a is %q", v)
		}
	}
	if calls != 1 {
		t.Errorf("the feature was made %d times", calls)
	}
	if o.Feature("cpu.cpuid") != nil || o.Feature("pci.device") == nil || NewOverlay(nil).Feature("x") != nil {
		t.Error("a hidden feature is seen, or another one is not")
	}
}

func TestNothingIsEmpty(t *testing.T) {
	var f *Facts
	var flags *Flags
	var attributes *Attributes
	var instances *Instances
	_, gotAttribute := attributes.Get("a")
	_, gotInstance := instances.Get(0, "a")
	if f.Feature("a") != nil || flags.Has("a") || gotAttribute || gotInstance || instances.Len() != 0 || len(f.Names()) != 0 {
		t.Error("nil holds something")
	}
	if New(nil, nil).Feature("a") != nil {
		t.Error("no features hold something")
	}
}

// TestFindsAllNames checks the index at sizes around its limits.
func TestFindsAllNames(t *testing.T) {
	for _, n := range []int{0, 1, smallSet, smallSet + 1, 100, 5000} {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprintf("NAME_%d", i)] = fmt.Sprint(i)
		}
		a := NewAttributes(m)
		f := NewFlags(slices.Collect(maps.Keys(m))...)
		for name, want := range m {
			if got, ok := a.GetKey(MakeKey(name)); got != want || !ok || !f.Has(name) {
				t.Fatalf("of %d: %s is %q, %v", n, name, got, ok)
			}
		}
		if f.Has("NAME_") || f.HasKey(MakeKey(fmt.Sprintf("NAME_%d", n))) {
			t.Fatalf("of %d: found a name that is not there", n)
		}
	}
}

// sameSets reports whether two Facts share the same features.
func sameSets(a, b *Facts) bool {
	if a.names != b.names {
		return false
	}
	for i := range a.features {
		if a.features[i] != b.features[i] {
			return false
		}
	}
	return true
}

func decode(t testing.TB, text string, in *Interner) *Facts {
	t.Helper()
	f, err := Decode(text, in)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(`{"flags":{"a":{"elements":{"\u0041\ud800":null}}},"x":[1,2,{"y":"\""}]}`))
	f.Add([]byte(`{"instances":{"a":{"elements":[{"attributes":{"x":"1"}},null]}},"attributes":{"a":null}}`))
	in := NewInterner()
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := Decode(string(raw), in)
		alone, errAlone := Decode(string(raw), nil)
		if (err == nil) != (errAlone == nil) {
			t.Fatalf("with and without an Interner: %v, %v", err, errAlone)
		}
		if err != nil {
			return
		}
		if diff := cmp.Diff(alone.Features(), got.Features()); diff != "" {
			t.Errorf("with and without an Interner (-without +with):\n%s", diff)
		}
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatalf("took %q for JSON: %v", raw, err)
		}
		out, err := json.Marshal(got.Features())
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Decode(string(out), in); err != nil || !sameSets(got, again) {
			t.Errorf("printing and reading again gives something else: %v", err)
		}
	})
}

// TestInstancesEndWhereTheyEnd checks rows at the ends of lists, and nil lists.
func TestInstancesEndWhereTheyEnd(t *testing.T) {
	s := NewInstances([]map[string]string{{"a": "0"}, {"a": "1"}})
	for row, want := range map[int]string{-1: "", 0: "0", 1: "1", 2: ""} {
		if got, ok := s.Get(row, "a"); got != want || ok != (want != "") {
			t.Errorf("row %d has %q, %t, want %q", row, got, ok, want)
		}
	}
	if got := s.Select(nil); len(got) != 2 || got[1]["a"] != "1" {
		t.Errorf("all rows are %v", got)
	}
	if got := (*Instances)(nil).Select(nil); got != nil {
		t.Errorf("the rows of nothing are %v", got)
	}
}

// TestEqualMeansAllOfIt checks that lists with equal hashes are compared completely, because hashes can collide.
func TestEqualMeansAllOfIt(t *testing.T) {
	of := func(rows ...map[string]string) *Instances { return NewInstances(rows) }
	s := of(map[string]string{"a": "1", "b": "2"}, map[string]string{"a": "3"})
	for name, o := range map[string]*Instances{
		"another value":   of(map[string]string{"a": "1", "b": "9"}, map[string]string{"a": "3"}),
		"another row":     of(map[string]string{"a": "1"}, map[string]string{"a": "3", "b": "2"}),
		"one row more":    of(map[string]string{"a": "1", "b": "2"}, map[string]string{"a": "3"}, map[string]string{}),
		"values swapped":  of(map[string]string{"a": "3", "b": "2"}, map[string]string{"a": "1"}),
		"another element": of(map[string]string{"a": "1", "c": "2"}, map[string]string{"a": "3"}),
	} {
		o.names = map[bool]*names{true: o.names, false: s.names}[name == "another element"]
		if s.equal(o) {
			t.Errorf("%s makes no difference", name)
		}
	}
}

func TestMembersAndStrings(t *testing.T) {
	got := map[string]string{}
	collect := func(name, value string) error {
		got[name] = value
		return nil
	}
	if err := Members(` {"a": {"b": "}"} , "c":"\"d\"","e" : null} `, collect); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a": `{"b": "}"}`, "c": `"\"d\""`, "e": "null"}, got); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	for _, text := range []string{`[]`, `{"a":`, `{"a": 1} x`, `{"a" 1}`, ``} {
		if Members(text, collect) == nil {
			t.Errorf("%s: no error", text)
		}
	}
	for text, want := range map[string]string{`"a\"\u00e4"`: `a"ä`, " " + `""` + " ": "", `null`: ""} {
		if got, err := String(text); got != want || err != nil {
			t.Errorf("%s is %q, error %v", text, got, err)
		}
	}
	for _, text := range []string{`1`, `"a`, `"a" b`, ``} {
		if got, err := String(text); err == nil {
			t.Errorf("%s is %q, want an error", text, got)
		}
	}
}

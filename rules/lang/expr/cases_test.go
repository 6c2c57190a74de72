package expr

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// machine is an Env for tests.
type machine struct {
	node     Node
	vars     map[string]Value
	features map[string]Value
	matched  map[string]Value
	item     Value
	left     int // steps
}

func (m *machine) Spend(steps int) bool                 { m.left -= steps; return m.left >= 0 }
func (m *machine) Node() Node                           { return m.node }
func (m *machine) Var(name string) (Value, bool)        { v, ok := m.vars[name]; return v, ok }
func (m *machine) Feature(feature string) (Value, bool) { v, ok := m.features[feature]; return v, ok }
func (m *machine) Matched(feature string) (Value, bool) { v, ok := m.matched[feature]; return v, ok }
func (m *machine) Item() Value                          { return m.item }

func (m *machine) Element(feature, element string) (Value, bool) {
	switch f := m.features[feature]; f.Kind() {
	case MapKind:
		return f.Map().Get(element)
	case ListKind:
		flags, _ := f.List().(Names)
		return OfBool(true), slices.Contains(flags, element)
	}
	return Value{}, false
}

// newMachine returns the node for the cases with data as in Kubernetes.
func newMachine(name string) *machine {
	return &machine{
		node: Node{Name: name, Labels: map[string]string{"topology.kubernetes.io/zone": "eu-1"}},
		vars: map[string]Value{
			"rack": OfText("3"), "unit": OfText("07"), "location.u": OfText("014"), "my-feat": OfText("on"),
			"serial": OfText("000123"), "u": OfText("abc"),
			"gpus": OfList(Names{"a100", "h100"}), "unset": {},
		},
		features: map[string]Value{
			"kernel.version":   OfMap(Texts{"major": "6", "minor": "8"}),
			"memory.numa":      OfMap(Texts{"node_count": "2"}),
			"system.osrelease": OfMap(Texts{"VERSION_ID.major": "24"}),
			"local.label":      OfMap(Texts{"my-feat.x/y": "z"}),
			"pci.device":       OfList(Values{OfMap(Texts{"vendor": "8086", "class": "0200"})}),
			"cpu.cpuid":        OfList(Names{"AVX", "SSE4"}),
			"usb.device":       OfList(nil),
			"system.dmiid": OfMap(Dict{"sys_vendor": OfText("Dell Inc."), "product_serial": OfMasked(),
				"product_name": OfText("PowerEdge R640 (Größe 2)")}),
		},
		matched: map[string]Value{"pci.device": OfList(Values{OfMap(Texts{"vendor": "10de"})})},
		left:    10_000,
	}
}

func (m *machine) scope() *Scope {
	s := &Scope{Vars: map[string]bool{}, Metadata: true}
	for name := range m.vars {
		s.Vars[name] = true
	}
	return s
}

// lines decodes a file with one JSON object per line.
func lines[T any](t testing.TB, path string) []T {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list []T
	for s := bufio.NewScanner(f); s.Scan(); {
		var v T
		if err := json.Unmarshal(s.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		list = append(list, v)
	}
	return list
}

func TestAttributeExpressionCases(t *testing.T) {
	type testcase struct {
		ID, Node, Text, Want string
		Vars                 map[string]string
		Error                bool
	}
	for _, tc := range lines[testcase](t, "testdata/expressions.jsonl") {
		t.Run(tc.ID, func(t *testing.T) {
			if tc.Text == "(empty)" {
				tc.Text = ""
			}
			m := &machine{node: Node{Name: tc.Node}, vars: map[string]Value{}, left: 1000}
			for name, value := range tc.Vars {
				m.vars[name] = OfText(value)
			}
			text, problems := Compile(tc.Text, Strict, Auto, m.scope())
			var got string
			var err error
			if text == nil {
				err = problems[0]
			} else {
				got, err = text.Format(m)
			}
			if tc.Error {
				if err == nil {
					t.Fatalf("%q is %q, want an error", tc.Text, got)
				}
				return
			}
			if err != nil || got != tc.Want {
				t.Errorf("%q is %q, %v, want %q", tc.Text, got, err, tc.Want)
			}
		})
	}
}

func TestKubernetesCases(t *testing.T) {
	type testcase struct {
		ID, Node, Place, Text string
		Want, Denied, Missing *string
		Hint                  string
	}
	places := map[string]Place{"label": Strict, "key": Strict, "resource": Strict, "annotation": Free}
	for _, tc := range lines[testcase](t, "testdata/kubernetes.jsonl") {
		t.Run(tc.ID, func(t *testing.T) {
			m := newMachine(tc.Node)
			text, problems := Compile(tc.Text, places[tc.Place], Auto, m.scope())
			if tc.Denied != nil {
				if text != nil {
					t.Fatalf("%q was accepted", tc.Text)
				}
				if got := problems[0].Error(); !strings.HasPrefix(got, *tc.Denied) {
					t.Errorf("%q: got %q, want %q", tc.Text, got, *tc.Denied)
				}
				return
			}
			if text == nil {
				t.Fatalf("%q was refused: %v", tc.Text, problems)
			}
			got, err := text.Format(m)
			if tc.Missing != nil {
				var e *Error
				if !errors.As(err, &e) || !e.Missing || e.Message != *tc.Missing {
					t.Errorf("%q: got %q, %v, want missing: %s", tc.Text, got, err, *tc.Missing)
				}
				return
			}
			if err != nil || got != *tc.Want {
				t.Errorf("%q is %q, %v, want %q", tc.Text, got, err, *tc.Want)
			}
			if diff := cmp.Diff(tc.Hint, TemplateHint(tc.Text)); diff != "" {
				t.Errorf("hint (-want +got):\n%s", diff)
			}
		})
	}
}

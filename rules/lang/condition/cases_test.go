package condition

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/lang/args"
	"github.com/assay-project/assay/rules/lang/expr"
)

// machine is the node that the cases are evaluated on.
type machine struct {
	features map[string]expr.Value
	left     int // steps
}

func newMachine() *machine {
	return &machine{
		features: map[string]expr.Value{
			"cpu.x": expr.OfMap(expr.Texts{
				"count": "4", "arch": "x86_64", "vendor": "Dell Inc.", "product": "PowerEdge R640", "bmc": "192.168.1.100",
				"mem": "8192", "empty": "", "t": "true", "yes": "yes", "zero": "0",
			}),
			"net.dev": expr.OfList(expr.Values{
				expr.OfMap(expr.Texts{"name": "eth0", "speed": "1000"}),
				expr.OfMap(expr.Texts{"name": "eth1", "speed": "25000"}),
			}),
			"none.dev":  expr.OfList(nil),
			"cpu.flags": expr.OfList(expr.Names{"AVX", "SSE4"}),
			"large.dev": expr.OfList(make(expr.Values, 300)),
		},
		left: 10_000,
	}
}

func (m *machine) Spend(steps int) bool          { m.left -= steps; return m.left >= 0 }
func (m *machine) Node() expr.Node               { return expr.Node{Name: "node-1"} }
func (m *machine) Var(string) (expr.Value, bool) { return expr.Value{}, false }
func (m *machine) Feature(feature string) (expr.Value, bool) {
	v, ok := m.features[feature]
	return v, ok
}
func (m *machine) Matched(string) (expr.Value, bool) { return expr.Value{}, false }
func (m *machine) Item() expr.Value                  { return expr.Value{} }
func (m *machine) Element(f, element string) (expr.Value, bool) {
	if f := m.features[f].Map(); f != nil {
		return f.Get(element)
	}
	return expr.Value{}, false
}

func compile(t *testing.T, in nfdv1alpha1.Condition) (*Condition, *args.Compiler) {
	t.Helper()
	c := &args.Compiler{Scope: &expr.Scope{Metadata: true}}
	return Compile(c, field.NewPath("conditions").Index(0), in), c
}

func TestConditionCases(t *testing.T) {
	type testcase struct {
		nfdv1alpha1.Condition
		ID    string `json:"id"`
		Want  *bool  `json:"want"`
		Error string `json:"error"`
	}
	f, err := os.Open("testdata/conditions.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var tc testcase
		if err := json.Unmarshal(s.Bytes(), &tc); err != nil {
			t.Fatal(err)
		}
		t.Run(tc.ID, func(t *testing.T) {
			c, ac := compile(t, tc.Condition)
			var got bool
			var err error = ac.Errors.ToAggregate()
			if c != nil {
				got, err = c.Eval(newMachine())
				if trace := c.Trace(newMachine()); trace.OK != got || (trace.Error != "") != (err != nil) {
					t.Errorf("Trace says %+v, Eval %v, %v", trace, got, err)
				}
			}
			if tc.Error != "" {
				if want := strings.TrimPrefix(tc.Error, "ERROR "); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, %v, want the error %s", got, err, want)
				}
				return
			}
			if err != nil && c != nil || c == nil {
				t.Fatalf("error: %v", err)
			}
			if got != *tc.Want {
				t.Errorf("got %v, want %v", got, *tc.Want)
			}
		})
	}
}

package match

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
)

var update = flag.Bool("update", false, "write what is, instead of comparing with what should be; read the diff")

// outcome is the content of result.yaml.
type outcome struct {
	OK       bool      `json:"ok"`
	Why      string    `json:"why,omitempty"`
	Error    string    `json:"error,omitempty"`
	Problems []string  `json:"problems,omitempty"`
	Matched  []matched `json:"matched,omitempty"`
	// Strict is the outcome with --nfd-strict, if it differs.
	Strict *outcome `json:"strict,omitempty"`
}

type matched struct {
	Feature  string           `json:"feature"`
	Elements []map[string]any `json:"elements"`
}

// TestData evaluates terms.yaml on facts.yaml in each directory of testdata and compares the result with result.yaml.
func TestData(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join("testdata", "*", "terms.yaml"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no cases, %v", err)
	}
	for _, file := range dirs {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			var terms nfdv1alpha1.FeatureMatcher
			var features nfdv1alpha1.Features
			readYAML(t, file, &terms)
			readYAML(t, filepath.Join(dir, "facts.yaml"), &features)
			src := facts.New(&features, nil)
			got := evaluate(t, termsOf(terms), src, false)
			if strict := evaluate(t, termsOf(terms), src, true); !cmp.Equal(got, strict) {
				got.Strict = strict
			}
			compareGolden(t, filepath.Join(dir, "result.yaml"), got)
		})
	}
}

func evaluate(t *testing.T, terms []Term, src facts.Source, strict bool) *outcome {
	t.Helper()
	m := compile(t, terms, Options{Strict: strict})
	res, err := m.Eval(src, true)
	out := &outcome{OK: res.OK, Why: m.Why(src)}
	if err != nil {
		out.Error = err.Error()
	}
	for _, problem := range res.Errors {
		out.Problems = append(out.Problems, problem.Error())
	}
	for _, f := range res.Matched {
		part := matched{Feature: f.Feature, Elements: []map[string]any{}}
		for _, e := range f.Elements {
			part.Elements = append(part.Elements, printable(e))
		}
		out.Matched = append(out.Matched, part)
	}
	return out
}

func printable(e Element) map[string]any {
	switch {
	case e.Instance.Exists():
		return map[string]any{"instance": e.Instance.Map()}
	case e.HasValue:
		return map[string]any{"name": e.Name, "value": e.Value}
	}
	return map[string]any{"name": e.Name}
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func compareGolden(t *testing.T, file string, got *outcome) {
	t.Helper()
	text, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(text)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func FuzzCompileAndEval(f *testing.F) {
	f.Add("cpu.cpuid", "AVX", "InRegexp", "^a(b|c)*", "", `{"flags":{"cpu.cpuid":{"elements":{"AVX":{}}}}}`)
	f.Add("Pci.Device", "class", "Gt", "5", "version", `{"instances":{"pci.device":{"elements":[{"attributes":{"class":"x"}},{"attributes":{"class":"7"}}]}}}`)
	f.Add("a", "b", "In", "c", "float", `{"attributes":{"a":{"elements":{"b":"c"}}}}`)
	f.Fuzz(func(t *testing.T, feature, key, op, value, kind, text string) {
		src, err := facts.Decode(text, nil)
		if err != nil {
			return
		}
		e := &Expr{Op: nfdv1alpha1.MatchOp(op), Value: []string{value}, Type: nfdv1alpha1.ValueType(kind)}
		if value == "" {
			e.Value = nil
		}
		for _, terms := range [][]Term{{{Feature: feature, Expressions: map[string]*Expr{key: e}}}, {{Feature: feature, Name: e}}} {
			for _, strict := range []bool{false, true} {
				m, errs := Compile(nil, terms, Options{Strict: strict})
				if len(errs) > 0 {
					if _, err := json.Marshal(errs.ToAggregate().Error()); err != nil || m != nil {
						t.Errorf("a Matcher beside errors, or %v", err)
					}
					continue
				}
				got, err := m.Eval(src, true)
				compareTrace(t, m, src, got, err)
			}
		}
	})
}

package rules_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/suite"
)

// FuzzCompile compiles arbitrary input and evaluates the rules that compile: nothing may panic, compiled rules must evaluate, and a
// second run must give the same results.
func FuzzCompile(f *testing.F) {
	files, _ := filepath.Glob(filepath.Join("testdata", "cases", "*", "rule.yaml"))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if doc, err := yaml.YAMLToJSON(data); err == nil {
			f.Add(doc)
		}
	}
	some := facts.FromMap(map[string]facts.Feature{
		"cpu.cpuid":      {Flags: facts.NewFlags("AVX", "AVX512F")},
		"kernel.version": {Attributes: facts.NewAttributes(map[string]string{"major": "6", "full": "6.8.0-40-generic"})},
		"pci.device": {Instances: facts.NewInstances([]map[string]string{
			{"class": "0300", "vendor": "10de", "device": "2330"}, {"class": "0200", "vendor": "8086"},
		})},
	}, nil)
	f.Fuzz(func(t *testing.T, data []byte) {
		var obj nfdv1alpha1.NodeFeatureRule
		if json.Unmarshal(data, &obj) != nil {
			return
		}
		for _, opt := range []rules.Options{{}, {Strict: true}, {BuiltIn: true}} {
			set, report := rules.Compile(&obj, opt)
			if _, again := rules.Compile(&obj, opt); text(report) != text(again) {
				t.Fatalf("two reports on one object:\n%s\n%s", text(report), text(again))
			}
			program := rules.Link(opt, set)
			in := rules.Input{Node: rules.Node{Name: "r3u14.example.com", Labels: map[string]string{"a": "b"}}, Facts: some}
			first, second := outcome(t, program.Eval(in)), outcome(t, program.Eval(in))
			if first != second {
				t.Fatalf("two outcomes of one program:\n%s\n%s", first, second)
			}
			program.Trace(in)
		}
	})
}

func text(r *rules.Report) string {
	out := ""
	for _, e := range r.Errors {
		out += e.Error() + "\n"
	}
	for _, w := range r.Warnings {
		out += w.String() + "\n"
	}
	return out
}

func outcome(t *testing.T, o *rules.Outcome) string {
	t.Helper()
	data, err := json.Marshal(suite.Expect(o))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

package suite_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-project/assay/rules/suite"
)

// The project's own cases have the form that users' tests have, and pass.
func TestRunsTheProjectsCases(t *testing.T) {
	tests, err := suite.Find("../testdata/cases")
	if err != nil || len(tests) == 0 {
		t.Fatal(len(tests), err)
	}
	runner := suite.NewRunner()
	for _, test := range tests {
		if r := runner.Run(test, false); r.Failure != "" {
			t.Errorf("%s:\n%s", test.Name, r.Failure)
		}
	}
}

const rule = `
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: o}
spec:
  rules:
  - name: avx
    labels: {example.com/avx: "true"}
    taints: [{key: example.com/t, value: v, effect: NoSchedule}]
    matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AVX: {op: Exists}}}]
`

const features = `flags: {cpu.cpuid: {elements: {AVX: {}}}}`

func TestTables(t *testing.T) {
	tests := map[string]struct {
		test, want string
	}{
		"NamesOnlyWhatItCaresAbout": {test: `{features: [f.yaml], expect: {matched: [o/avx]}}`},
		"HasFactsOfItsOwn":          {test: `{facts: {flags: {cpu.cpuid: {elements: {AVX: {}}}}}, expect: {matched: [o/avx]}}`},
		"FactsAreMergedWithFiles":   {test: `{features: [f.yaml], facts: {flags: {cpu.cpuid: {elements: {SSE: {}}}}}, expect: {matched: [o/avx]}}`},
		"NullMustBeAbsent": {
			test: `{features: [f.yaml], expect: {labels: {example.com/avx: null}}}`,
			want: "- no label example.com/avx\n+ label example.com/avx=true",
		},
		"ExactlyForbidsTheRest": {
			test: `{features: [f.yaml], exactly: true, expect: {labels: {example.com/avx: "true"}, matched: [o/avx]}}`,
			want: "+ taint example.com/t=v:NoSchedule",
		},
		"OtherValueIsADiff": {
			test: `{features: [f.yaml], expect: {labels: {example.com/avx: "false"}}}`,
			want: "- label example.com/avx=false\n+ label example.com/avx=true",
		},
		"MissingRuleIsADiff": {
			test: `{features: [f.yaml], expect: {matched: [o/nope]}}`,
			want: "- matched o/nope\n+ matched o/avx",
		},
		"WithoutFeaturesNothingMatches": {test: `{exactly: true, expect: {}}`},
		"MissingFileIsAFailure":         {test: `{features: [no.yaml], expect: {}}`, want: "no such file"},
		"MisspeltFieldIsAFailure":       {test: `{expekt: {}}`, want: `unknown field "expekt"; did you mean expect?`},
		"ExpectedErrorIsMissing":        {test: `{errors: [boom], expect: {}}`, want: "- error: boom"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{
				"r.yaml": rule, "f.yaml": features, "x.test.yaml": "rules: [r.yaml]\ntests:\n- " + tc.test + "\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			tests, err := suite.Find(dir)
			if err != nil || len(tests) != 1 {
				t.Fatal(len(tests), err)
			}
			got := suite.NewRunner().Run(tests[0], false).Failure
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, tc.want)
			}
		})
	}
}

package suite_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-project/assay/rules/suite"
)

// The cases of this project have the same form as users' tests, and must pass.
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

// Errors in rules must be the same as those of assay lint, with positions, for objects with bases too.
func TestErrorsInRulesAreThoseOfTheReview(t *testing.T) {
	const based = `
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: based}
spec:
  basedOn: [{name: base}]
  rules:
  - name: own
    labels: {example.com/a: "{rakc}"}
`
	const base = `---
apiVersion: assay.dev/v1alpha1
kind: NodeFeatureRuleTemplate
metadata: {name: base}
spec:
  rules:
  - name: bad
    conditions: [{op: matches, args: {value: x, regex: "[bad"}}]
    labels: {example.com/b: "true"}
`
	dir := t.TempDir()
	tests := map[string]struct {
		rules string
		want  []string
	}{
		"Own":         {based + base, []string{`r.yaml:9:31: spec.rules[0].labels[example.com/a]: unknown name rakc`}},
		"OfTheBase":   {based + base, []string{`r.yaml:17:56: spec.rules[0].conditions[0].args.regex: error parsing regexp`}},
		"MissingBase": {based, []string{`r.yaml:6:3: spec.basedOn: `, "it is not among these files"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for file, text := range map[string]string{
				"r.yaml": tc.rules, "x.test.yaml": "rules: [r.yaml]\ntests:\n- {name: x, expect: {}}\n",
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
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("got:\n%s\nwant:\n%s", got, want)
				}
			}
		})
	}
}

package fix_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/fix"
	"github.com/assay-project/assay/rules/manifest"
)

// problems returns the type errors of a NodeFeatureRule.
func problems(text []byte) []manifest.Problem {
	file := manifest.Parse("rules.yaml", text)
	out := file.Problems
	for _, d := range file.Documents {
		if d.Kind == manifest.KindRule {
			out = append(out, d.Decode(&nfdv1alpha1.NodeFeatureRule{})...)
		}
	}
	return out
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Indentation, blank lines, comments with tabs, quotes and the order of keys must not change, in any document.
func TestChangesOnlyWhatItFixes(t *testing.T) {
	in, want := read(t, "forms.in.yaml"), read(t, "forms.out.yaml")
	crlf := func(text []byte) []byte { return bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")) }
	mark := func(text []byte) []byte { return append([]byte("\xef\xbb\xbf"), text...) }
	for name, tc := range map[string]struct{ in, want []byte }{
		"LF": {in, want}, "CRLF": {crlf(in), crlf(want)}, "ByteOrderMark": {mark(in), mark(want)},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := fix.Text("rules.yaml", tc.in, problems)
			if diff := cmp.Diff(string(tc.want), string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if left := problems(got); len(left) > 0 {
				t.Errorf("has errors: %v", left)
			}
			if again, _ := fix.Text("rules.yaml", got, problems); again != nil {
				t.Errorf("there is something to fix again:\n%s", cmp.Diff(string(got), string(again)))
			}
		})
	}
}

const head = `apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: x}
spec:
  rules:
  - name: one
`

func TestFix(t *testing.T) {
	const term = "    matchFeatures:\n    - feature: cpu.cpuid\n      "
	tests := map[string]struct{ in, want string }{ // of a rule; an empty want means no change
		"NestedExpressionsAreNoValues":  {in: term + "matchExpressions: {AVX: [{op: Exists}]}\n"},
		"ListOfExpressions":             {in: term + "matchExpressions: [{AVX: {op: Exists}}]\n"},
		"ListOfLists":                   {in: term + "matchExpressions: [[AVX]]\n"},
		"ListOfNothing":                 {in: term + "matchExpressions: [AVX, {}]\n"},
		"OneNameIsNoMap":                {in: term + "matchExpressions: AVX\n"},
		"MatchOnWithoutMatchers":        {in: "    matchOn: []\n"},
		"MatchOnOfNames":                {in: "    matchOn: [{pciId: [x]}]\n"},
		"MatchOnBesideLabels":           {in: "    labels: {a: b}\n    matchOn: [{loadedKMod: [x]}]\n"},
		"MatchOnWithACommentThatIsLost": {in: "    # which\n    matchOn:\n    - loadedKMod: [x]\n"},
		"FixThatShowsAnotherError":      {in: term + "matchExpressions: {AVX: {op: In, values: [{a: b}]}}\n"},
		"TagIsLeft":                     {in: term + "matchExpressions: {AVX: {op: In, value: !!str 5}}\n"},
		"ACommentBetweenKeyAndValue": {
			in:   term + "matchExpressions:\n        AVX: # why\n        - a\n        - b\n",
			want: term + "matchExpressions:\n        AVX: # why\n          op: In\n          value:\n          - a\n          - b\n",
		},
		"FlowListOverSeveralLines": {
			in:   term + "matchExpressions: {AVX: [\n        a, # first\n        \"b]\", 'it''s ]', c\n      ]}\n",
			want: term + "matchExpressions: {AVX: {op: In, value: [\n        a, # first\n        \"b]\", 'it''s ]', c\n      ]}}\n",
		},
		"WideCharactersBefore": {
			in:   term + "matchExpressions: {\"Äß\U0001f600\": a, B: {op: In, values: [x]}}\n",
			want: term + "matchExpressions: {\"Äß\U0001f600\": {op: In, value: [\"a\"]}, B: {op: In, value: [x]}}\n",
		},
		"SharedByAnAlias": {
			in:   term + "matchExpressions: &m\n        AVX: a\n    - feature: cpu.cpuid\n      matchExpressions: *m\n",
			want: term + "matchExpressions: &m\n        AVX: {op: In, value: [\"a\"]}\n    - feature: cpu.cpuid\n      matchExpressions: *m\n",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, notes := fix.Text("rules.yaml", []byte(head+tc.in), problems)
			if tc.want == "" {
				if got != nil || notes != nil {
					t.Errorf("got %v:\n%s", notes, got)
				}
				return
			}
			if diff := cmp.Diff(head+tc.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A rule that cannot be rewritten must not prevent others from being rewritten.
func TestFixesTheOtherRules(t *testing.T) {
	const broken = "    matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AVX: [{op: Exists}], B: a}}]\n"
	const second = "  - {name: two, matchFeatures: [{feature: cpu.cpuid, matchExpressions: [%]}]}\n"
	got, _ := fix.Text("rules.yaml", []byte(head+broken+strings.Replace(second, "[%]", "[AVX]", 1)), problems)
	if !strings.HasSuffix(string(got), strings.Replace(second, "[%]", "{AVX: {op: Exists}}", 1)) {
		t.Errorf("got:\n%s", got)
	}
}

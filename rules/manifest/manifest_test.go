package manifest_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/gather"
	"github.com/assay-project/assay/rules/manifest"
)

const head = "apiVersion: nfd.k8s-sigs.io/v1alpha1\nkind: NodeFeatureRule\nmetadata: {name: x}\nspec:\n  rules:\n  - name: r\n"

func TestProblems(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"UnknownFieldSuggestsTheNearOne": {
			head + "    lables: {a: b}\n",
			[]string{`7:5: spec.rules[0].lables: unknown field "lables"; did you mean labels?`},
		},
		"UnquotedNegationIsATag": {
			head + "    conditions: [{op: !eq }]\n",
			[]string{`7:23: spec.rules[0].conditions[0].op: YAML reads !eq as a tag, not as text; quote it: "!eq", or write op: eq and invert: true`},
		},
		"LooseNegationLosesItsMark": {
			head + "    conditions:\n    - op: ! eq\n",
			[]string{`8:11: spec.rules[0].conditions[0].op: YAML drops the exclamation mark of "! eq", which changes the meaning; quote it: "!eq", or write op: eq and invert: true`},
		},
		"QuotedNegationIsFine": {head + "    conditions:\n    - op: \"!eq\"\n", nil},
		"BracesAreAMap": {
			head + "    labels:\n      a: {n1}\n",
			[]string{`8:10: spec.rules[0].labels[a]: expected a string, but YAML reads { as a map; quote it: "{n1}"`},
		},
		"AnExpressionAsAValueIsNotQuoted": {
			head + "    matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: In, value: [{op: Exists}]}}}]\n",
			[]string{`7:87: spec.rules[0].matchFeatures[0].matchExpressions[vendor].value[0]: expected a string, found a map`},
		},
		"BracesInAMapAreCutOut": {
			head + "    labels: {a: {n1}}\n",
			[]string{`7:17: spec.rules[0].labels[a]: expected a string, but YAML reads { as a map; quote it: "{n1}"`},
		},
		"NumberNeedsQuotes": {
			head + "    labels:\n      a: 0300\n",
			[]string{`8:10: spec.rules[0].labels[a]: expected a string, found the number 0300; quote it: "0300"`},
		},
		"EmptyExpressionMatchesAnything": {
			head + "    matchFeatures:\n    - feature: cpu.cpuid\n      matchExpressions:\n        AVX:\n",
			[]string{`10:13: spec.rules[0].matchFeatures[0].matchExpressions[AVX]: an empty expression matches any value; write {op: Exists}; assay lint --fix writes it out`},
		},
		"BaseInAFileNamesTheFile": {
			"kind: NodeFeatureRule\nspec: {basedOn: [{file: x.yaml}]}\n",
			[]string{`2:19: spec.basedOn[0].file: only assay template reads the base x.yaml: use the output of assay template copy --embed-all FILE`},
		},
		"ListOfMapsCannotBeFixed": {
			head + "    matchFeatures:\n    - feature: cpu.cpuid\n      matchExpressions: [{AVX: {op: Exists}}]\n",
			[]string{`9:25: spec.rules[0].matchFeatures[0].matchExpressions: expected a map, found a list`},
		},
		"ListOfListsCannotBeFixed": {
			head + "    matchFeatures:\n    - feature: cpu.cpuid\n      matchExpressions: {AVX: [[a]]}\n",
			[]string{`9:31: spec.rules[0].matchFeatures[0].matchExpressions[AVX]: expected a map of fields, found a list`},
		},
		"DuplicateKeyNamesBothLines": {
			"a: 1\nb: 2\na: 3\n",
			[]string{`3:1: the key "a" is already on line 1; one of the two would be lost`},
		},
		"ReservedCharacterNeedsQuotes": {
			head + "    labels:\n      a: @cpu.model.family\n",
			[]string{`8:10: YAML keeps @ at the beginning for itself; put the value in quotes: "@cpu.model.family"`},
		},
		"OneBrokenDocumentHidesNoOther": {
			"\tx: 1\n---\n" + head + "    lables: {}\n",
			[]string{
				"1:1: a tab; indent YAML with spaces only",
				`9:5: spec.rules[0].lables: unknown field "lables"; did you mean labels?`,
			},
		},
		"UTF16IsNamed": {"\xff\xfea\x00", []string{"1:1: the file is UTF-16; save it as UTF-8"}},
		"BrokenUTF8HasAPlace": {
			"a: b\nc: \xe9\n", []string{"2:4: the byte 0xe9 is not valid UTF-8; save the file as UTF-8"},
		},
		"AnchorWithinItself": {"a: &a [*a]\n", []string{"1:8: the anchor &a is used within itself"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := manifest.Parse("x.yaml", []byte(tc.text))
			problems := f.Problems
			for _, d := range f.Documents {
				if d.Kind != "" {
					problems = append(problems, d.Decode(&nfdv1alpha1.NodeFeatureRule{})...)
				}
			}
			var got []string
			for _, p := range problems {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestLocatesFields(t *testing.T) {
	text := strings.ReplaceAll(head, "\n", "\r\n") + `    labels:
      example.com/a.b: "x{rakc}"
    labelsTemplate: |
      first
      second
    taints: [{key: a, effect: b}]
`
	d := manifest.Parse("x.yaml", []byte("\xef\xbb\xbf"+text)).Documents[0]
	tests := map[string]struct{ path, message, want string }{
		"KeyWithDotsAndSlash": {"spec.rules[0].labels[example.com/a.b]", "wrong", "8:24"},
		"ColumnInAText":       {"spec.rules[0].labels[example.com/a.b]", "column 2: wrong", "8:26"},
		"LineInATemplate":     {"spec.rules[0].labelsTemplate", "line 2, column 3: wrong", "11:9"},
		"KeyOfAList":          {"spec.rules[0].taints", "wrong", "12:5"},
		"NearestField":        {"spec.rules[0].taints[0].nothing.more", "wrong", "12:14"},
		"WholeObject":         {"status.x", "wrong", "1:0"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := d.Problem(manifest.Error, "x", tc.path, tc.message)
			if got.Position.String() != tc.want || got.Message != "wrong" {
				t.Errorf("%s %q, want %s", got.Position, got.Message, tc.want)
			}
		})
	}
}

func TestMergesInNFDsOrder(t *testing.T) {
	text := `{"kind":"List","items":[
{"kind":"NodeFeature","metadata":{"name":"b","namespace":"z","labels":{"nfd.node.kubernetes.io/node-name":"n"}},"spec":{"features":{"attributes":{"a.b":{"elements":{"x":"last"}}}},"labels":{"l":"last"}}},
{"kind":"NodeFeature","metadata":{"name":"b","namespace":"a","labels":{"nfd.node.kubernetes.io/node-name":"n"}},"spec":{"features":{"attributes":{"a.b":{"elements":{"x":"middle","y":"middle"}}}}}},
{"kind":"NodeFeature","metadata":{"name":"zz","namespace":"own","labels":{"nfd.node.kubernetes.io/node-name":"n"}},"spec":{"features":{"attributes":{"a.b":{"elements":{"x":"first","y":"first","z":"first"}}}},"labels":{"l":"first"}}}]}`
	list, err := manifest.Features("f", []byte(text), facts.NewInterner())
	if err != nil {
		t.Fatal(err)
	}
	node := gather.Node{Name: "n"}
	selected, _ := gather.Select(gather.Policy{Namespace: "own"}, node, nil, list)
	in := selected.Input(node, nil)
	want := map[string]string{"x": "last", "y": "middle", "z": "first"}
	if diff := cmp.Diff(want, in.Facts.Feature("a.b").Attributes.Map()); diff != "" {
		t.Error(diff)
	}
	if got := in.Labels["feature.node.kubernetes.io/l"]; got != "last" {
		t.Errorf("label is %q, want that of the last object", got)
	}
}

func TestFeaturesNamePlaces(t *testing.T) {
	_, err := manifest.Features("f.yaml", []byte("attributes:\n  cpu.model: {elements: {family: 25}}\n"), nil)
	const want = `f.yaml: 2:34: attributes[cpu.model].elements[family]: expected a string, found the number 25; quote it: "25"`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head))
	f.Add([]byte("a: &a [*a]\n---\n- {{ x }}\n"))
	f.Add([]byte("a: !eq\nb: ! c\nd: |\n  {{ x\n<<: [a]\n"))
	f.Add([]byte("kind: List\nitems: [{kind: NodeFeatureRule, spec: {rules: [[]]}}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file := manifest.Parse("x", data)
		lines := bytes.Count(data, []byte("\n")) + bytes.Count(data, []byte("\r")) + 1
		check := func(p manifest.Problem) {
			if p.Line < 1 || p.Line > lines || p.Message == "" {
				t.Errorf("%d lines, problem %+v", lines, p)
			}
		}
		for _, p := range file.Problems {
			check(p)
		}
		for _, d := range file.Documents {
			for _, p := range d.Decode(&nfdv1alpha1.NodeFeatureRule{}) {
				check(p)
			}
			check(d.Problem(manifest.Error, "x", "spec.rules[0].labels[a]", "column 7: x"))
		}
	})
}

func TestTypesAndNamesOfObjects(t *testing.T) {
	for name, tc := range map[string]struct{ apiVersion, object, want string }{
		"Ours":        {"nfd.k8s-sigs.io/v1alpha1", "a.b-1", ""},
		"OpenShift":   {"nfd.openshift.io/v1alpha1", "a", "assay convert nfd-openshift renames it to nfd.k8s-sigs.io/v1alpha1"},
		"WrongGroup":  {"nfd.example.com/v1", "a", "is nfd.example.com/v1; NodeFeatureRule is of nfd.k8s-sigs.io/v1alpha1"},
		"InvalidName": {"nfd.k8s-sigs.io/v1alpha1", "My_Rule", `metadata.name: invalid name "My_Rule"`},
	} {
		t.Run(name, func(t *testing.T) {
			text := "apiVersion: " + tc.apiVersion + "\nkind: NodeFeatureRule\nmetadata: {name: " + tc.object + "}\nspec: {rules: []}\n"
			var got []string
			for _, p := range manifest.Parse("x.yaml", []byte(text)).Documents[0].CheckType() {
				got = append(got, p.String())
			}
			if all := strings.Join(got, "\n"); !strings.Contains(all, tc.want) || tc.want == "" && all != "" {
				t.Errorf("got %q, want %q", all, tc.want)
			}
		})
	}
}

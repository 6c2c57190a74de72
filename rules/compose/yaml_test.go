package compose

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/yamltree"
)

func mustParse(t *testing.T, id, text string) *YAML {
	t.Helper()
	d, err := ParseYAML(id, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func encode(t *testing.T, n *yaml.Node) string {
	t.Helper()
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(n); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const commentedMain = `# the pool
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata:
  name: gpu-pool
spec:
  # where it starts from
  basedOn: [site, cluster:common]
  # our rules
  rules:
    # ours
    - name: site # our site
      labels:
        example.com/site: "{site}-gpu" # not the base's
`

const commentedBase = `kind: NodeFeatureRuleTemplate
spec:
  # how early
  phase: main # never early
  # their rules
  rules:
    # theirs
    - name: site # their site
      # from the host name
      vars: {site: "{host[0:3]}"} # three letters
      labels:
        # lost to ours
        example.com/site: "{site}"
        example.com/row: "1" # theirs
    # by default
    - name: "*"
      annotations: {example.com/owner: platform} # who
`

func TestAssembleYAMLKeepsComments(t *testing.T) {
	docs := yamlDocs{"site": mustParse(t, "site", commentedBase), "cluster:common": mustParse(t, "cluster:common", "{}")}
	got, err := AssembleYAML([]*YAML{mustParse(t, "m", commentedMain)}, docs.load, YAMLOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const want = `# the pool
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata:
  name: gpu-pool
spec:
  # how early
  phase: main # never early
  # their rules
  # our rules
  rules:
    # by default
    # theirs
    # ours
    - name: site # our site
      labels:
        # lost to ours
        example.com/site: "{site}-gpu" # not the base's
        example.com/row: "1" # theirs
      # from the host name
      vars: {site: "{host[0:3]}"} # three letters
      annotations: {example.com/owner: platform} # who
`
	if diff := cmp.Diff(want, encode(t, got.Root)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestAssembleYAMLKeepsCommentsInBraces(t *testing.T) {
	doc := mustParse(t, "m", `rules:
- name: a
  # pool
  labels: {a: "1", # first
    b: "2"} # all
`)
	out, err := AssembleYAML([]*YAML{doc}, nil, YAMLOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := `rules:
  - name: a
    # pool
    # all
    labels:
      a: "1" # first
      b: "2"
`
	if diff := cmp.Diff(want, encode(t, out.Root)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestACommentUnfoldsAllBracesAroundIt: the encoder would write the outer ones in a form that parsers reject.
func TestACommentUnfoldsAllBracesAroundIt(t *testing.T) {
	doc := mustParse(t, "m", "rules: [{name: a, vars: {x: \"1\", # first\n  z: \"2\"}, labels: {b: \"2\"}}]\n")
	out, err := AssembleYAML([]*YAML{doc}, nil, YAMLOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := "rules:\n  - name: a\n    vars:\n      x: \"1\" # first\n      z: \"2\"\n    labels: {b: \"2\"}\n"
	if diff := cmp.Diff(want, encode(t, out.Root)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestANullFieldIsInheritedOnce: a field without a value takes the one of the base, as it is there.
func TestANullFieldIsInheritedOnce(t *testing.T) {
	docs := yamlDocs{"base": mustParse(t, "base", "rules:\n- name: a\n  # of the base\n  vars: {x: \"1\"}\n  labels: {l: \"1\"}\n  loop: [1]\n  taints: [{key: k.io/a, effect: NoSchedule}]\n")}
	doc := mustParse(t, "m", "basedOn: [base]\nrules:\n- name: a\n  vars: {x: null}\n  labels: null\n  loop: null\n  taints: null\n")
	out, err := AssembleYAML([]*YAML{doc}, docs.load, YAMLOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"rules":[{"name":"a","vars":{"x":"1"},"labels":{"l":"1"},"loop":[1],"taints":[{"key":"k.io/a","effect":"NoSchedule"}]}]}`
	if diff := cmp.Diff(want, string(yamltree.JSON(out.Spec))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestWaysToATemplateAreLimited refers to one template of the cluster with different names excluded.
func TestWaysToATemplateAreLimited(t *testing.T) {
	assemble := func(ways int) error {
		bases := make([]string, ways)
		for i := range bases {
			bases[i] = fmt.Sprintf("{name: c, exclude: [x%d]}", i)
		}
		doc := mustParse(t, "m", "{kind: NodeFeatureRule, spec: {basedOn: ["+strings.Join(bases, ", ")+"], rules: [{name: a, labels: {a: '1'}}]}}")
		absent := func(_ *YAML, r Ref) (*YAML, error) { return nil, nil }
		_, err := AssembleYAML([]*YAML{doc}, absent, YAMLOptions{KeepNames: true})
		return err
	}
	if err := assemble(MaxDocuments); err != nil {
		t.Errorf("%d ways: %v", MaxDocuments, err)
	}
	if err := assemble(MaxDocuments + 1); !as[*LimitError](err) {
		t.Errorf("%d ways: %v, want a LimitError", MaxDocuments+1, err)
	}
}

func TestAssembleYAMLKeepsNames(t *testing.T) {
	tests := map[string]struct {
		docs map[string]string
		want string // expected spec as JSON; or
		err  string
	}{
		"a name after the files stays": {
			map[string]string{"m": "{basedOn: [f, cluster:c]}", "f": "{priority: 1}"},
			`{"basedOn":[{"name":"c"}],"priority":1}`, ""},
		"a name before a file cannot": {
			map[string]string{"m": "{basedOn: [cluster:c, f]}", "f": "{priority: 1}"},
			"", "f cannot be embedded while cluster:c stays in the cluster"},
		"a name that a file mentions moves up": {
			map[string]string{"m": "{basedOn: f, rules: [{name: m}]}", "f": "{basedOn: [{name: c, digest: \"sha256:1\"}], rules: [{name: f}]}"},
			`{"basedOn":[{"name":"c","digest":"sha256:1"}],"rules":[{"name":"f"},{"name":"m"}]}`, ""},
		"what is excluded on the way stays excluded": {
			map[string]string{"m": "{basedOn: [{file: f, exclude: [a]}]}", "f": "{basedOn: [{name: c, exclude: [b]}]}"},
			`{"basedOn":[{"name":"c","exclude":["a","b"]}]}`, ""},
		"two ways stay two": {
			map[string]string{"m": "{basedOn: [{file: f, exclude: [a]}, {name: c, exclude: [b]}]}", "f": "{basedOn: {name: c}}"},
			`{"basedOn":[{"name":"c","exclude":["b"]},{"name":"c","exclude":["a"]}]}`, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			docs := yamlDocs{}
			for id, text := range tt.docs {
				docs[id] = mustParse(t, id, text)
			}
			got, err := AssembleYAML([]*YAML{docs["m"]}, docs.load, YAMLOptions{KeepNames: true})
			if err != nil {
				if tt.err == "" || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q in it", err, tt.err)
				}
				return
			}
			if diff := cmp.Diff(tt.want, string(yamltree.JSON(got.Spec))); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// Assembling in two steps must give the same result as in one.
func TestAssembleYAMLInTwoSteps(t *testing.T) {
	docs := yamlDocs{
		"f": mustParse(t, "f", "{kind: NodeFeatureRuleTemplate, spec: {basedOn: [{name: c, exclude: [x]}], rules: [{name: '*', labels: {f: '1'}}, {name: s, labels: {f: '1'}}]}}"),
		"c": mustParse(t, "c", "{priority: 3, rules: [{name: s, vars: {c: '1'}}, {name: x}, {name: z}]}"),
	}
	docs["cluster:c"] = docs["c"]
	main := mustParse(t, "m", "{kind: NodeFeatureRule, spec: {basedOn: [f], rules: [{name: s, labels: {m: '1'}}]}}")
	load := func(from *YAML, r Ref) (*YAML, error) {
		if name, ok := r.Template(); ok {
			return docs["cluster:"+name], nil
		}
		return docs[r.Locator], nil
	}
	once, err := AssembleYAML([]*YAML{main}, load, YAMLOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := AssembleYAML([]*YAML{main}, load, YAMLOptions{KeepNames: true})
	if err != nil {
		t.Fatal(err)
	}
	second, err := AssembleYAML([]*YAML{mustParse(t, "m", encode(t, first.Root))}, load, YAMLOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(encode(t, once.Root), encode(t, second.Root)); diff != "" {
		t.Errorf("-once +in two steps\n%s", diff)
	}
}

func TestTreeDigestCoversWildcards(t *testing.T) {
	hash := func(label string) string {
		a, err := AssembleYAML([]*YAML{mustParse(t, "t", "{rules: [{name: '*', labels: {a: '"+label+"'}}]}")}, yamlDocs{}.load, YAMLOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return a.Hash
	}
	if hash("1") == hash("2") {
		t.Error("a template can change the rules based on it without its digest changing")
	}
}

func TestAssembleYAMLKeepsWildcards(t *testing.T) {
	const template = "{rules: [{name: a}, {name: '*', labels: {x: '1'}}]}"
	got, err := AssembleYAML([]*YAML{mustParse(t, "t", template)}, yamlDocs{}.load, YAMLOptions{KeepWildcards: true})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"rules":[{"name":"*","labels":{"x":"1"}},{"name":"a","labels":{"x":"1"}}]}`
	if diff := cmp.Diff(want, string(yamltree.JSON(got.Spec))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestParseYAMLRefuses(t *testing.T) {
	laughs := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i <= 9; i++ {
		laughs += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), i-1)
	}
	tests := map[string]struct{ text, want string }{
		"a billion laughs":        {laughs, "too many YAML nodes"},
		"an alias within itself":  {"a: &a [*a]", ":1:8: the anchor &a is used within itself"},
		"many within themselves":  {"a: &a [*a, *a, *a]", "is used within itself"},
		"deep nesting":            {strings.Repeat("[", MaxNesting+1) + strings.Repeat("]", MaxNesting+1), "too many levels"},
		"one byte too many":       {"#" + strings.Repeat(" ", MaxText), "too many bytes"},
		"a binary file":           {"a: b\x00", "binary"},
		"nothing":                 {"", "no document"},
		"two documents":           {"a: b\n---\nc: d", ":3: a second document"},
		"a key twice":             {"phase: early\nscope: a\nphase: main", `:3:1: the key "phase" is already on line 1`},
		"a list":                  {"[a]", "found a list"},
		"another kind":            {"kind: Pod\nspec: {}", `found "Pod"`},
		"an object without spec":  {"kind: NodeFeatureRule", "spec: required"},
		"unquoted braces as text": {"rules: [{name: x, labels: {{a}: b}}]", "cannot be a key"},
		"a tab":                   {"a:\n\tb: c", ":2:1: a tab"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ParseYAML("f.yaml", []byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestParseYAMLAccepts(t *testing.T) {
	tests := map[string]string{
		"the largest document": "{}\n#" + strings.Repeat(" ", MaxText-4),
		"deep nesting":         "a: " + strings.Repeat("[", MaxNesting-2) + strings.Repeat("]", MaxNesting-2),
		"a byte order mark":    "\xef\xbb\xbfphase: main\r\n",
		"an empty spec":        "kind: NodeFeatureRule\nspec:\n",
		"merged maps":          "x: &x {a: b}\nrules: [{name: n, labels: {<<: *x, a: c}}]",
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseYAML("f.yaml", []byte(text)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestMergeKeyYieldsToOwn(t *testing.T) {
	d := mustParse(t, "f", "rules:\n- &a {name: a, phase: x}\n- {<<: *a, name: b}\n")
	const want = `{"rules":[{"name":"a","phase":"x"},{"name":"b","phase":"x"}]}`
	if diff := cmp.Diff(want, string(yamltree.JSON(d.Spec))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestCheckFieldsNamesEveryMistake(t *testing.T) {
	d := mustParse(t, "f.yaml", `
phse: early
basedOn: [{name: x, anything: else}]
rules:
- name: x
  lables: {a: b}
  conditions: [{op: eq, args: {anything: goes}, arg: 1}]
  matchFeatures: [{feature: a.b, matchExpressions: {anything: {op: In, values: [a]}}}]
  completelyDifferent: 1
`)
	err := d.CheckFields()
	if err == nil {
		t.Fatal("no error")
	}
	want := []string{
		"f.yaml:2:1: spec.phse: unknown field \"phse\"; did you mean phase?",
		"f.yaml:6:3: spec.rules[0].lables: unknown field \"lables\"; did you mean labels?",
		"f.yaml:7:49: spec.rules[0].conditions[0].arg: unknown field \"arg\"; did you mean args?",
		"f.yaml:8:72: spec.rules[0].matchFeatures[0].matchExpressions[anything].values: unknown field \"values\"; did you mean value?",
		"f.yaml:9:3: spec.rules[0].completelyDifferent: unknown field \"completelyDifferent\"",
	}
	var list Errors
	if errors.As(err, &list); len(list) != len(want) {
		t.Errorf("%d errors, want %d", len(list), len(want))
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("no %q in %v", w, err)
		}
	}
}

func TestAssembleYAMLChecksTypes(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"a number as label":  {"{rules: [{name: x, labels: {a: 1}}]}", "spec.rules[0].labels[a]: expected a string, found the number 1; quote it: \"1\""},
		"StringAsNumber":     {"{priority: high}", "spec.priority: expected a number, found a string"},
		"a map as list":      {"{rules: {name: x}}", "spec.rules: expected a list, found a map"},
		"StringAsRule":       {"{rules: [x]}", "expected a map of fields, found a string"},
		"no locator":         {"{basedOn: [{exclude: [a]}]}", "expected one of name, file and url"},
		"two locators":       {"{basedOn: [{name: a, file: b}]}", "found name and file"},
		"a number as base":   {"{basedOn: 5}", "expected a locator"},
		"exclude unquoted *": {"{basedOn: [{name: a, exclude: '*'}]}", "expected a list of names"},
		"unknown in basedOn": {"{basedOn: [{name: a, pin: b}]}", `unknown field "pin"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := AssembleYAML([]*YAML{mustParse(t, "f.yaml", tt.text)}, yamlDocs{}.load, YAMLOptions{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

// For any two documents, the typed and the YAML implementation must agree or both return an error, and must not panic.
func FuzzAssemble(f *testing.F) {
	f.Add([]byte(commentedMain), []byte(commentedBase))
	f.Add([]byte(`{"basedOn": "site", "rules": [{"name": "a"}, {"name": "*", "labels": {"x": "1"}}]}`), []byte(`{"rules": [{"name": "a", "taints": [{"key": "k", "effect": "NoSchedule"}]}]}`))
	f.Add([]byte("basedOn: [{name: site, exclude: ['a*']}]\npriority: 0"), []byte("basedOn: other\nsensitive: true\nminimumVersion: '1'"))
	f.Fuzz(func(t *testing.T, main, base []byte) {
		m, err := ParseYAML("m", main)
		if err != nil {
			return
		}
		b, err := ParseYAML("site", base)
		if err != nil || m.CheckFields() != nil || b.CheckFields() != nil {
			return
		}
		docs := yamlDocs{"site": b, "m": m}
		got, err := AssembleYAML([]*YAML{m}, docs.load, YAMLOptions{})
		if err != nil {
			return
		}
		ms, err := Typed(m.Spec)
		if err != nil {
			return
		}
		bs, err := Typed(b.Spec)
		if err != nil {
			return
		}
		again, err := Typed(got.Spec)
		if err != nil {
			t.Fatal(err)
		}
		typed, err := Assemble(Document{Name: "m", Template: true, Spec: ms}, lookupIn(map[string]*nfdv1alpha1.NodeFeatureRuleSpec{"site": bs, "m": ms}))
		if err != nil {
			t.Fatalf("the typed face refuses what the YAML face takes: %v", err)
		}
		if a, b := Canonical(again), Canonical(typed.Spec); !bytes.Equal(a, b) {
			t.Errorf("YAML  %s\ntyped %s", a, b)
		}
		if !json.Valid(Canonical(again)) {
			t.Errorf("no JSON: %s", Canonical(again))
		}
	})
}

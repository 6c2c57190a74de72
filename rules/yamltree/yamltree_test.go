package yamltree_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/assay-project/assay/rules/yamltree"
)

// For most of these errors the parser reports the start of the enclosing block, line 1 to 3.
func TestSyntaxErrorsPointAtTheOffendingPlace(t *testing.T) {
	const rule = "spec:\n  rules:\n  - name: a\n"
	const unclosed = "the %s that begins here is not closed"
	for name, tc := range map[string]struct{ text, want string }{
		"KeyIndentedLess": {
			rule + "    labels:\n      x: \"1\"\n     matchFeatures: []\n",
			"6:6: expected a key; align it with the keys of the map that it belongs to",
		},
		"KeyIndentedMore": {
			rule + "      labels:\n        a: b\n",
			"4:7: this key is indented deeper than the line above allows; align it with the keys beside it",
		},
		"ItemNotAligned": {
			rule + "    labels: {a: b}\n   - name: b\n",
			"5:4: a list item where a key is expected; align it with the items of the list that it belongs to",
		},
		"ItemBehindKey": {
			rule + "  scope: b\n  - name: c\n",
			"5:3: a list item where a key is expected; align it with the items of the list that it belongs to",
		},
		"KeyBehindItem": {
			"- c\na: b\n",
			`2:1: expected "- " as in the items above; align the line with them, or indent it deeper to continue an item`,
		},
		"ListInTheLineOfItsKey": {
			"spec:\n  rules: - name: a\n    labels: {}\n", `2:10: a list cannot begin here; write "- " on a line of its own`,
		},
		"NoSpaceBehindColon": {
			rule + "    op:In\n    labels: {}\n    x: y\n",
			"4:5: expected KEY: VALUE, with a space after the colon; indent it deeper to continue the text above",
		},
		"TemplateIndentedLess": {
			rule + "    labelsTemplate: |\n     a\n    b\n    labels: {a: b}\n",
			"6:5: expected KEY: VALUE, with a space after the colon; indent it deeper to continue the text above",
		},
		"TwoColons": {
			rule + "    varsTemplate: a: b\n    labels: {}\n",
			`4:20: a second ": " in one line; put the value in quotes, or begin the key on a line of its own`,
		},
		"QuoteNotClosed":              {rule + "    x: \"a\n    labels: {}\n", strings.ReplaceAll("4:8: "+unclosed, "%s", "quote")},
		"QuoteNotClosedBeforeAnother": {rule + "    x: \"a\n    labels: {\"x\": \"y\"}\n    y: z\n", strings.ReplaceAll("4:8: "+unclosed, "%s", "quote")},
		"SingleQuoteNotClosed":        {"a: b\nc: 'x\n", strings.ReplaceAll("2:4: "+unclosed, "%s", "quote")},
		"QuoteWithinQuotes": {
			rule + "    description: \"say \"hi\" there\"\n    labels: {}\n",
			`4:24: the text in quotes ends before this; write \" for a quote in double quotes, and '' for one in single quotes`,
		},
		"ApostropheWithinQuotes": {
			rule + "    description: 'it's'\n    labels: {}\n",
			`4:22: the text in quotes ends before this; write \" for a quote in double quotes, and '' for one in single quotes`,
		},
		"EscapeOfARegularExpression": {
			rule + "    value: [\"^\\d+$\"]\n    labels: {a: b}\n",
			`4:16: invalid escape in double quotes; write \\ for a backslash, or put the text in single quotes`,
		},
		"BracketNotClosed":       {rule + "    value: [\"a\", \"b\"\n    labels: {}\n    x: y\n", strings.ReplaceAll("4:12: "+unclosed, "%s", "[")},
		"BracketNotClosedAtEnd":  {"core: [\n", strings.ReplaceAll("1:7: "+unclosed, "%s", "[")},
		"BracketClosedByBrace":   {rule + "    x: {op: In, value: [\"a\", \"b\"}\n    labels: {}\n", strings.ReplaceAll("4:24: "+unclosed, "%s", "[")},
		"InnerBraceNotClosed":    {rule + "    x: {AVX: {op: Exists}\n  - name: b\n", strings.ReplaceAll("4:8: "+unclosed, "%s", "{")},
		"BracketClosedTwice":     {"x: y\na: [b]]\n", "2:7: expected a key; align it with the keys of the map that it belongs to"},
		"BracketNeverOpened":     {"x: y\na: ]\n", "2:4: expected a value"},
		"NoCommaBetweenItems":    {rule + "    value: [\"a\" \"b\"]\n    labels: {}\n", "4:19: expected a comma, or the end of the list or map in brackets"},
		"NoCommaBetweenLines":    {rule + "    value: [\n      \"a\",\n      \"b\"\n      \"c\",\n    ]\n    x: y\n", "7:7: expected a comma, or the end of the list or map in brackets"},
		"StarIsAnAlias":          {rule + "    value: *avx\n    labels: {}\n", `4:12: YAML reads * as an alias; put the value in quotes: "*avx"`},
		"StarInAList":            {rule + "    value: [*avx, b]\n    labels: {}\n", "4:13: YAML reads * as an alias; put the value in quotes"},
		"Tab":                    {rule + "    labels:\n    \ta: b\n", "5:5: a tab; indent YAML with spaces only"},
		"HelmTemplate":           {"spec:\n  rules:\n  {{- range .Values.rules }}\n  - name: a\n  {{- end }}\n", "3:3: this looks like a Helm template; render it first: helm template … | assay lint -"},
		"ReservedCharacter":      {rule + "    labels:\n      a: @cpu.model\n", `5:10: YAML keeps @ at the beginning for itself; put the value in quotes: "@cpu.model"`},
		"SecondDocument":         {"a: b\n---\n# comment\nc: d\n e: f\n", "5:2: this key is indented deeper than the line above allows; align it with the keys beside it"},
		"DuplicateKey":           {"a: 1\nb: 2\na: 3\n", `3:1: the key "a" is already on line 1; one of the two would be lost`},
		"AnchorWithinItself":     {"a: &a [*a]\n", "1:8: the anchor &a is used within itself"},
		"MapAsKey":               {"a: {[b]: c}\n", "1:5: a list cannot be a key; put text that begins with a brace in quotes"},
		"MergeOfAList":           {"<<: [a]\n", "1:6: << merges maps, found a string"},
		"UTF16":                  {"\xff\xfea\x00", "1:1: the file is UTF-16; save it as UTF-8"},
		"InvalidUTF8":            {"a: b\nc: \xe9\n", "2:4: the byte 0xe9 is not valid UTF-8; save the file as UTF-8"},
		"Binary":                 {"a: b\x00", "1:5: the file is binary, not YAML"},
		"CharactersAreNotBytes":  {"größe: ä: b\n", `1:9: a second ": " in one line; put the value in quotes, or begin the key on a line of its own`},
		"ControlCharacter":       {"a: b\nc: \x01\n", "2:4: control characters are not allowed"},
		"WhatTheParserSaysStays": {"a: b\nb: |2x\n  foo\n", "2:6: did not find expected comment or line break"},
	} {
		t.Run(name, func(t *testing.T) {
			err := yamltree.Parse([]byte(tc.text), yamltree.Options{}).Err("f")
			if err == nil || err.Error() != "f:"+tc.want {
				t.Errorf("%s\ngot  %v\nwant f:%s", tc.text, err, tc.want)
			}
		})
	}
}

func TestOneBrokenDocumentHidesNoOther(t *testing.T) {
	text := yamltree.Parse([]byte("\tx: 1\n---\na: b\n---\n- {\n...\nc: d\n"), yamltree.Options{})
	var got []string
	for _, d := range text.Documents {
		got = append(got, yamltree.At(d.Content[0]).String()+" "+string(yamltree.JSON(d)))
	}
	for _, p := range text.Problems {
		got = append(got, p.Position.String())
	}
	if diff := cmp.Diff([]string{`3:1 {"a":"b"}`, `7:1 {"c":"d"}`, "1:1", "5:3"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestLimits(t *testing.T) {
	limits := yamltree.Options{Bytes: 1000, Nodes: 20, Depth: 4, Brackets: 5, Documents: 2}
	for name, tc := range map[string]struct{ text, want string }{
		"Fits":      {"a: [b, c]\n---\nd: e\n", ""},
		"Bytes":     {"#" + strings.Repeat(" ", 1000), "f:1:1: too many bytes: 1001, at most 1000 are allowed"},
		"Nodes":     {"a: &a [1, 2, 3, 4]\nb: &b [*a, *a]\nc: [*b, *b]\n", "f:3:5: too many YAML nodes: at most 20 are allowed, with aliases expanded"},
		"Depth":     {"a:\n- [[[b]]]\n", "f:2:5: too many levels of YAML: at most 4 are allowed"},
		"Brackets":  {"a: [b]\nb: [[{[[[\n", "f:2:1: too many brackets that are not closed: at most 5 are allowed"},
		"Documents": {"a: b\n---\nc: d\n---\ne: f\n", "f:4:1: the file contains more than 2 documents; the others are ignored"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := yamltree.Parse([]byte(tc.text), limits).Err("f"); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestKeepsCommentsBeforeTheSeparator(t *testing.T) {
	text := yamltree.Parse([]byte("# license\n---\n# about a\na: b # c\n---\nd: e\n"), yamltree.Options{})
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	if err := e.Encode(text.Documents[0]); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "# license") || !strings.Contains(got, "# about a\na: b # c\n") {
		t.Errorf("comments are lost:\n%s", got)
	}
}

func TestLostMarks(t *testing.T) {
	text := yamltree.Parse([]byte("a: ! eq\nb: größe ! x\nc: [! é, '! x']\n"), yamltree.Options{})
	var got []string
	var visit func(*yaml.Node)
	visit = func(n *yaml.Node) {
		if mark := text.LostMark(n); mark != "" {
			got = append(got, yamltree.At(n).String()+" "+mark)
		}
		for _, c := range n.Content {
			visit(c)
		}
	}
	visit(text.Documents[0])
	if diff := cmp.Diff([]string{"1:4 ! eq", "3:5 ! é"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestFollow(t *testing.T) {
	root := yamltree.Parse([]byte("spec:\n  rules:\n  - labels: {a.b/c: x}\n"), yamltree.Options{}).Documents[0].Content[0]
	for path, want := range map[string]string{
		"spec.rules[0].labels[a.b/c]": "3:14 3:21",
		"spec.rules[0].labels":        "3:5 3:13",
		"spec.rules[0]":               "- 3:5",
		"spec.rules[1].x":             "2:3 3:3",
		"status":                      "",
	} {
		got := ""
		way, found := yamltree.Follow(root, path)
		if len(way) > 0 {
			got = "-"
			if last := way[len(way)-1]; last.Key != nil {
				got = yamltree.At(last.Key).String()
			}
			got += " " + yamltree.At(way[len(way)-1].Value).String()
		}
		if got != want || found != (path != "status" && path != "spec.rules[1].x") {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

func TestDidYouMean(t *testing.T) {
	known := []string{"labels", "matchExpressions", "vars"}
	for name, want := range map[string]string{
		"lables": "; did you mean labels?", "MATCHEXPRESSIONS": "; did you mean matchExpressions?",
		"matchExpr": "; did you mean matchExpressions?", "xyzzy": "",
	} {
		if got := yamltree.DidYouMean(name, known); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// old matches scalars that YAML 1.1 (sigs.k8s.io/yaml) reads differently from YAML 1.2, and numbers whose spelling is lost.
var old = regexp.MustCompile(`^(?i:y|yes|on|n|no|off|[-+]?[0-9.].*|=|<<|[-+]?\.(inf|nan).*)$`)

// comparable reports whether YAML 1.1 and 1.2 give the same meaning to a tree and JSON can express it.
func comparable(text *yamltree.Text, n *yaml.Node) bool {
	decimal := n.Tag == "!!int" && regexp.MustCompile(`^(0|-?[1-9][0-9]{0,15})$`).MatchString(n.Value)
	if n.Kind == yaml.ScalarNode && n.Style == 0 && old.MatchString(n.Value) && !decimal || strings.HasPrefix(text.From(yamltree.At(n)), "!") {
		return false
	}
	for i, c := range n.Content {
		if !comparable(text, c) || n.Kind == yaml.MappingNode && i%2 == 0 && c.ShortTag() != "!!str" {
			return false
		}
	}
	return true
}

// For any input, positions must be within the input, and the result must equal what Kubernetes reads.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"a: &a [*a]\n---\n- {{ x }}\n", "a: !eq\nb: ! c\nd: |\n  {{ x\n<<: [a]\n", "x: &x {a: b, c: [1, true, null]}\ny: {<<: *x, a: \"d\"}\n",
		"# c\n%YAML 1.1\n---\na: 'b'\n...\n", "a: [\n- b\n", "a: {\"b\n c", "a: b: c\n\td", "- a\n b: *c\n", "a: >-\n  b\n\n  c\n \"", "\u2028a\u0085: [}\r\r\n",
	} {
		f.Add([]byte(seed))
	}
	limits := yamltree.Options{Bytes: 1 << 16, Nodes: 10_000, Depth: 100, Documents: 10}
	f.Fuzz(func(t *testing.T, data []byte) {
		text := yamltree.Parse(data, limits)
		for _, p := range text.Problems {
			if p.Line < 1 || p.Line > max(text.Lines(), 1+bytes.Count(data, []byte("\n"))) || p.Column < 1 || p.Message == "" {
				t.Errorf("%d lines, problem %+v", text.Lines(), p)
			}
		}
		for _, d := range text.Documents {
			positions(t, text, d)
		}
		if len(text.Problems) > 0 || len(text.Documents) != 1 || !comparable(text, text.Documents[0]) || bytes.ContainsAny(data, "\r\u2028\u2029\u0085") {
			return
		}
		var got, want any
		if err := sigsyaml.Unmarshal(data, &want); err != nil || want == nil {
			return
		}
		if err := json.Unmarshal(yamltree.JSON(text.Documents[0]), &got); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q\ngot  %v\nwant %v", data, got, want)
		}
	})
}

func positions(t *testing.T, text *yamltree.Text, n *yaml.Node) {
	t.Helper()
	at := yamltree.At(n)
	if n.Kind == yaml.AliasNode || at.Line < 1 || at.Line > text.Lines() || at.Column < 1 {
		t.Errorf("%d lines, node at %s", text.Lines(), at)
	}
	text.From(at)
	for _, c := range n.Content {
		positions(t, text, c)
	}
}

func BenchmarkParse(b *testing.B) {
	data := []byte(strings.Repeat("- name: a\n  labels: {a: \"b\"}\n  matchFeatures:\n  - feature: cpu.cpuid\n    matchExpressions: {AVX: {op: Exists}}\n", 100))
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		yamltree.Parse(data, yamltree.Options{})
	}
}

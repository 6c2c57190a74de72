package compose

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/yamltree"
)

// assemblyCase is one line of the tables in testdata: documents as trees, of which m is the main one, and the expected result.
type assemblyCase struct {
	ID, Name string
	Docs     map[string]json.RawMessage
	OK       bool
	Spec     any
	Error    string
}

func assemblyCases(t *testing.T) map[string]assemblyCase {
	t.Helper()
	out := map[string]assemblyCase{}
	for _, file := range []string{"testdata/basedon.jsonl", "testdata/lima.jsonl"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var c assemblyCase
			if err := json.Unmarshal(line, &c); err != nil {
				t.Fatal(file, err)
			}
			out[c.ID+" "+c.Name] = c
		}
	}
	return out
}

// yamlDocs holds documents that refer to each other by name.
type yamlDocs map[string]*YAML

func (w yamlDocs) load(_ *YAML, r Ref) (*YAML, error) { return w[r.Locator], nil }

func parseAll(t *testing.T, docs map[string]json.RawMessage) yamlDocs {
	t.Helper()
	out := yamlDocs{}
	for name, text := range docs {
		d, err := ParseYAML(name, text)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = d
	}
	return out
}

func TestAssembleYAMLCases(t *testing.T) {
	for name, c := range assemblyCases(t) {
		t.Run(name, func(t *testing.T) {
			docs := parseAll(t, c.Docs)
			got, err := AssembleYAML([]*YAML{docs["m"]}, docs.load, YAMLOptions{})
			if !c.OK {
				if err == nil || err.Error() != c.Error {
					t.Fatalf("error %v, want %s", err, c.Error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var spec any
			if err := json.Unmarshal(yamltree.JSON(got.Spec), &spec); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.Spec, spec); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// Typed specs and YAML must give the same digest for every case that is valid in the cluster.
func TestAssembleAgreesWithYAML(t *testing.T) {
	for name, c := range assemblyCases(t) {
		t.Run(name, func(t *testing.T) {
			docs := parseAll(t, c.Docs)
			specs := map[string]*nfdv1alpha1.NodeFeatureRuleSpec{}
			for name, d := range docs {
				spec, err := Typed(d.Spec)
				if err != nil {
					t.Skip("the API server would refuse it:", err)
				}
				specs[name] = spec
			}
			before := Canonical(specs["m"])
			got, err := Assemble(Document{Name: "a", Spec: specs["m"]}, func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
				return specs[name], nil
			})
			if after := Canonical(specs["m"]); !bytes.Equal(before, after) {
				t.Errorf("the main document was changed to %s", after)
			}
			if !c.OK {
				if err == nil || err.Error() != c.Error {
					t.Fatalf("error %v, want %s", err, c.Error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want, err := AssembleYAML([]*YAML{docs["m"]}, docs.load, YAMLOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Hash != want.Hash {
				t.Errorf("typed %s, YAML %s", Canonical(got.Spec), yamltree.JSON(want.Spec))
			}
			if diff := cmp.Diff(len(want.Rules), len(got.Rules)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func lookupIn(specs map[string]*nfdv1alpha1.NodeFeatureRuleSpec) Lookup {
	return func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) { return specs[name], nil }
}

func basedOn(names ...string) *nfdv1alpha1.NodeFeatureRuleSpec {
	s := &nfdv1alpha1.NodeFeatureRuleSpec{}
	for _, n := range names {
		s.BasedOn = append(s.BasedOn, nfdv1alpha1.Base{Name: n})
	}
	return s
}

func rule(name string, labels ...string) nfdv1alpha1.Rule {
	r := nfdv1alpha1.Rule{Name: name}
	for i := 0; i+1 < len(labels); i += 2 {
		if r.Labels == nil {
			r.Labels = map[string]string{}
		}
		r.Labels[labels[i]] = labels[i+1]
	}
	return r
}

func TestAssembleErrorsAreTyped(t *testing.T) {
	specs := map[string]*nfdv1alpha1.NodeFeatureRuleSpec{
		"a": basedOn("b"), "b": basedOn("a"), "broken": nil,
		"x": basedOn("c", "d"), "y": basedOn("d", "c"), "c": basedOn(), "d": basedOn(),
	}
	pinned := basedOn("c")
	pinned.BasedOn[0].Digest = "sha256:00"
	failing := func(string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) { return nil, os.ErrPermission }
	tests := map[string]struct {
		main *nfdv1alpha1.NodeFeatureRuleSpec
		get  Lookup
		is   func(error) bool
	}{
		"cycle":         {basedOn("a"), lookupIn(specs), as[*CycleError]},
		"missing":       {basedOn("nope"), lookupIn(specs), as[*MissingError]},
		"both missing":  {basedOn("nope", "none"), lookupIn(specs), as[*MissingError]},
		"order":         {basedOn("x", "y"), lookupIn(specs), as[*OrderError]},
		"digest":        {pinned, lookupIn(specs), as[*DigestError]},
		"lookup failed": {basedOn("a"), failing, func(err error) bool { return errors.Is(err, os.ErrPermission) }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Assemble(Document{Name: "m", Spec: tt.main}, tt.get)
			if err == nil || !tt.is(err) {
				t.Errorf("got %T %v", err, err)
			}
		})
	}
}

// TestACycleThroughTheFirstDocument begins at one of the templates of a cycle.
func TestACycleThroughTheFirstDocument(t *testing.T) {
	specs := map[string]*nfdv1alpha1.NodeFeatureRuleSpec{"a": basedOn("b"), "b": basedOn("a")}
	_, err := Assemble(Document{Name: "a", Template: true, Spec: specs["a"]}, lookupIn(specs))
	var cycle *CycleError
	if !errors.As(err, &cycle) || len(cycle.Path) != 3 {
		t.Errorf("got %v, want a cycle of a and b", err)
	}
}

// TestABaseMayBeNamedTwice: the bases after it count.
func TestABaseMayBeNamedTwice(t *testing.T) {
	specs := map[string]*nfdv1alpha1.NodeFeatureRuleSpec{"c": {Rules: []nfdv1alpha1.Rule{rule("c", "a", "1")}}, "d": {Rules: []nfdv1alpha1.Rule{rule("d", "a", "1")}}}
	got, err := Assemble(Document{Name: "m", Spec: basedOn("c", "c", "d")}, lookupIn(specs))
	if err != nil || len(got.Spec.Rules) != 2 {
		t.Errorf("got %+v, %v, want the rules c and d", got, err)
	}
}

func as[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

func TestAssembleChecksDigests(t *testing.T) {
	specs := map[string]*nfdv1alpha1.NodeFeatureRuleSpec{"leaf": {Rules: []nfdv1alpha1.Rule{rule("leaf", "a", "1")}}, "base": basedOn("leaf"), "other": basedOn()}
	specs["base"].Rules = []nfdv1alpha1.Rule{rule("base", "b", "1")}
	tree, err := Assemble(Document{Name: "base", Template: true, Spec: specs["base"]}, lookupIn(specs))
	if err != nil {
		t.Fatal(err)
	}
	main := func(digest string) *nfdv1alpha1.NodeFeatureRuleSpec {
		s := basedOn("other", "base") // the first one has no digest
		s.BasedOn[1].Digest = digest
		return s
	}
	changedLeaf := map[string]*nfdv1alpha1.NodeFeatureRuleSpec{"leaf": {Rules: []nfdv1alpha1.Rule{rule("leaf", "a", "2")}}, "base": specs["base"], "other": basedOn()}
	tests := map[string]struct {
		digest string
		specs  map[string]*nfdv1alpha1.NodeFeatureRuleSpec
		ok     bool
	}{
		"own digest holds":                        {Digest(specs["base"]), specs, true},
		"own digest does not see bases":           {Digest(specs["base"]), changedLeaf, true},
		"tree digest holds":                       {tree.Hash, specs, true},
		"tree digest sees bases":                  {tree.Hash, changedLeaf, false},
		"digest of another":                       {Digest(specs["leaf"]), specs, false},
		"a digest in no known form never matches": {"md5:0", specs, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Assemble(Document{Name: "m", Spec: main(tt.digest)}, lookupIn(tt.specs))
			if (err == nil) != tt.ok {
				t.Errorf("error %v, want ok %v", err, tt.ok)
			}
		})
	}
}

func TestAssembleLimits(t *testing.T) {
	chain := func(length int) map[string]*nfdv1alpha1.NodeFeatureRuleSpec {
		specs := map[string]*nfdv1alpha1.NodeFeatureRuleSpec{"b1": basedOn()}
		for i := 2; i <= length; i++ {
			specs[fmt.Sprint("b", i)] = basedOn(fmt.Sprint("b", i-1))
		}
		specs["m"] = basedOn(fmt.Sprint("b", length))
		return specs
	}
	wide := func(bases int) map[string]*nfdv1alpha1.NodeFeatureRuleSpec {
		specs := map[string]*nfdv1alpha1.NodeFeatureRuleSpec{"m": basedOn()}
		for i := range bases {
			name := fmt.Sprint("b", i)
			specs[name] = basedOn()
			specs["m"].BasedOn = append(specs["m"].BasedOn, nfdv1alpha1.Base{Name: name})
		}
		return specs
	}
	sized := func(result int) map[string]*nfdv1alpha1.NodeFeatureRuleSpec {
		m := &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{rule("x", "k", "")}}
		m.Rules[0].Labels["k"] = strings.Repeat("v", result-len(Canonical(m)))
		return map[string]*nfdv1alpha1.NodeFeatureRuleSpec{"m": m}
	}
	// A base that was loaded before comes with its own bases.
	diamond := chain(MaxDepth)
	diamond["b1"] = basedOn("tail")
	diamond["tail"] = basedOn()
	diamond["m"] = basedOn("b1", fmt.Sprint("b", MaxDepth))
	lower := chain(MaxDepth - 1)
	lower["b1"], lower["tail"], lower["side"] = diamond["b1"], diamond["tail"], basedOn("b1")
	lower["m"] = basedOn("side", fmt.Sprint("b", MaxDepth-1))
	many := func(name string, count int) map[string]*nfdv1alpha1.NodeFeatureRuleSpec {
		m := &nfdv1alpha1.NodeFeatureRuleSpec{}
		for range count {
			m.Rules = append(m.Rules, rule(name))
		}
		return map[string]*nfdv1alpha1.NodeFeatureRuleSpec{"m": m}
	}
	excluding := func(count int) map[string]*nfdv1alpha1.NodeFeatureRuleSpec {
		specs := chain(1)
		specs["m"].BasedOn[0].Exclude = make([]string, count)
		return specs
	}
	tests := map[string]struct {
		specs map[string]*nfdv1alpha1.NodeFeatureRuleSpec
		ok    bool
	}{
		"rules at the limit":                     {many("x", MaxRules), true},
		"rules above":                            {many("x", MaxRules+1), false},
		"wildcards at the limit":                 {many(Wildcard, MaxWildcards), true},
		"wildcards above":                        {many(Wildcard, MaxWildcards+1), false},
		"excluded names at the limit":            {excluding(MaxExcludes), true},
		"excluded names above":                   {excluding(MaxExcludes + 1), false},
		"depth at the limit":                     {chain(MaxDepth), true},
		"depth above":                            {chain(MaxDepth + 1), false},
		"depth above behind a known base":        {diamond, false},
		"depth at the limit behind a known base": {lower, true},
		"documents at the limit":                 {wide(MaxDocuments - 1), true},
		"documents above":                        {wide(MaxDocuments), false},
		"result at the limit":                    {sized(MaxResult), true},
		"result above":                           {sized(MaxResult + 1), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Assemble(Document{Name: "m", Spec: tt.specs["m"]}, lookupIn(tt.specs))
			if tt.ok && err != nil {
				t.Error(err)
			}
			var limit *LimitError
			if !tt.ok && (!errors.As(err, &limit) || limit.Got <= limit.Limit) {
				t.Errorf("got %v, want a LimitError above its limit", err)
			}
		})
	}
}

// A document without a field must inherit it. The test fails for a new API field that the merge does not handle.
func TestAssembleInheritsEveryField(t *testing.T) {
	const full = `
description: d
phase: early
priority: 3
nodeSelector: {matchLabels: {a: b}, matchExpressions: [{key: k, operator: Exists}]}
scope: s
sensitive: true
featureSources: "^ns/"
minimumVersion: 1.0.0
rulesFrom: [{secretKeyRef: {name: source, key: k}}]
rules:
- name: x
  labels: {a: b}
  labelsTemplate: a=b
  annotations: {a: b}
  vars: {a: b}
  varsTemplate: a=b
  taints: [{key: k, value: v, effect: NoSchedule, timeAdded: "2026-01-02T03:04:05Z"}]
  extendedResources: {a: "1"}
  nodeConditions: [{type: example.com/A, status: "True", reason: R, message: m}]
  matchFeatures: [{feature: a.b, matchExpressions: {k: {op: In, value: [v], type: version}}, matchName: {op: Exists}}]
  matchAny: [{matchFeatures: [{feature: a.b}]}]
  conditions: [{op: eq, args: {values: [1, 1]}, invert: true, loop: [1], multiple: any}]
  actions: [{op: log, args: {msg: m}, loop: [1]}]
  loop: "{@a.b}"
  expressions: Strict
- name: from
  labelsTemplateFrom: {configMapKeyRef: {name: source, key: k}}
  varsTemplateFrom: {configMapKeyRef: {name: source, key: k}}
`
	base, err := ParseYAML("base", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := Typed(base.Spec)
	if err != nil {
		t.Fatal(err)
	}
	var have map[string]any
	if err := json.Unmarshal(Canonical(spec), &have); err != nil {
		t.Fatal(err)
	}
	for _, f := range fieldsOf(reflect.TypeFor[nfdv1alpha1.NodeFeatureRuleSpec]()) {
		if _, ok := have[f.name]; !ok && f.name != "basedOn" {
			t.Errorf("this test's base has no %s", f.name)
		}
	}
	for _, f := range fieldsOf(reflect.TypeFor[nfdv1alpha1.Rule]()) {
		if !slices.ContainsFunc(have["rules"].([]any), func(rule any) bool { return rule.(map[string]any)[f.name] != nil }) {
			t.Errorf("no rule of this test's base has %s", f.name)
		}
	}
	main := basedOn("base")
	main.Rules = []nfdv1alpha1.Rule{rule("x"), rule("from")}
	got, err := Assemble(Document{Name: "m", Spec: main}, lookupIn(map[string]*nfdv1alpha1.NodeFeatureRuleSpec{"base": spec}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(Canonical(spec)), string(Canonical(got.Spec))); diff != "" {
		t.Errorf("-base +inherited\n%s", diff)
	}
	doc, err := ParseYAML("m", []byte("{basedOn: base, rules: [{name: x}, {name: from}]}"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := AssembleYAML([]*YAML{doc}, yamlDocs{"base": base}.load, YAMLOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if again.Hash != got.Hash {
		t.Errorf("the YAML face gives %s", yamltree.JSON(again.Spec))
	}
}

func TestAssembleNamesSources(t *testing.T) {
	specs := map[string]*nfdv1alpha1.NodeFeatureRuleSpec{
		"base": {Rules: []nfdv1alpha1.Rule{rule("shared", "b", "1"), rule("theirs"), rule(Wildcard, "w", "1")}},
	}
	main := basedOn("base")
	main.Rules = []nfdv1alpha1.Rule{rule("shared", "m", "1"), rule("ours")}
	got, err := Assemble(Document{Name: "base", Spec: main}, lookupIn(specs))
	if err != nil {
		t.Fatal(err)
	}
	want := []Source{
		{Rule: "shared", From: []string{"NodeFeatureRule/base", "base"}},
		{Rule: "theirs", From: []string{"base"}},
		{Rule: "ours", From: []string{"NodeFeatureRule/base", "base"}},
	}
	if diff := cmp.Diff(want, got.Rules); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	origins := []nfdv1alpha1.RuleOrigin{{Rule: "shared", From: "base"}, {Rule: "theirs", From: "base"}, {Rule: "ours", From: "base"}}
	if diff := cmp.Diff(origins, got.Origins()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestAssembleLayersNeverContradict(t *testing.T) {
	// The default template is based on a template that main also names. As a last base of main, this would be a contradiction.
	specs := map[string]*nfdv1alpha1.NodeFeatureRuleSpec{"common": {Rules: []nfdv1alpha1.Rule{rule("c", "from", "common")}}, "default": basedOn("common")}
	specs["default"].Rules = []nfdv1alpha1.Rule{rule("c", "from", "default", "by", "default")}
	main := basedOn("common")
	layers := []Document{{Name: "m", Spec: main}, {Name: "default", Template: true, Spec: specs["default"]}}
	got, err := AssembleLayers(layers, lookupIn(specs))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"from": "common", "by": "default"}, got.Spec.Rules[0].Labels); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestCanonicalIgnoresHowAbsenceIsWritten(t *testing.T) {
	texts := []string{
		`{rules: [{name: x}]}`,
		`{rules: [{name: x, labels: {}, conditions: [], labelsTemplate: "", matchAny: null}], priority: null}`,
	}
	var digests []string
	for _, text := range texts {
		var n yaml.Node
		if err := yaml.Unmarshal([]byte(text), &n); err != nil {
			t.Fatal(err)
		}
		spec, err := Typed(n.Content[0])
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, Digest(spec))
	}
	if digests[0] != digests[1] {
		t.Errorf("digests differ: %s, %s", digests[0], digests[1])
	}
}

// TestCanonicalIsFrozen: users write the digest of a base into their objects.
func TestCanonicalIsFrozen(t *testing.T) {
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(`{priority: 0, sensitive: false, nodeSelector: {matchLabels: {b: "1", a: ""}}, rules: [
	  {name: "a\"b\\c\u00e9<\u0001\u007f~", labels: {z: "1", a: "2"}, loop: {z: 1.50, a: [true, null]}, matchFeatures: [{feature: a.b, matchExpressions: {}}],
	   taints: [{key: k, effect: NoSchedule}], actions: [{op: log, args: {msg: x, level: info}}], varsTemplate: ""}]}`), &n); err != nil {
		t.Fatal(err)
	}
	spec, err := Typed(n.Content[0])
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"nodeSelector":{"matchLabels":{"a":"","b":"1"}},"priority":0,"rules":[{"actions":[{"args":{"level":"info","msg":"x"},"op":"log"}],` +
		`"labels":{"a":"2","z":"1"},"loop":{"a":[true,null],"z":1.5},"matchFeatures":[{"feature":"a.b","matchExpressions":{}}],` +
		`"name":"a\"b\\cé<\u0001` + "\x7f" + `~","taints":[{"effect":"NoSchedule","key":"k"}]}],"sensitive":false}`
	if got := string(Canonical(spec)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func BenchmarkAssemble(b *testing.B) {
	specs := map[string]*nfdv1alpha1.NodeFeatureRuleSpec{"site": {}, "gpu": basedOn("site")}
	for i := range 50 {
		for _, base := range []string{"site", "gpu"} {
			r := rule(fmt.Sprintf("rule-%d", i), base+"/a", "1", base+"/b", "{n1}")
			r.MatchFeatures = nfdv1alpha1.FeatureMatcher{{Feature: "cpu.cpuid", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{"AVX": {Op: nfdv1alpha1.MatchExists}}}}
			specs[base].Rules = append(specs[base].Rules, r)
		}
	}
	mains := make([]Document, 200)
	for d := range mains {
		spec := basedOn("gpu", "site")
		for i := range 50 {
			spec.Rules = append(spec.Rules, rule(fmt.Sprintf("rule-%d", i), "own", fmt.Sprint(d)))
		}
		mains[d] = Document{Name: fmt.Sprint("m", d), Spec: spec}
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, m := range mains {
			if _, err := Assemble(m, lookupIn(specs)); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/200documents")
}

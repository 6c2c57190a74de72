package rules_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

// TestPlaceHidesKeysOfTheAuthor: positions in lists are not secret, names in maps can be.
func TestPlaceHidesKeysOfTheAuthor(t *testing.T) {
	for path, want := range map[string]string{
		"spec.rules[0].labels[secret]": "spec.rules[0].labels", "spec.rules[9].taints[10].key": "spec.rules[9].taints[10].key",
		"spec.rules": "spec.rules", "vars[a][0]": "vars",
	} {
		if got := rules.Place(path); got != want {
			t.Errorf("%s is shown as %s, want %s", path, got, want)
		}
	}
}

// TestSensitiveRulesNameNoKeyThatTheyMayNotWrite: what is missing says so, since its author has to know; all else is withheld.
func TestSensitiveRulesNameNoKeyThatTheyMayNotWrite(t *testing.T) {
	set, report := rules.CompileSpec("o", parseSpec(t, `{sensitive: true, rules: [
	  {name: r, labelsTemplate: "kubernetes.io/hostname=x", matchFeatures: [{feature: a.b}], labels: {absent: "{@no.such.thing}"}}]}`), rules.Options{})
	if set == nil {
		t.Fatal(report.Errors.ToAggregate())
	}
	in := rules.Input{Facts: facts.FromMap(map[string]facts.Feature{"a.b": {Flags: facts.NewFlags("x")}}, nil)}
	var got []string
	for _, r := range rules.Link(rules.Options{}, set).Eval(in).Rejected() {
		got = append(got, r.Key+": "+r.Reason)
	}
	slices.Sort(got)
	want := []string{"(withheld): it refers to something that this node does not have", "(withheld): no rule may write it"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestOneWrongPartIsReported compiles rules of which one part is wrong, and a string in which nothing is expanded.
func TestOneWrongPartIsReported(t *testing.T) {
	for text, want := range map[string]string{
		`{name: r, labels: {a: "{{ .Values.x }}"}}`:                                                 "a Go template belongs in labelsTemplate",
		`{name: r, nodeConditions: [{type: v.io/A, status: "{rakc}", reason: R, message: m}]}`:      "unknown name rakc",
		`{name: r, nodeConditions: [{type: v.io/A, status: "True", reason: "{rakc}", message: m}]}`: "unknown name rakc",
		`{name: r, nodeConditions: [{type: "v.io/{rakc}", status: "True", reason: R, message: m}]}`: "unknown name rakc",
	} {
		_, report := rules.CompileSpec("o", parseSpec(t, `{rules: [`+text+`]}`), rules.Options{})
		if all := report.Errors.ToAggregate(); all == nil || !strings.Contains(all.Error(), want) {
			t.Errorf("%s: %v, want %q", text, all, want)
		}
	}
	_, report := rules.CompileSpec("o", parseSpec(t, `{rules: [{name: r, expressions: Disabled, annotations: {a: "{{ .Values.x }}"}}]}`), rules.Options{})
	if !report.OK() {
		t.Errorf("a string without expressions is rejected: %v", report.Errors.ToAggregate())
	}
}

package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
)

// ruleSet compiles an object with one rule, which is given without its name, or with several in a list.
func ruleSet(t *testing.T, name, body string) *rules.RuleSet {
	t.Helper()
	return compile(t, fmt.Sprintf("metadata: {name: %s}\nspec: {rules: [{name: r, %s}]}", name, body), rules.Options{})
}

const feature = "feature.node.kubernetes.io/"

// TestAnObjectMayGiveWhatItsSourceShows lists keys that an object may write on some node, and whether its source names them.
func TestAnObjectMayGiveWhatItsSourceShows(t *testing.T) {
	const matchers = `matchFeatures: [{feature: test.attr, matchExpressions: {a: {op: Exists}}}]`
	for name, tc := range map[string]struct {
		rule           string
		kind           keys.Kind
		key            string
		mayGive, names bool
	}{
		"Label":                {`labels: {a: "1"}`, keys.Label, feature + "a", true, true},
		"OtherLabel":           {`labels: {a: "1"}`, keys.Label, feature + "b", false, false},
		"OtherKind":            {`labels: {a: "1"}`, keys.Annotation, feature + "a", false, false},
		"Annotation":           {`annotations: {a: "1"}`, keys.Annotation, feature + "a", true, true},
		"Resource":             {`extendedResources: {a: "1"}`, keys.Resource, feature + "a", true, true},
		"FullName":             {`labels: {vendor.io/a: "1"}`, keys.Label, "vendor.io/a", true, true},
		"Variable":             {`vars: {a: "1"}`, keys.Label, feature + "a", false, false},
		"ComputedName":         {`labels: {"{node.name}": "1"}`, keys.Label, feature + "n1", true, false},
		"ComputedNameOfAKind":  {`labels: {"{node.name}": "1"}`, keys.Annotation, feature + "n1", false, false},
		"Action":               {`actions: [{op: log, args: {msg: hello}}]`, keys.Resource, "vendor.io/a", true, false},
		"Taint":                {`taints: [{key: vendor.io/a, effect: NoSchedule}]`, keys.Taint, "vendor.io/a:NoSchedule", true, true},
		"TaintValue":           {`taints: [{key: vendor.io/a, value: "{node.name}", effect: NoSchedule}]`, keys.Taint, "vendor.io/a:NoSchedule", true, true},
		"TaintOtherName":       {`taints: [{key: vendor.io/a, effect: NoSchedule}]`, keys.Taint, "vendor.io/b:NoSchedule", true, false},
		"TaintOtherEffect":     {`taints: [{key: vendor.io/a, effect: NoSchedule}]`, keys.Taint, "vendor.io/a:NoExecute", true, false},
		"TaintComputedName":    {`taints: [{key: "vendor.io/{node.name}", effect: NoSchedule}]`, keys.Taint, "vendor.io/n1:NoSchedule", true, false},
		"NoTaint":              {`labels: {a: "1"}`, keys.Taint, "vendor.io/a:NoSchedule", false, false},
		"TaintOnly":            {`taints: [{key: vendor.io/a, effect: NoSchedule}]`, keys.Condition, "vendor.io/a", false, false},
		"NodeCondition":        {`nodeConditions: [{type: vendor.io/A, status: "True", reason: R, message: m}]`, keys.Condition, "vendor.io/A", true, true},
		"ConditionMessage":     {`nodeConditions: [{type: vendor.io/A, status: "True", reason: R, message: "{node.name}"}]`, keys.Condition, "vendor.io/A", true, true},
		"ConditionOtherName":   {`nodeConditions: [{type: vendor.io/A, status: "True", reason: R, message: m}]`, keys.Condition, "vendor.io/B", true, false},
		"ConditionComputed":    {`nodeConditions: [{type: "vendor.io/{node.name}", status: "True", reason: R, message: m}]`, keys.Condition, "vendor.io/n1", true, false},
		"NodeConditionOnly":    {`nodeConditions: [{type: vendor.io/A, status: "True", reason: R, message: m}]`, keys.Taint, "vendor.io/A", false, false},
		"Template":             {`labelsTemplate: "a=1\nvendor.io/b=2", ` + matchers, keys.Label, feature + "a", true, true},
		"TemplateFullName":     {`labelsTemplate: "a=1\nvendor.io/b=2", ` + matchers, keys.Label, "vendor.io/b", true, true},
		"TemplateOtherName":    {`labelsTemplate: "a=1\nvendor.io/b=2", ` + matchers, keys.Label, feature + "c", false, false},
		"TemplateOtherPrefix":  {`labelsTemplate: "a=1\nvendor.io/b=2", ` + matchers, keys.Label, "vendor.io/a", false, false},
		"TemplateOtherKind":    {`labelsTemplate: "a=1", ` + matchers, keys.Annotation, feature + "a", false, false},
		"TemplateBeginning":    {`labelsTemplate: "{{range .test.attr}}is-{{.Name}}=1\n{{end}}", ` + matchers, keys.Label, feature + "is-a", true, true},
		"TemplateNoBeginning":  {`labelsTemplate: "{{range .test.attr}}is-{{.Name}}=1\n{{end}}", ` + matchers, keys.Label, feature + "has-a", false, false},
		"TemplateAny":          {`labelsTemplate: "{{range .test.attr}}{{.Name}}=1\n{{end}}", ` + matchers, keys.Label, feature + "a", true, false},
		"TemplateAnyOtherKind": {`labelsTemplate: "{{range .test.attr}}{{.Name}}=1\n{{end}}", ` + matchers, keys.Resource, feature + "a", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			set := ruleSet(t, "o", tc.rule)
			if got := set.MayGive(tc.kind, tc.key); got != tc.mayGive {
				t.Errorf("MayGive: %t, want %t", got, tc.mayGive)
			}
			if got := set.Names(tc.kind, tc.key); got != tc.names {
				t.Errorf("Names: %t, want %t", got, tc.names)
			}
		})
	}
}

// TestAFingerprintCoversWhatAnObjectReads changes another object, and compares the fingerprints of the one that reads it, or does not.
func TestAFingerprintCoversWhatAnObjectReads(t *testing.T) {
	reads := func(feature, element string) string {
		return fmt.Sprintf(`labels: {read: "1"}, matchFeatures: [{feature: %s, matchExpressions: {%s: {op: Exists}}}]`, feature, element)
	}
	const all = `labels: {read: "1"}, matchFeatures: [{feature: rule.matched, matchName: {op: InRegexp, value: ["^k"]}}]`
	for name, tc := range map[string]struct {
		reader, before, after string
		early, changes        bool
	}{
		"Label":            {reads("rule.matched", "kind"), `labels: {kind: "1"}`, `labels: {kind: "2"}`, false, true},
		"Variable":         {reads("rule.matched", "kind"), `vars: {kind: "1"}`, `vars: {kind: "2"}`, false, true},
		"OtherLabel":       {reads("rule.matched", "kind"), `labels: {other: "1"}`, `labels: {other: "2"}`, false, false},
		"Annotation":       {reads("rule.matched", "kind"), `annotations: {kind: "1"}`, `annotations: {kind: "2"}`, false, false},
		"AnyLabel":         {all, `labels: {other: "1"}`, `labels: {other: "2"}`, false, true},
		"AnyVariable":      {all, `vars: {other: "1"}`, `vars: {other: "2"}`, false, true},
		"AnyAnnotation":    {all, `annotations: {other: "1"}`, `annotations: {other: "2"}`, false, false},
		"AnyOfATemplate":   {all, `labelsTemplate: "a=1"`, `labelsTemplate: "a=2"`, false, true},
		"LabelsTemplate":   {reads("rule.matched", "kind"), `labelsTemplate: "a=1"`, `labelsTemplate: "a=2"`, false, true},
		"VarsTemplate":     {reads("rule.matched", "kind"), `varsTemplate: "a=1"`, `varsTemplate: "a=2"`, false, true},
		"ComputedName":     {reads("rule.matched", "kind"), `labels: {"{node.name}": "1"}`, `labels: {"{node.name}": "2"}`, false, true},
		"Action":           {reads("rule.matched", "kind"), `actions: [{op: set-var, args: {name: a, value: "1"}}]`, `actions: [{op: set-var, args: {name: a, value: "2"}}]`, false, true},
		"PublishedFeature": {reads("test.attr", "a"), `labels: {a: "1"}`, `labels: {a: "2"}`, false, false},
		"DerivedFeature": {
			reads("site.gear", "a"), `actions: [{op: set-feature, args: {feature: site.gear, element: a, value: "1"}}]`,
			`actions: [{op: set-feature, args: {feature: site.gear, element: a, value: "2"}}]`, true, true,
		},
		"OtherDerivedFeature": {
			reads("site.gear", "a"), `actions: [{op: set-feature, args: {feature: site.other, element: a, value: "1"}}]`,
			`actions: [{op: set-feature, args: {feature: site.other, element: a, value: "2"}}]`, true, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			phase := "main"
			if tc.early {
				phase = "early"
			}
			print := func(other string) string {
				set := compile(t, fmt.Sprintf("metadata: {name: other}\nspec: {phase: %s, rules: [{name: r, %s}]}", phase, other), rules.Options{})
				return rules.Link(rules.Options{}, set, ruleSet(t, "reader", tc.reader)).Fingerprints("")["reader"]
			}
			before := print(tc.before)
			if again := print(tc.before); again != before {
				t.Errorf("the fingerprint is not stable: %q, then %q", before, again)
			}
			if got := before != print(tc.after); got != tc.changes {
				t.Errorf("the fingerprint changes: %t, want %t", got, tc.changes)
			}
		})
	}
}

// TestAFingerprintFollowsChainsOfObjects changes the first of three objects, of which the second reads the first, and the third the
// second. Two others read each other.
func TestAFingerprintFollowsChainsOfObjects(t *testing.T) {
	chain := func(name, reads string) *rules.RuleSet {
		return ruleSet(t, name, fmt.Sprintf(`labels: {%s: "1"}, matchFeatures: [{feature: rule.matched, matchExpressions: {%s: {op: Exists}}}]`, name, reads))
	}
	prints := func(value string) map[string]string {
		return rules.Link(rules.Options{}, ruleSet(t, "a", `labels: {a: "`+value+`"}`), chain("b", "a"), chain("c", "b"), chain("x", "y"), chain("y", "x")).Fingerprints("")
	}
	before, after := prints("1"), prints("2")
	var changed []string
	for _, name := range []string{"a", "b", "c", "x", "y"} {
		if before[name] != after[name] {
			changed = append(changed, name)
		}
	}
	if want := []string{"a", "b", "c"}; !slices.Equal(changed, want) {
		t.Errorf("fingerprints of %v change, want %v", changed, want)
	}
}

func TestAnObjectIsIdentifiedByItsUID(t *testing.T) {
	set := ruleSet(t, "o", `labels: {a: "1"}`)
	if got := set.ID(); got != "o" {
		t.Errorf("without a UID the ID is %q", got)
	}
	set.UID = "u-1"
	if got := set.ID(); got != "u-1" {
		t.Errorf("the ID is %q, want the UID", got)
	}
}

// names returns the names of objects.
func names(sets ...*rules.RuleSet) string {
	var out []string
	for _, s := range sets {
		if s != nil {
			out = append(out, s.Name)
		}
	}
	return strings.Join(out, " ")
}

// TestAnOutcomeKnowsWhoGaveAKey sets, requests and deletes labels.
func TestAnOutcomeKnowsWhoGaveAKey(t *testing.T) {
	one := ruleSet(t, "one", `labels: {a: "1", lost: "1", gone: "1"}, annotations: {a: "1"}`)
	two := compile(t, `
metadata: {name: two}
spec:
  rules:
  - name: r
    labels: {b: "1"}
    taints: [{key: vendor.io/t, effect: NoSchedule}]
    actions:
    - {op: del-attribute, args: {path: /labels/gone}}
`, rules.Options{})
	o := rules.Link(rules.Options{}, one, two).Eval(rules.Input{
		Facts: facts.FromMap(nil, nil), Labels: map[string]string{"requested": "1"},
	})
	for _, tc := range []struct {
		kind keys.Kind
		key  string
		want string // name of the object
		ok   bool
	}{
		{keys.Label, feature + "a", "one", true},
		{keys.Annotation, feature + "a", "one", true},
		{keys.Label, feature + "b", "two", true},
		{keys.Label, feature + "requested", "", true},
		{keys.Label, feature + "gone", "", false},
		{keys.Label, feature + "unknown", "", false},
		{keys.Label, "", "", false},
		{keys.Taint, "vendor.io/t:NoSchedule", "two", true},
		{"no such kind", feature + "a", "", false},
	} {
		set, ok := o.Owner(tc.kind, tc.key)
		if got := names(set); got != tc.want || ok != tc.ok {
			t.Errorf("%s %q is given by %q, %t", tc.kind, tc.key, got, ok)
		}
		if _, ok := o.Origin(tc.kind, tc.key); ok != tc.ok {
			t.Errorf("%s %q has an origin: %t, want %t", tc.kind, tc.key, ok, tc.ok)
		}
	}
	for key, want := range map[string]string{feature + "gone": "two", feature + "a": ""} {
		if got := names(o.Deleters(keys.Label, key)...); got != want {
			t.Errorf("%s is deleted by %q, want %q", key, got, want)
		}
	}
	if got := o.Deleters(keys.Annotation, feature+"gone"); got != nil {
		t.Errorf("an annotation is deleted by %v", got)
	}
	var all []string
	for g := range o.Given() {
		name := "NodeFeature"
		if g.Set != nil {
			name = g.Set.Name
		}
		all = append(all, fmt.Sprint(g.Kind, " ", g.Key, "=", g.Value, " by ", name))
	}
	slices.Sort(all)
	want := []string{
		"annotation " + feature + "a=1 by one", "label " + feature + "a=1 by one", "label " + feature + "b=1 by two", "label " + feature + "lost=1 by one",
		"label " + feature + "requested=1 by NodeFeature", "taint vendor.io/t:NoSchedule= by two",
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("all given (-want +got):\n%s", diff)
	}
	for range o.Given() {
		break
	}
	var matched []string
	o.Matched(func(object string) { matched = append(matched, object) })
	if !slices.Equal(matched, []string{"one", "two"}) {
		t.Errorf("matched: %v", matched)
	}
}

// TestEachObjectMatchesOnce: an object counts once however many of its rules match, and not at all if none does.
func TestEachObjectMatchesOnce(t *testing.T) {
	several := compile(t, `
metadata: {name: several}
spec:
  rules:
  - {name: a, labels: {a: "1"}}
  - {name: b, labels: {b: "1"}}
`, rules.Options{})
	never := ruleSet(t, "never", `labels: {c: "1"}, matchFeatures: [{feature: no.such, matchExpressions: {a: {op: Exists}}}]`)
	var matched []string
	rules.Link(rules.Options{}, several, never).Eval(rules.Input{}).Matched(func(object string) { matched = append(matched, object) })
	if !slices.Equal(matched, []string{"several"}) {
		t.Errorf("matched: %v, want the object with matching rules once", matched)
	}
}

func TestOnlyPhasesBeforeMainAreEarly(t *testing.T) {
	for phase, want := range map[string]bool{"early": true, "preprocess": true, "main": false} {
		set := compile(t, "metadata: {name: o}\nspec: {phase: "+phase+", rules: [{name: r, vars: {a: \"1\"}}]}", rules.Options{})
		if got := set.Early(); got != want {
			t.Errorf("phase %s is early: %t, want %t", phase, got, want)
		}
		if set.ReadsOthers() {
			t.Errorf("phase %s: the object reads others", phase)
		}
	}
	reader := ruleSet(t, "o", `labels: {a: "1"}, matchFeatures: [{feature: rule.matched, matchExpressions: {b: {op: Exists}}}]`)
	if !reader.ReadsOthers() {
		t.Error("an object that reads rule.matched reads others")
	}
}

// TestMaskedElements matches names of elements with patterns.
func TestMaskedElements(t *testing.T) {
	for _, tc := range []struct {
		mask    rules.Masking
		element string
		want    bool
	}{
		{rules.Masking{}, "password", true},
		{rules.Masking{}, "DB_Password_2", true},
		{rules.Masking{}, "passwor", false},
		{rules.Masking{Mode: rules.MaskNever}, "password", false},
		{rules.Masking{Mode: rules.MaskSensitive}, "api-token", true},
		{rules.Masking{Elements: []string{"serial"}}, "serial", true},
		{rules.Masking{Elements: []string{"serial"}}, "serial-2", false},
		{rules.Masking{Elements: []string{"serial"}}, "password", false},
		{rules.Masking{Elements: []string{"id-*"}}, "id-1", true},
		{rules.Masking{Elements: []string{"id-*"}}, "my-id-1", false},
		{rules.Masking{Elements: []string{"*-id"}}, "my-id", true},
		{rules.Masking{Elements: []string{"*-id"}}, "my-id-1", false},
		{rules.Masking{Elements: []string{"a*b*c"}}, "axbxc", true},
		{rules.Masking{Elements: []string{"a*b*c"}}, "axxc", false},
		{rules.Masking{Elements: []string{"ab*ba"}}, "aba", false},
	} {
		if got := tc.mask.Hides(tc.element); got != tc.want {
			t.Errorf("%+v hides %q: %t, want %t", tc.mask, tc.element, got, tc.want)
		}
	}
}

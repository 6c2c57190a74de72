package rules_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/test/bench"
)

// repeated returns a spec of n rules with the given body, in which %d is the number of the rule.
func repeated(n int, body string) string {
	var all []string
	for i := range n {
		all = append(all, strings.ReplaceAll("{name: r%d, "+body+"}", "%d", fmt.Sprint(i)))
	}
	return "{rules: [" + strings.Join(all, ",\n") + "]}"
}

// largeSpecs are within all limits of their parts, but take between 10 MB and gigabytes without a limit on their sum.
var largeSpecs = map[string]string{
	"Patterns":           repeated(60, "matchFeatures: [{feature: a.b, matchName: {op: InRegexp, value: ["+numbered(200, "'(a{20}){20}.%d-#'")+"]}}]"),
	"CharacterClasses":   repeated(60, `matchFeatures: [{feature: a.b, matchName: {op: InRegexp, value: [`+numbered(200, `'[\pL\pN]%d-#'`)+`]}}]`),
	"Words":              repeated(60, "matchFeatures: [{feature: a.b, matchName: {op: InRegexp, value: ["+numbered(200, "'^(a|b|c|d)(a|b|c|d)%d-#'")+"]}}]"),
	"Values":             repeated(256, "matchFeatures: [{feature: a.b, matchExpressions: {"+numbered(60, "e#: {op: In, value: [%d, "+numbered(60, "v#")+"]}")+"}}]"),
	"Alternatives":       repeated(256, "matchAny: ["+numbered(64, "{matchFeatures: [{feature: a.b}]}")+"]"),
	"PatternsConditions": repeated(200, "conditions: ["+numbered(60, "{op: matches, args: {value: '{node}', regex: '(a{30}){30}%d#'}}")+"]"),
	"Conditions":         repeated(200, "conditions: ["+numbered(60, "{op: one-of, args: {value: '{node}', values: [1, 2, 3, 4, 5, 6, 7, 8]}}")+"]"),
	"Actions":            repeated(200, "actions: ["+numbered(60, "{op: set-var, args: {name: a, value: '{node}{node}'}}")+"]"),
	"Labels":             repeated(250, "labels: {"+numbered(250, "l#: x")+"}"),
	"Expressions":        repeated(100, "labels: {"+numbered(200, "l#: '{@a.b.c+1+1+1+1+1+1+1}'")+"}"),
	"Taints":             repeated(256, "taints: ["+numbered(64, "{key: example.com/a#, effect: NoSchedule}")+"]"),
	"Templates":          repeated(16, "matchFeatures: [{feature: a.b}], labelsTemplate: '{{/*%d*/}}"+strings.Repeat("{{and 1 1 1 1 1 1 1 1 1}}", 2500)+"'"),
	"PatternsTemplates":  repeated(8, "matchFeatures: [{feature: a.b}], labelsTemplate: '"+numbered(1500, `{{regexMatch "(a{30}){30}%d#" "x"}}`)+"'"),
}

// numbered returns n copies of an item, with # replaced by the number of the copy.
func numbered(n int, item string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = strings.ReplaceAll(item, "#", fmt.Sprint(i))
	}
	return strings.Join(all, ",")
}

// underRace is set if the race detector is enabled, which allocates additional memory.
var underRace bool

// TestLargeObjectsAreCutOff compiles objects that are far too large: the memory of the result and of the compilation is bounded,
// and an error reports the first rule that is left out.
func TestLargeObjectsAreCutOff(t *testing.T) {
	if underRace {
		t.Skip("the race detector allocates memory of its own")
	}
	const kept, garbage = 5 << 20, 40 << 20
	for name, text := range largeSpecs {
		t.Run(name, func(t *testing.T) {
			var spec nfdv1alpha1.NodeFeatureRuleSpec
			if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
				t.Fatal(err)
			}
			before, allocated := memory()
			set, report := rules.CompileSpec("large", &spec, rules.Options{})
			found := len(report.Errors) == 1 && report.Errors[0].Type == field.ErrorTypeForbidden &&
				report.Errors[0].Field == fmt.Sprintf("spec.rules[%d]", set.Len())
			if !found || !report.Over || !strings.Contains(report.Errors[0].Detail, "more than 4194304 bytes of memory when it is compiled; split it") {
				t.Errorf("with %d rules compiled, the author reads %.1000v", set.Len(), report.Errors)
			}
			report.Errors, report.Warnings = nil, nil
			after, all := memory()
			if n := after - before; n > kept {
				t.Errorf("%d bytes are kept, want at most %d", n, kept)
			}
			if n := all - allocated; n > garbage {
				t.Errorf("compiling took %d bytes, want at most %d", n, garbage)
			}
			if set.Size() > rules.MaxSize {
				t.Errorf("the set counts %d bytes, want at most %d", set.Size(), rules.MaxSize)
			}
			runtime.KeepAlive(set)
		})
	}
}

// memory returns the number of bytes in use, and of those allocated so far.
func memory() (live, allocated int) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc), int(m.TotalAlloc) //nolint:gosec // far below
}

func TestOrdinaryRulesAreFarBelowTheBudgets(t *testing.T) {
	var list nfdv1alpha1.NodeFeatureRuleList
	bench.Read(t, "rules-500", &list)
	sum := 0
	for i := range list.Items {
		set, _ := rules.Compile(&list.Items[i], rules.Options{})
		sum += set.Size()
		if set.Size() > rules.MaxSize/20 {
			t.Errorf("%s counts %d bytes of %d", list.Items[i].Name, set.Size(), rules.MaxSize)
		}
	}
	if sum == 0 || sum > rules.MaxClusterSize/8 {
		t.Errorf("500 rules count %d bytes of %d", sum, rules.MaxClusterSize)
	}
}

func TestRequirementIsBounded(t *testing.T) {
	var terms nfdv1alpha1.FeatureMatcher
	text := "[{feature: a.b, matchName: {op: InRegexp, value: [" + numbered(144, "'(a{20}){20}.#'") + "]}}]"
	if err := yaml.UnmarshalStrict([]byte(text), &terms); err != nil {
		t.Fatal(err)
	}
	before, _ := memory()
	q, report := rules.CompileRequirement(field.NewPath("spec", "required"), terms, nil, nil, rules.Options{})
	after, _ := memory()
	const want = "spec.required: Forbidden: takes more than 524288 bytes of memory when it is compiled"
	if q != nil || len(report.Errors) != 1 || !strings.HasPrefix(report.Errors[0].Error(), want) {
		t.Errorf("got %v, %v; want %s", q, report.Errors, want)
	}
	if n := after - before; n > 1<<20 {
		t.Errorf("%d bytes are kept", n)
	}
}

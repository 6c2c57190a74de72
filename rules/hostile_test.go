package rules_test

import (
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

// hostile is a rule that uses as much as its fields allow.
type hostile struct {
	spec string
	// says is the error of the rule, or the reason why an output is left out, as the administrator reads it.
	says string
}

// actions returns a rule that runs an action 32 times for each of 256 items, nearly the maximum.
func actions(phase, op, args string) string { return loop(phase, 32, op, args) }

func loop(phase string, times int, op, args string) string {
	one := fmt.Sprintf("{op: %s, args: {%s}}", op, args)
	return fmt.Sprintf(`{phase: %s, rules: [{name: greedy, loop: "{@big.thing}", actions: [%s]}]}`, phase, list(times, one))
}

func list(n int, item string) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }

// entries returns a map of n keys. In each key, %d is replaced by its number.
func entries(n int, key, value string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s: %s,", fmt.Sprintf(key, i), value)
	}
	return "{" + strings.TrimSuffix(b.String(), ",") + "}"
}

// patterns are regular expressions that require an automaton and match nothing.
var patterns = func() string {
	var all []string
	for i := range 200 {
		all = append(all, fmt.Sprintf("'(e|l|el|[0-9]|-)*%d!'", i))
	}
	return strings.Join(all, ",")
}()

var kilobyte = strings.Repeat("x", 1000)

var hostileRules = map[string]hostile{
	"ListInAnAnnotation":      {actions("main", "extend-attribute", `path: /annotations/a, value: `+kilobyte), "longer than 1024 bytes"},
	"OtherItemsInAList":       {actions("main", "extend-attribute", `path: /annotations/a, unique: true, value: "{item.i}-`+kilobyte+`"`), "more than 20000 steps"},
	"Annotations":             {actions("main", "set-attribute", `path: "/annotations/a{item.i}", value: `+kilobyte), "more than 20000 steps"},
	"ListInAVariable":         {actions("main", "extend-var", `name: a, value: `+kilobyte), "more than 20000 steps"},
	"ShortItemsInAVariable":   {actions("main", "extend-var", `name: a, value: x`), "more than 256 items"},
	"Variable":                {actions("main", "set-var", `name: "a{item.i}", value: `+kilobyte), "more than 20000 steps"},
	"VariableOfAList":         {actions("main", "set-var", `name: a, value: [`+list(20, kilobyte)+`]`), "more than 20000 steps"},
	"LogLines":                {actions("main", "log", `msg: `+kilobyte), "256 lines"},
	"Events":                  {actions("main", "event", `reason: A, msg: `+kilobyte), "256 Events"},
	"Taints":                  {loop("main", 8, "extend-attribute", `path: /taints, value: {key: "a.b/c{item.i}", effect: NoSchedule}`), "64 taints"},
	"TaintsLookedThrough":     {loop("main", 8, "extend-attribute", `path: /taints, unique: true, value: {key: "a.b/c{item.i}", effect: NoSchedule}`), "64 taints"},
	"NamesNobodyMayWrite":     {loop("main", 8, "set-attribute", `path: "/labels/kubernetes.io~1hostname{item.i}", value: x`), "kubernetes.io"},
	"ListInAFeature":          {actions("early", "extend-feature", `feature: a.b, element: c, value: `+kilobyte), "more than 4096 bytes"},
	"OtherItemsInAFeature":    {loop("early", 8, "extend-feature", `feature: a.b, element: c, unique: true, value: "{item.i}"`), ""},
	"CopiesOfALargeFeature":   {actions("early", "set-feature", `feature: wide.thing, element: c, value: d`), ""},
	"CopiesOfManyInstances":   {actions("early", "set-instance-attribute", `feature: many.things, match: {kind: x}, name: z, value: y`), "more than 20000 steps"},
	"ListsInManyInstances":    {actions("early", "extend-instance-attribute", `feature: many.things, match: {kind: x}, name: z, value: y`), "more than 20000 steps"},
	"LiteralsInALoop":         {`{rules: [{name: greedy, loop: "{@big.thing}", vars: ` + entries(256, "v%d", "x") + `, labels: ` + entries(256, "l%d", "x") + `}]}`, "more than 20000 steps"},
	"TemplateInALoop":         {`{rules: [{name: greedy, loop: "{@big.thing}", labelsTemplate: "{{range 50000}}{{end}}a=1", matchFeatures: [{feature: wide.thing}]}]}`, "more than 200000 steps"},
	"TemplateForAlternatives": {`{rules: [{name: greedy, labelsTemplate: "{{range 50000}}{{end}}a=1", matchAny: [` + list(64, "{matchFeatures: [{feature: wide.thing}]}") + `]}]}`, "more than 200000 steps"},
	"PatternsForAlternatives": {`{rules: [{name: greedy, matchAny: [` + list(60, "{matchFeatures: [{feature: wide.thing, matchName: {op: InRegexp, value: ["+patterns+"]}}]}") + `]}]}`, "use fewer or simpler patterns"},
	"PatternsForInstances":    {`{rules: [{name: greedy, matchAny: [` + list(60, "{matchFeatures: [{feature: many.things, matchExpressions: {name: {op: InRegexp, value: ["+patterns+"]}}}]}") + `]}]}`, "use fewer or simpler patterns"},
	"ElementsForAlternatives": {`{rules: [{name: greedy, labelsTemplate: "a=1", matchAny: [` + list(64, "{matchFeatures: [{feature: many.things, matchExpressions: {}}]}") + `]}]}`, "use fewer or simpler patterns"},
	"MemoryOfTemplates":       {`{rules: [{name: greedy, loop: "{@big.thing}", labelsTemplate: "{{$x := repeat 60000 \"a\"}}a=1", matchFeatures: [{feature: wide.thing}]}]}`, "more than 524288 bytes"},
}

// hostileFacts are as large as a worker can publish.
func hostileFacts() *facts.Facts {
	items, things, wide := make([]map[string]string, 256), make([]map[string]string, 4000), map[string]string{}
	for i := range items {
		items[i] = map[string]string{"i": fmt.Sprint(i)}
	}
	for i := range things {
		things[i] = map[string]string{"name": fmt.Sprint(i), "kind": "x"}
		wide[fmt.Sprintf("element-%d-%s", i, kilobyte[:40])] = "y"
	}
	return facts.FromMap(map[string]facts.Feature{
		"big.thing":   {Instances: facts.NewInstances(items)},
		"many.things": {Instances: facts.NewInstances(things)},
		"wide.thing":  {Attributes: facts.NewAttributes(wide)},
	}, nil)
}

func compileSpec(t testing.TB, name, spec string) *rules.RuleSet {
	t.Helper()
	var s nfdv1alpha1.NodeFeatureRuleSpec
	if err := yaml.UnmarshalStrict([]byte(spec), &s); err != nil {
		t.Fatal(err)
	}
	set, report := rules.CompileSpec(name, &s, rules.Options{})
	if !report.OK() {
		t.Fatal(report.Errors)
	}
	return set
}

// complaints returns all errors and rejections of an outcome.
func complaints(o *rules.Outcome) string {
	var b strings.Builder
	for _, r := range o.Rules() {
		if r.Err != nil {
			fmt.Fprintln(&b, r.Ref, r.Err)
		}
	}
	for _, r := range o.Rejected() {
		fmt.Fprintln(&b, r.Ref, r.Key, r.Reason)
	}
	return b.String()
}

// evalWithin evaluates the rules including the merge of labels, and fails the test if that allocates more than bound bytes.
func evalWithin(t *testing.T, program *rules.Program, in rules.Input, bound uint64) (*rules.Outcome, map[string]string) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	o := program.Eval(in)
	labels := o.Labels()
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > bound {
		t.Errorf("it took %d bytes, want at most %d", used, bound)
	}
	return o, labels
}

// TestHostileRulesAreBounded evaluates rules that the API server accepts and that without limits would take gigabytes or hours.
func TestHostileRulesAreBounded(t *testing.T) {
	const bound = 10 << 20 // 8 MB, and a margin for the runtime
	in := rules.Input{Node: rules.Node{Name: "node-1"}, Facts: hostileFacts()}
	good := compileSpec(t, "good", `{rules: [{name: good, labels: {good: "{node}"}, annotations: {good: "1"}}]}`)
	for name, tc := range hostileRules {
		t.Run(name, func(t *testing.T) {
			program := rules.Link(rules.Options{}, compileSpec(t, "a", tc.spec), good)
			o, labels := evalWithin(t, program, in, bound)
			if labels["feature.node.kubernetes.io/good"] != "node-1" {
				t.Error("the other rule has lost its label")
			}
			if got := complaints(o); !strings.Contains(got, tc.says) || (got != "") != (tc.says != "") {
				t.Errorf("the administrator reads %.1000q, want %q", got, tc.says)
			}
		})
	}
}

// TestThousandsOfRules evaluates the rules of twenty full objects, half of which match.
func TestThousandsOfRules(t *testing.T) {
	const objects, each, bound = 20, rules.MaxRules, 8 << 20
	var sets []*rules.RuleSet
	for i := range objects {
		var all []string
		for j := range each {
			all = append(all, fmt.Sprintf(`{name: r%[2]d, labels: {"example.com/l%[1]d-%[2]d": "{n1}"}, matchFeatures: [{feature: big.thing, matchExpressions: {i: {op: In, value: ["%[3]d"]}}}]}`, i, j, j*2))
		}
		sets = append(sets, compileSpec(t, fmt.Sprintf("o%02d", i), "{rules: ["+strings.Join(all, ",")+"]}"))
	}
	program := rules.Link(rules.Options{}, sets...)
	in := rules.Input{Node: rules.Node{Name: "node-7"}, Facts: hostileFacts()}
	o, labels := evalWithin(t, program, in, bound)
	if got := complaints(o); got != "" {
		t.Errorf("the administrator reads %.500q", got)
	}
	if len(labels) != objects*each/2 || labels["example.com/l19-0"] != "7" {
		t.Errorf("%d labels, want %d", len(labels), objects*each/2)
	}
}

// TestHostileRequirementsAreBounded evaluates a pod's requirement on all kinds of nodes while other pods wait.
func TestHostileRequirementsAreBounded(t *testing.T) {
	in := rules.Input{Node: rules.Node{Name: "node-1"}, Facts: hostileFacts()}
	for name, feature := range map[string]string{"Names": "{feature: wide.thing, matchName: {op: InRegexp, value: [%s]}}", "Instances": "{feature: many.things, matchExpressions: {name: {op: InRegexp, value: [%s]}}}"} {
		t.Run(name, func(t *testing.T) {
			var alternatives []nfdv1alpha1.MatchAnyElem
			few := numbered(10, "'([0-9]|e)+[A-C]{1#}'") // a requirement may have a few such patterns; this one contains no literal word
			text := "[" + list(8, "{matchFeatures: ["+fmt.Sprintf(feature, few)+"]}") + "]"
			if err := yaml.UnmarshalStrict([]byte(text), &alternatives); err != nil {
				t.Fatal(err)
			}
			q, report := rules.CompileRequirement(nil, nil, alternatives, nil, rules.Options{})
			if q == nil {
				t.Fatal(report.Errors)
			}
			const want = "use fewer or simpler patterns"
			if ok, err := q.Eval(in, nil); ok || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, %v", ok, err)
			}
			if why := q.Why(in, nil); !strings.Contains(why, want) {
				t.Errorf("it is explained by %q", why)
			}
			if lacks := q.Lacks(in, nil); lacks != "patterns that are too expensive to evaluate" {
				t.Errorf("the event says %q", lacks)
			}
		})
	}
}

// BenchmarkHostileRules reports the cost of each hostile rule.
func BenchmarkHostileRules(b *testing.B) {
	in := rules.Input{Node: rules.Node{Name: "node-1"}, Facts: hostileFacts()}
	for name, tc := range hostileRules {
		b.Run(name, func(b *testing.B) {
			program := rules.Link(rules.Options{}, compileSpec(b, "a", tc.spec))
			b.ReportAllocs()
			for b.Loop() {
				program.Eval(in).Labels()
			}
		})
	}
}

// TestANodeHasRoomForEveryObject writes far too many outputs to a node, together with objects that write few.
func TestANodeHasRoomForEveryObject(t *testing.T) {
	flood := func(field string, n int, key, value string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{name: flood, %s: %s}`, field, entries(256, fmt.Sprintf(key, i, "%d"), value)))
		}
		return "{rules: [" + strings.Join(all, ",") + "]}"
	}
	var taints []string
	for i := range 40 {
		var one []string
		for j := range 64 {
			one = append(one, fmt.Sprintf("{key: example.com/flood-%d-%d, value: x, effect: NoSchedule}", i, j))
		}
		taints = append(taints, "{name: flood, taints: ["+strings.Join(one, ",")+"]}")
	}
	for name, tc := range map[string]struct {
		spec, says string
		size       func(*rules.Outcome) int
		most       int
	}{
		"ThousandsOfLabels": {flood("labels", 16, "l%d-%s", "x"), "node has room for 131072 bytes of labels", func(o *rules.Outcome) int {
			return len(strings.Join(keysOf(o.Labels()), ","))
		}, 128 << 10},
		"LabelsOfAnotherNamespace": {flood("labels", 16, "a-namespace-of-a-vendor.example.com/l%d-%s", "x"), "of labels", func(o *rules.Outcome) int {
			return len(strings.Join(keysOf(o.Labels()), ","))
		}, 65 << 10}, // fits into the record together with the others
		"MegabytesOfAnnotations": {flood("annotations", 5, "a%d-%s", kilobyte), "node has room for 98304 bytes of annotations", func(o *rules.Outcome) (n int) {
			for key, value := range o.Annotations() {
				n += len(key) + len(value)
			}
			return n
		}, 96 << 10},
		"ExtendedResources": {flood("extendedResources", 10, "example.com/r%d-%s", `"1"`), "of extended resources", func(o *rules.Outcome) int {
			return len(strings.Join(keysOf(o.ExtendedResources()), ","))
		}, 16 << 10},
		"Taints": {"{rules: [" + strings.Join(taints, ",") + "]}", "bytes of taints", func(o *rules.Outcome) (n int) {
			for _, taint := range o.Taints() {
				n += len(taint.ToString()) + 1
			}
			return n
		}, 18 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			modest := `{rules: [{name: modest, labels: {%[1]s: "1"}, annotations: {%[1]s: "1"}, extendedResources: {example.com/%[1]s: "1"}, taints: [{key: example.com/%[1]s, effect: NoSchedule}]}]}`
			program := rules.Link(rules.Options{}, compileSpec(t, "a", fmt.Sprintf(modest, "first")), compileSpec(t, "flood", tc.spec), compileSpec(t, "z", fmt.Sprintf(modest, "last")))
			o := program.Eval(rules.Input{Node: rules.Node{Name: "node-1"}, Labels: map[string]string{"feature.node.kubernetes.io/asked": "1"}})
			if n := tc.size(o); n > tc.most {
				t.Errorf("the node gets %d bytes, want at most %d", n, tc.most)
			} else if n < tc.most/2 {
				t.Errorf("the node gets %d bytes, although there is room for %d", n, tc.most)
			}
			for _, key := range []string{"first", "last", "asked"} {
				if o.Labels()["feature.node.kubernetes.io/"+key] == "" {
					t.Errorf("label %s is gone", key)
				}
			}
			taints := fmt.Sprint(o.Taints())
			for _, key := range []string{"first", "last"} {
				if o.Annotations()["feature.node.kubernetes.io/"+key] == "" || o.ExtendedResources()["example.com/"+key] == "" || !strings.Contains(taints, "example.com/"+key) {
					t.Errorf("an output %s is gone", key)
				}
			}
			got := complaints(o)
			if !strings.Contains(got, "flood/flood") || !strings.Contains(got, tc.says) || strings.Count(got, "\n") != 1 {
				t.Errorf("the administrator reads %.500q", got)
			}
		})
	}
}

func keysOf(m map[string]string) (out []string) {
	for key := range maps.Keys(m) {
		out = append(out, key)
	}
	return out
}

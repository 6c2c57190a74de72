package rules_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/suite"
	"github.com/assay-project/assay/test/bench"
)

// evalEach returns the outcomes of EvalEach.
func evalEach(program *rules.Program, inputs []*rules.Input) []*rules.Outcome {
	out := make([]*rules.Outcome, len(inputs))
	program.EvalEach(inputs, func(i int, o *rules.Outcome) bool {
		out[i] = o
		return true
	})
	return out
}

// TestEvalEachAgreesWithEval evaluates random fleets in which some nodes are equal and some differ in one element, and compares all
// outcomes with those of Eval.
func TestEvalEachAgreesWithEval(t *testing.T) {
	for _, size := range []int{10, 100} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			program := benchProgram(t, size)
			random := rand.New(rand.NewPCG(1, uint64(size)))
			in := facts.NewInterner()
			features := [2]*nfdv1alpha1.Features{nodeFeatures(t, "node-0"), nodeFeatures(t, "node-4")}
			var fleet []*rules.Input
			for step := range 100 {
				which := random.IntN(2)
				if random.IntN(2) == 0 {
					change(random, features[which])
				}
				input := &rules.Input{Node: rules.Node{Name: fmt.Sprint("node-", step)}, Facts: facts.New(features[which], in)}
				if n := random.IntN(4); n > 0 {
					input.Labels = map[string]string{"vendor.io/asked": fmt.Sprint(n)}
				}
				fleet = append(fleet, input)
			}
			for i, got := range evalEach(program, fleet) {
				if diff := cmp.Diff(suite.Expect(program.Eval(*fleet[i])), suite.Expect(got)); diff != "" || got.Node != fleet[i].Node.Name {
					t.Fatalf("node %d, outcome of %s (-Eval +EvalEach):\n%s", i, got.Node, diff)
				}
			}
		})
	}
}

func TestEvalEachEndsWhenAsked(t *testing.T) {
	for name, spec := range map[string]nfdv1alpha1.NodeFeatureRuleSpec{
		"Shared":  {Rules: []nfdv1alpha1.Rule{{Name: "r", Labels: map[string]string{"a": "1"}}}},
		"PerNode": {Rules: []nfdv1alpha1.Rule{{Name: "r", Annotations: map[string]string{"vendor.io/n": "{node}"}}}},
	} {
		set, _ := rules.CompileSpec("r", &spec, rules.Options{})
		calls := 0
		rules.Link(rules.Options{}, set).EvalEach([]*rules.Input{{}, {}, {}}, func(i int, _ *rules.Outcome) bool {
			calls++
			return i < 1
		})
		if calls != 2 {
			t.Errorf("%s: %d calls, want 2", name, calls)
		}
	}
}

func nodeFeatures(t *testing.T, name string) *nfdv1alpha1.Features {
	var obj nfdv1alpha1.NodeFeature
	bench.Read(t, name, &obj)
	return &obj.Spec.Features
}

// change makes one to three changes to the features of a node.
func change(random *rand.Rand, f *nfdv1alpha1.Features) {
	for range 1 + random.IntN(3) {
		switch random.IntN(4) {
		case 0:
			set := pick(random, f.Attributes)
			set.Elements[pickKey(random, set.Elements)] = fmt.Sprint(random.IntN(9))
		case 1:
			set := pick(random, f.Flags)
			delete(set.Elements, pickKey(random, set.Elements))
		case 2:
			set := pick(random, f.Instances)
			if len(set.Elements) > 0 {
				attributes := set.Elements[random.IntN(len(set.Elements))].Attributes
				attributes[pickKey(random, attributes)] = fmt.Sprint(random.IntN(9))
			}
		case 3:
			name := pickKey(random, f.Attributes)
			if name != "kernel.config" { // has 4,000 elements; without this exception nearly all changes would be to it
				f.Attributes[name] = nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{"enabled": "true"}}
			}
		}
	}
}

func pick[V any](random *rand.Rand, m map[string]V) V { return m[pickKey(random, m)] }

func pickKey[V any](random *rand.Rand, m map[string]V) string {
	keys := slices.Sorted(maps.Keys(m))
	if len(keys) == 0 {
		return "new"
	}
	return keys[random.IntN(len(keys))]
}

// TestEvalEachAgreesWithEvalNearTheBudget checks that rules for which one node had no budget left are still evaluated on others.
func TestEvalEachAgreesWithEvalNearTheBudget(t *testing.T) {
	// Each rule takes nearly all steps of a rule, and five rules nearly all steps of a node. Only some nodes evaluate the first and
	// the last rule.
	const size = 256
	heavy := func(name, scope string) *nfdv1alpha1.NodeFeatureRule {
		labels := map[string]string{}
		for i := range rules.RuleBudget / size / 4 {
			labels[fmt.Sprintf("%s-%d", name, i)] = "{item.i}"
		}
		return &nfdv1alpha1.NodeFeatureRule{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: nfdv1alpha1.NodeFeatureRuleSpec{Scope: &scope, Rules: []nfdv1alpha1.Rule{{
				Name: name, Labels: labels, Loop: &nfdv1alpha1.JSON{Raw: []byte(`"{@big.thing}"`)},
			}}},
		}
	}
	var sets []*rules.RuleSet
	for i := range 9 {
		scope := ""
		if i == 0 || i == 8 {
			scope = "some"
		}
		set, report := rules.Compile(heavy(fmt.Sprintf("r%d", i), scope), rules.Options{})
		if err := report.Errors.ToAggregate(); err != nil {
			t.Fatal(err)
		}
		sets = append(sets, set)
	}
	program, interner := rules.Link(rules.Options{}, sets...), facts.NewInterner()
	big := make([]nfdv1alpha1.InstanceFeature, size)
	for i := range big {
		big[i].Attributes = map[string]string{"i": fmt.Sprint(i)}
	}
	stopped := 0
	var fleet []*rules.Input
	for i, scope := range []string{"", "some", "", "other", "some"} {
		features := &nfdv1alpha1.Features{
			Instances:  map[string]nfdv1alpha1.InstanceFeatureSet{"big.thing": {Elements: big}},
			Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{"cpu.model": {Elements: map[string]string{"id": fmt.Sprint(i)}}},
		}
		input := rules.Input{
			Node:  rules.Node{Name: fmt.Sprint("node-", i), Labels: map[string]string{assayv1alpha1.ScopeLabel: scope}},
			Facts: facts.New(features, interner),
		}
		fleet = append(fleet, &input)
	}
	for i, got := range evalEach(program, fleet) {
		fresh := program.Eval(*fleet[i])
		for _, r := range fresh.Rules() {
			if r.Err != nil {
				stopped++
			}
		}
		if diff := cmp.Diff(suite.Expect(fresh), suite.Expect(got)); diff != "" {
			t.Errorf("node %d (-Eval +EvalEach):\n%s", i, diff)
		}
	}
	if stopped == 0 {
		t.Error("no rule came near the budget of its node")
	}
}

// TestRulesSeeWhatOthersChange evaluates nodes together that differ in the fact that the first rule reads.
func TestRulesSeeWhatOthersChange(t *testing.T) {
	for name, text := range map[string]string{
		"Variable":          `{rules: [{name: set, vars: {x: "{@a.b.v}"}}, {name: read, labels: {l: "{x}"}}]}`,
		"VariableOfAction":  `{rules: [{name: set, actions: [{op: set-var, args: {name: x, value: "{@a.b.v}"}}]}, {name: read, labels: {l: "{x}"}}]}`,
		"Label":             `{rules: [{name: set, labels: {x: "{@a.b.v}"}}, {name: read, labelsTemplate: "{{range .rule.matched}}l={{.Value}}{{end}}", matchFeatures: [{feature: rule.matched, matchExpressions: {x: {op: Exists}}}]}]}`,
		"TemplateOfTheNode": `{rules: [{name: read, labelsTemplate: "l={{node}}", matchFeatures: [{feature: a.b}]}]}`,
	} {
		set, report := rules.CompileSpec("o", parseSpec(t, text), rules.Options{})
		if set == nil {
			t.Fatal(name, report.Errors.ToAggregate())
		}
		program, interner := rules.Link(rules.Options{}, set), facts.NewInterner()
		var fleet []*rules.Input
		var values []string
		for _, value := range []string{"1", "2", "1", "3"} {
			in := rules.Input{Node: rules.Node{Name: "n" + value}, Facts: facts.FromMap(map[string]facts.Feature{
				"a.b": {Attributes: facts.NewAttributes(map[string]string{"v": value})},
			}, interner)}
			if name == "TemplateOfTheNode" {
				in.Facts = facts.FromMap(map[string]facts.Feature{"a.b": {Flags: facts.NewFlags("x")}}, interner)
				value = "n" + value
			}
			fleet, values = append(fleet, &in), append(values, value)
		}
		for i, o := range evalEach(program, fleet) {
			if got := o.Labels()["feature.node.kubernetes.io/l"]; got != values[i] {
				t.Errorf("%s: label %q, want %q", name, got, values[i])
			}
		}
	}
}

// TestEveryFeatureThatATemplateLacksIsReported: those inside of an if are not, wherever they are.
func TestEveryFeatureThatATemplateLacksIsReported(t *testing.T) {
	_, report := rules.CompileSpec("o", parseSpec(t, `{rules: [{name: r, matchFeatures: [{feature: a.b}],
	  labelsTemplate: "{{if true}}{{range .c.d}}x{{end}}{{end}}{{range .e.f}}y=1{{end}}"}]}`), rules.Options{})
	var got []string
	for _, w := range report.Warnings {
		got = append(got, w.Message)
	}
	if all := strings.Join(got, "\n"); len(got) != 1 || !strings.Contains(all, ".e.f is not given by") {
		t.Errorf("got %q", all)
	}
}

// next is what a node has; all else is the same for all nodes.
type next struct {
	name        string // of the node
	attributes  string // of the feature a.b: names and values in turn
	labels      map[string]string
	annotations map[string]string
	requested   map[string]string
	publisher   string // of the feature a.b
}

func (n next) input(interner *facts.Interner) rules.Input {
	attributes := map[string]string{}
	words := strings.Fields(n.attributes)
	for i := 0; i < len(words); i += 2 {
		attributes[words[i]] = words[i+1]
	}
	f := facts.FromMap(map[string]facts.Feature{
		"a.b": {Attributes: facts.NewAttributes(attributes)}, "c.d": {Flags: facts.NewFlags("x")}, "e.f": {Flags: facts.NewFlags("x")},
		"g.h": {Flags: facts.NewFlags("x")}, "i.j": {Flags: facts.NewFlags("x")},
	}, interner)
	in := rules.Input{Node: rules.Node{Name: n.name, Labels: n.labels, Annotations: n.annotations}, Facts: f, Labels: n.requested}
	if n.publisher != "" {
		in.Publishers = []rules.Publisher{{Name: n.publisher, Facts: f}}
	}
	return in
}

// TestEvalEachComparesTheWholeInput evaluates nodes together that differ in one part of the input, in both orders. A node without labels
// that NodeFeatures request once got those of another node.
func TestEvalEachComparesTheWholeInput(t *testing.T) {
	const a = `matchFeatures: [{feature: a.b, matchExpressions: {v: {op: In, value: ["1"]}}}]`
	values := []next{{attributes: "v 1"}, {attributes: "v 2"}, {attributes: "v 1"}, {attributes: "w 1"}, {attributes: "v 2 w 1"}}
	nodes := []next{
		{name: "m", attributes: "v 1"}, {name: "n", attributes: "v 1"}, {name: "n", attributes: "v 1", labels: map[string]string{"rack": "7"}},
		{name: "n", attributes: "v 1", labels: map[string]string{"assay.dev/scope": "blue"}}, {name: "n", attributes: "v 1"},
		{name: "n", attributes: "v 1", annotations: map[string]string{"rack": "8"}}, {name: "n", attributes: "v 1", publisher: "own/n"},
		{name: "n", attributes: "v 1", publisher: "vendor/n"}, {name: "n", attributes: "v 1", requested: map[string]string{feature + "x": "1"}},
		{name: "n", attributes: "v 1", requested: map[string]string{feature + "x": "2"}}, {name: "n", attributes: "v 1"},
	}
	for name, tc := range map[string]struct {
		specs []string
		steps []next
	}{
		"LabelOfALiteral":   {[]string{`{rules: [{name: r, labels: {l: "1"}, ` + a + `}]}`}, values},
		"LabelThatIsRead":   {[]string{`{rules: [{name: r, labels: {l: "1"}, ` + a + `}]}`, `{rules: [{name: r, labels: {m: "1"}, matchFeatures: [{feature: rule.matched, matchExpressions: {l: {op: Exists}}}]}]}`}, values},
		"VarThatIsRead":     {[]string{`{rules: [{name: r, vars: {l: "{@a.b.v}"}}]}`, `{rules: [{name: r, labels: {m: "1"}, matchFeatures: [{feature: rule.matched, matchExpressions: {l: {op: In, value: ["2"]}}}]}]}`}, values},
		"NamesThatAreRead":  {[]string{`{rules: [{name: r, labels: {l: "1"}, ` + a + `}]}`, `{rules: [{name: r, labels: {m: "1"}, matchFeatures: [{feature: rule.matched, matchName: {op: In, value: [l]}}]}]}`}, values},
		"AnnotationIsNot":   {[]string{`{rules: [{name: r, annotations: {l: "{@a.b.v}"}}]}`, `{rules: [{name: r, labels: {m: "1"}, matchFeatures: [{feature: rule.matched, matchExpressions: {l: {op: Exists}}}]}]}`}, values},
		"VarOfTheObject":    {[]string{`{rules: [{name: r, vars: {l: "1"}, ` + a + `}, {name: s, labels: {m: "{l}"}}]}`}, values},
		"ListThatGrows":     {[]string{`{rules: [{name: r, vars: {l: "{@a.b.v}"}}, {name: s, actions: [{op: extend-var, args: {name: k, value: "{l}"}}]}, {name: u, labels: {m: "{k.len()}"}}]}`}, values},
		"DerivedFeature":    {[]string{`{phase: early, rules: [{name: r, actions: [{op: set-feature, args: {feature: a.b, element: w, value: "2"}}]}]}`, `{rules: [{name: r, labels: {v: "{@a.b.v}", w: "{@a.b.w}"}}]}`}, values},
		"DerivedFromAValue": {[]string{`{phase: early, rules: [{name: r, ` + a + `, actions: [{op: set-feature, args: {feature: k.l, element: w, value: "2"}}]}]}`, `{rules: [{name: r, labels: {w: "{@k.l.w}"}}]}`}, values},
		"FailsAlways":       {[]string{`{priority: 9, rules: [{name: r, actions: [{op: fail, args: {msg: no}}]}]}`, `{rules: [{name: r, labels: {l: "{@a.b.v}"}}]}`}, values},
		"FailsSometimes":    {[]string{`{priority: 9, rules: [{name: r, ` + a + `, actions: [{op: fail, args: {msg: no}}]}]}`, `{rules: [{name: r, labels: {l: "{@a.b.v}"}}]}`}, values},
		"FiveFeatures":      {[]string{`{rules: [{name: r, labels: {l: "{@a.b.v}"}, matchFeatures: [{feature: c.d}, {feature: e.f}, {feature: g.h}, {feature: i.j}]}]}`}, values},
		"FourFeatures":      {[]string{`{rules: [{name: r, labels: {l: "{@a.b.v}"}, matchFeatures: [{feature: c.d}, {feature: e.f}, {feature: g.h}]}]}`}, values},

		"Name":          {[]string{`{rules: [{name: r, labels: {l: "{node}", m: "{@a.b.v}"}}]}`}, nodes},
		"NameAfterText": {[]string{`{rules: [{name: r, labels: {l: "{@a.b.v}", m: "{node}"}}]}`}, nodes},
		"NodeLabel":     {[]string{`{rules: [{name: r, labels: {l: "{node.labels.rack}"}}]}`}, nodes},
		"Annotation":    {[]string{`{rules: [{name: r, labels: {l: "{node.annotations.rack}"}}]}`}, nodes},
		"NodeSelector":  {[]string{`{nodeSelector: {matchLabels: {rack: "7"}}, rules: [{name: r, labels: {l: "1"}}]}`}, nodes},
		"Scope":         {[]string{`{scope: blue, rules: [{name: r, labels: {l: "1"}}]}`}, nodes},
		"Sources":       {[]string{`{featureSources: "^own/", rules: [{name: r, labels: {l: "1"}, ` + a + `}]}`}, nodes},
		"Requested":     {[]string{`{rules: [{name: r, labels: {l: "1"}, ` + a + `}]}`}, nodes},
	} {
		t.Run(name, func(t *testing.T) {
			var sets []*rules.RuleSet
			for i, text := range tc.specs {
				sets = append(sets, compileSpec(t, fmt.Sprint("o", i), text))
			}
			program, interner := rules.Link(rules.Options{}, sets...), facts.NewInterner()
			var fleet []*rules.Input
			for _, step := range slices.Concat(tc.steps, tc.steps) {
				in := step.input(interner)
				fleet = append(fleet, &in)
			}
			for range 2 {
				for i, got := range evalEach(program, fleet) {
					if diff := cmp.Diff(suite.Expect(program.Eval(*fleet[i])), suite.Expect(got)); diff != "" {
						t.Errorf("node %d (-Eval +EvalEach):\n%s", i, diff)
					}
				}
				slices.Reverse(fleet)
			}
		})
	}
}

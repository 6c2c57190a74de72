package imagespec_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/imagespec"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/review"
	"github.com/assay-project/assay/test/bench"
)

func parse(t *testing.T, text string) *imagespec.Document {
	t.Helper()
	d := imagespec.Parse("spec.yaml", []byte(text), review.Known{})
	if err := d.Err(); err != nil {
		t.Fatal(err)
	}
	return d
}

// host returns a node with loaded modules, the attribute kernel.version/major, and a secret.
func host(major string, modules ...string) *rules.Input {
	return &rules.Input{Node: rules.Node{Name: "n"}, Facts: facts.FromMap(map[string]facts.Feature{
		"kernel.loadedmodule": {Flags: facts.NewFlags(modules...)},
		"kernel.version":      {Attributes: facts.NewAttributes(map[string]string{"major": major})},
		"local.label":         {Attributes: facts.NewAttributes(map[string]string{"bmc-password": "hunter2"})},
	}, nil)}
}

// module returns a rule that requires a kernel module.
func module(name string) string {
	return fmt.Sprintf("{name: %[1]s, matchFeatures: [{feature: kernel.loadedmodule, matchExpressions: {%[1]s: {op: Exists}}}]}", name)
}

const sets = `
version: v1alpha1
compatibilities:
- description: fast
  tag: gpu
  weight: 10
  rules:
  - name: driver
    matchFeatures:
    - feature: kernel.loadedmodule
      matchExpressions: {vfio_pci: {op: Exists}}
  - name: kernel
    matchFeatures:
    - feature: kernel.version
      matchExpressions: {major: {op: Ge, value: ["6"]}}
- description: slow
  weight: 1
  rules:
  - name: any network
    matchAny:
    - matchFeatures:
      - feature: kernel.loadedmodule
        matchExpressions: {ixgbe: {op: Exists}}
    - matchFeatures:
      - feature: kernel.loadedmodule
        matchExpressions: {e1000: {op: Exists}}
`

// describe returns a verdict in one line.
func describe(v imagespec.Verdict) string {
	var out []string
	for _, s := range v.Met {
		out = append(out, "met "+s.Description)
	}
	if v.Nearest != nil {
		out = append(out, "nearest "+v.Nearest.Description)
	}
	for _, m := range v.Missing {
		out = append(out, m.Rule+": "+m.Why)
	}
	return strings.Join(out, "; ")
}

func TestASetIsMetIfAllOfItsRulesMatchAndWeightRanks(t *testing.T) {
	d := parse(t, sets)
	var inputs []*rules.Input
	var want []string
	for _, tc := range []struct {
		in   *rules.Input
		want string
	}{
		{host("6", "vfio_pci", "e1000"), "met fast; met slow"},
		{host("6", "vfio_pci"), "met fast"},
		{host("5", "vfio_pci", "ixgbe"), "met slow"},
		{host("5", "vfio_pci"), `nearest fast; kernel: kernel.version/major is "5", not Ge "6"`},
		{host("5"), "nearest slow; any network: none of 2 alternatives: kernel.loadedmodule/e1000 is missing"},
		{&rules.Input{Facts: facts.FromMap(nil, nil)}, "nearest slow; any network: none of 2 alternatives: the node has no feature kernel.loadedmodule"},
	} {
		inputs, want = append(inputs, tc.in), append(want, tc.want)
	}
	var got []string
	for i, v := range imagespec.Check(d.Sets, inputs) {
		got = append(got, describe(v))
		if v.Fits() != strings.HasPrefix(want[i], "met") {
			t.Errorf("node %d: fits is %v", i, v.Fits())
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if v := imagespec.Check(nil, inputs)[0]; !v.Fits() {
		t.Error("an image without sets fits every node")
	}
}

func TestTags(t *testing.T) {
	d := parse(t, sets)
	if got, err := d.Select([]string{"gpu", "other"}); err != nil || len(got) != 1 || got[0].Index != 0 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := d.Select([]string{"cpu"}); err == nil || !strings.Contains(err.Error(), `"gpu"`) {
		t.Errorf("an unknown tag: %v, want an error that names the known ones", err)
	}
}

func TestVarsAreSeenWithinTheirSetOnly(t *testing.T) {
	const reads = "{name: reads, matchFeatures: [{feature: rule.matched, matchExpressions: {x: {op: In, value: [one]}}}]}"
	d := parse(t, "{version: v1alpha1, compatibilities: [{rules: [{name: sets, vars: {x: one}}, "+reads+"]}]}")
	in := host("6")
	in.Labels = map[string]string{"x": "two"} // a NodeFeature requests a label of the same name
	if v := imagespec.Check(d.Sets, []*rules.Input{in})[0]; !v.Fits() {
		t.Error("a rule does not see the var of an earlier rule:", describe(v))
	}
	for name, text := range map[string]string{
		"OfNoRule":     "[{rules: [" + reads + "]}]",
		"OfALaterRule": "[{rules: [" + reads + ", {name: sets, vars: {x: one}}]}]",
		"OfAnotherSet": "[{rules: [{name: sets, vars: {x: one}}]}, {rules: [" + reads + "]}]",
		"OfTheCluster": "[{rules: [{name: sets, vars: {other: one}}, " + reads + "]}]",
		"InMatchAny":   "[{rules: [{name: r, matchAny: [{matchFeatures: [{feature: Rule.Matched, matchName: {op: Exists}}]}]}]}]",
	} {
		t.Run(name, func(t *testing.T) {
			err := imagespec.Parse("s", []byte("{version: v1alpha1, compatibilities: "+text+"}"), review.Known{}).Err()
			if err == nil || !strings.Contains(err.Error(), "earlier rule") {
				t.Errorf("got %v, want an error: the outputs of other rules are not readable", err)
			}
		})
	}
}

// TestRefused lists layers that a registry could serve and that are not evaluated.
func TestRefused(t *testing.T) {
	rule := func(body string) string {
		return "{version: v1alpha1, compatibilities: [{rules: [{name: r, " + body + "}]}]}"
	}
	term := func(expression string) string {
		return rule("matchFeatures: [{feature: kernel.version, matchExpressions: {major: " + expression + "}}]")
	}
	bomb := "version: v1alpha1\na: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ","))
	}
	for name, tc := range map[string]struct{ text, want string }{
		"Empty":           {"", "empty"},
		"Binary":          {"\x00\x01", "1:"},
		"List":            {"[]", "expected a map"},
		"TwoDocuments":    {"version: v1alpha1\n---\nversion: v1alpha1", "document"},
		"NoVersion":       {"compatibilities: []", "version is missing"},
		"UnknownVersion":  {"version: v1\ncompatibilities: []", `unsupported version "v1": write v1alpha1`},
		"UnknownField":    {"version: v1alpha1\ncompatibilities: [{rule: []}]", "did you mean rules?"},
		"DuplicateKey":    {"version: v1alpha1\nversion: v1alpha1", "version"},
		"TooLarge":        {sets + "# " + strings.Repeat("x", 300<<10), "262144"},
		"AliasBomb":       {bomb, "alias"},
		"Deep":            {"version: v1alpha1\ncompatibilities: " + strings.Repeat("[", 100) + strings.Repeat("]", 100), "too many levels"},
		"Unclosed":        {strings.Repeat("a: [b,\n", 5000), "too many brackets"},
		"TooManySets":     {"{version: v1alpha1, compatibilities: [" + strings.Repeat("{rules: []},", 17) + "]}", "17 sets: at most 16"},
		"TooManyRules":    {"{version: v1alpha1, compatibilities: [{rules: [" + strings.Repeat("{name: r},", 65) + "]}]}", "65 rules"},
		"UnknownOperator": {term("{op: Is}"), "Is"},
		"NoValue":         {term("{op: In}"), "value"},
		"InvalidRegexp":   {term(`{op: InRegexp, value: ["("]}`), "missing closing"},
		"RegexpBomb":      {term(`{op: InRegexp, value: ["((a{1,100}){1,100}){1,100}"]}`), "repeat"},
		"ManyRegexps":     {rule("matchFeatures: [" + strings.Repeat("{feature: kernel.version, matchExpressions: {major: {op: InRegexp, value: ["+strings.Repeat(`"(a{1,30}){1,30}",`, 20)+"]}}},", 30) + "]"), "memory"},
		"TypeOfWeight":    {"version: v1alpha1\ncompatibilities: [{rules: [], weight: heavy}]", "expected a number"},
		"Outputs":         {rule("labels: {a: b}"), "unknown field \"labels\""},
	} {
		t.Run(name, func(t *testing.T) {
			d := imagespec.Parse("spec.yaml", []byte(tc.text), review.Known{})
			if err := d.Err(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
			if d.Sets != nil {
				t.Error("there are sets to evaluate")
			}
		})
	}
}

func TestMaskedElementsStayMasked(t *testing.T) {
	for _, op := range []string{"{op: In, value: [hunter2]}", "{op: NotIn, value: [x]}", "{op: InRegexp, value: [h]}", "{op: IsTrue}"} {
		d := parse(t, "{version: v1alpha1, compatibilities: [{rules: [{name: r, matchFeatures: [{feature: local.label, matchExpressions: {bmc-password: "+op+"}}]}]}]}")
		v := imagespec.Check(d.Sets, []*rules.Input{host("6")})[0]
		if v.Fits() {
			t.Errorf("%s matches a masked value", op)
		}
		for _, trace := range d.Sets[0].Trace(*host("6")) {
			if shown := fmt.Sprintf("%+v %+v", v.Missing, trace); strings.Contains(shown, "hunter2") && !strings.Contains(op, "hunter2") {
				t.Errorf("%s shows the value: %s", op, shown)
			}
		}
	}
}

func TestWarnings(t *testing.T) {
	for name, tc := range map[string]struct{ sets, path, want string }{
		"NoSets":  {"[]", "compatibilities", "fits every node"},
		"NoRules": {"[{rules: []}]", "compatibilities[0]", "every node meets it"},
		"UnknownFeature": {"[{rules: [" + module("a") + ", {name: b, matchFeatures: [{feature: kernel.versoin, matchExpressions: {major: {op: Exists}}}]}]}]",
			"compatibilities[0].rules[1].matchFeatures[0].feature", "kernel.version"},
		"Contradiction": {"[{rules: []}, {rules: [" + module("a") + ", {name: b, matchFeatures: [{feature: kernel.loadedmodule, matchExpressions: {a: {op: DoesNotExist}}}]}]}]",
			"compatibilities[1].rules[1].matchFeatures[0].matchExpressions[a]", "no node can match"},
		"Masked": {"[{rules: [{name: r, matchFeatures: [{feature: local.label, matchExpressions: {bmc-password: {op: In, value: [x]}}}]}]}]",
			"compatibilities[0].rules[0].matchFeatures[0].matchExpressions[bmc-password].op", "masked"},
	} {
		t.Run(name, func(t *testing.T) {
			d := parse(t, "{version: v1alpha1, compatibilities: "+tc.sets+"}")
			for _, p := range d.Problems {
				if p.Severity == manifest.Warning && p.Path == tc.path && strings.Contains(p.Message, tc.want) {
					return
				}
			}
			t.Errorf("no warning at %s with %q in %v", tc.path, tc.want, d.Problems)
		})
	}
}

// TestRequirementHoldsOnTheSameNodes compares the sets with their request on all nodes that they can tell apart.
func TestRequirementHoldsOnTheSameNodes(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	anyOf := func(rule string, list ...string) string {
		text := "{name: " + rule + ", matchAny: ["
		for _, name := range list {
			text += "{matchFeatures: [{feature: kernel.loadedmodule, matchExpressions: {" + name + ": {op: Exists}}}]},"
		}
		return text + "]}"
	}
	for name, text := range map[string]string{
		"OneRule":        "[{rules: [" + module("a") + "]}]",
		"AllRules":       "[{rules: [" + module("a") + ", " + module("b") + "]}]",
		"OneSetWithAny":  "[{rules: [" + module("a") + ", " + anyOf("x", "b", "c") + "]}]",
		"MultipliedOut":  "[{rules: [" + anyOf("x", "a", "b") + ", " + anyOf("z", "c", "d") + "]}]",
		"TwoSets":        "[{rules: [" + module("a") + ", " + anyOf("x", "b", "c") + "]}, {rules: [" + module("d") + "]}]",
		"AnyIsEmpty":     "[{rules: [" + module("a") + ", {name: x, matchAny: [{matchFeatures: []}, {matchFeatures: [{feature: kernel.version}]}]}]}]",
		"VarsUnread":     "[{rules: [{name: v, vars: {x: one}, matchFeatures: [{feature: kernel.loadedmodule, matchExpressions: {a: {op: Exists}}}]}]}]",
		"SameFeatureTwo": "[{rules: [" + module("a") + "]}, {rules: [" + module("b") + "]}, {rules: [" + module("c") + ", " + module("d") + "]}]",
	} {
		t.Run(name, func(t *testing.T) {
			d := parse(t, "{version: v1alpha1, compatibilities: "+text+"}")
			spec, err := imagespec.Requirement(d.Sets)
			if err != nil {
				t.Fatal(err)
			}
			q, report := rules.CompileRequirement(field.NewPath("spec"), spec.MatchFeatures, spec.MatchAny, nil, rules.Options{})
			if !report.OK() {
				t.Fatal(report.Errors.ToAggregate())
			}
			fit := 0
			for bits := range 1 << len(names) {
				var modules []string
				for i, name := range names {
					if bits>>i&1 == 1 {
						modules = append(modules, name)
					}
				}
				in := host("6", modules...)
				got, err := q.Eval(*in, nil)
				want := imagespec.Check(d.Sets, []*rules.Input{in})[0].Fits()
				if err != nil || got != want {
					t.Errorf("node with %v: the request matches: %v (%v), the image fits: %v", modules, got, err, want)
				}
				if want {
					fit++
				}
			}
			if fit == 0 || fit == 1<<len(names) {
				t.Errorf("the image fits %d of all nodes, so the test compares nothing", fit)
			}
		})
	}
}

func TestNoRequirement(t *testing.T) {
	many := "[{rules: [" + strings.Repeat("{name: r, matchAny: ["+strings.Repeat("{matchFeatures: [{feature: kernel.version}]},", 9)+"]},", 2) + "]}]"
	for name, tc := range map[string]struct{ sets, want string }{
		"NoSets":      {"[]", "every node meets"},
		"EmptySet":    {"[{rules: []}]", "every node meets"},
		"OneIsEmpty":  {"[{rules: [" + module("a") + "]}, {rules: []}]", "every node meets"},
		"TooMany":     {many, "81 alternatives"},
		"Backreads":   {"[{rules: [{name: v, vars: {x: one}}, {name: r, matchFeatures: [{feature: rule.matched, matchExpressions: {x: {op: Exists}}}]}]}]", `rule "r" of set 1 reads rule.matched`},
		"TooManySets": {"[" + strings.Repeat("{rules: [{name: r, matchAny: ["+strings.Repeat("{matchFeatures: [{feature: kernel.version}]},", 33)+"]}]},", 2) + "]", "66 alternatives"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := imagespec.Requirement(parse(t, "{version: v1alpha1, compatibilities: "+tc.sets+"}").Sets); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, %v; want an error with %q", got, err, tc.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sets))
	f.Fuzz(func(t *testing.T, data []byte) {
		d := imagespec.Parse("s", data, review.Known{})
		if d.Err() != nil {
			return
		}
		imagespec.Check(d.Sets, []*rules.Input{host("6", "vfio_pci")})
		_, _ = imagespec.Requirement(d.Sets)
	})
}

// BenchmarkFleet checks 50 sets, those of four images, on 1,000 nodes. In the first case the nodes are of three kinds; in the second, all
// differ in a feature that every set reads, so that nothing is shared.
func BenchmarkFleet(b *testing.B) {
	const images, nodes = 4, 1000
	var all [][]*imagespec.Set
	for i, n := range []int{13, 13, 12, 12} {
		text := "version: v1alpha1\ncompatibilities:\n"
		for j := range n {
			text += fmt.Sprintf("- weight: %d\n  rules:\n  - %s\n  - {name: k, matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: InRegexp, value: [\"^[0-5]\\\\.%d\"]}}}]}\n"+
				"  - {name: p, matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: In, value: [\"%04x\"]}, class: {op: In, value: [\"0302\", \"0300\"]}}}]}\n", j, module(fmt.Sprintf("m%d_%d", i, j)), j, i*100+j)
		}
		d := imagespec.Parse("s", []byte(text), review.Known{})
		if err := d.Err(); err != nil {
			b.Fatal(err)
		}
		all = append(all, d.Sets)
	}
	for name, differ := range map[string]bool{"Kinds": false, "AllDiffer": true} {
		b.Run(name, func(b *testing.B) {
			in := facts.NewInterner()
			var inputs []*rules.Input
			for i := range nodes {
				var obj nfdv1alpha1.NodeFeature
				bench.Read(b, []string{"node-0", "node-1", "node-4"}[i%3], &obj)
				if differ {
					obj.Spec.Features.Attributes["kernel.version"] = nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{"full": fmt.Sprintf("6.1.%d", i)}}
				}
				inputs = append(inputs, &rules.Input{Node: rules.Node{Name: fmt.Sprint(i)}, Facts: facts.New(&obj.Spec.Features, in)})
			}
			start, rounds := time.Now(), 0
			for b.Loop() {
				for _, sets := range all {
					if got := imagespec.Check(sets, inputs); len(got) != nodes || got[0].Fits() {
						b.Fatal(describe(got[0]))
					}
				}
				rounds++
			}
			b.ReportMetric(float64(time.Since(start).Milliseconds())/float64(rounds), "ms/fleet")
		})
	}
}

package rules_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules"
)

// TestEveryErrorIsReported compiles rules, and compares the fields of all errors, and of warnings after a ~.
func TestEveryErrorIsReported(t *testing.T) {
	const devices = `matchFeatures: [{feature: pci.device}]`
	const template = `{{range .pci.device}}x={{.vendor}}{{end}}`
	for name, tc := range map[string]struct{ rules, want string }{
		"Actions":                 {`{name: r, actions: [{op: nope}, {op: log}, {op: log, args: {msg: fine}}]}`, "actions[0].op actions[1].args.msg"},
		"AsManyTaintsAsAllowed":   {`{name: r, taints: [` + numbered(64, "{key: example.com/a#, effect: NoSchedule}") + `]}`, ""},
		"OneTaintTooMany":         {`{name: r, taints: [` + numbered(65, "{key: example.com/a#, effect: NoSchedule}") + `]}`, "taints"},
		"NoName":                  {`{labels: {a: "1"}}`, "name"},
		"KeyOfATaint":             {`{name: r, taints: [{key: "{rakc}", value: x, effect: NoSchedule}]}`, "taints[0].key"},
		"ValueOfATaint":           {`{name: r, taints: [{key: example.com/a, value: "{rakc}", effect: NoSchedule}]}`, "taints[0].value"},
		"KeyAndValueOfALabel":     {`{name: r, labels: {"{rakc}": x, b: "{rakd}"}}`, "labels[b] labels[{rakc}]"},
		"KeyOfAVariable":          {`{name: r, vars: {"{1 +}": x, c: "1"}}`, "vars[{1 +}]"},
		"ValueOfAVariable":        {`{name: r, vars: {b: "{node.nope}", c: "1"}}`, "vars[b]"},
		"UnknownNameInAVariable":  {`{name: r, vars: {b: "{rakc}", c: "1"}}`, "~vars[b]"},
		"ReferenceOfAComputedKey": {`{name: r, labels: {"{node}": "@bad"}}`, "~labels[{node}]"},
		"TwoReferences":           {`{name: r, labels: {a: "@bad", b: "@worse.x"}}`, "~labels[a] ~labels[b]"},
		"BothTemplates":           {`{name: r, labelsTemplate: "a=1", labelsTemplateFrom: {configMapKeyRef: {name: c, key: k}}, ` + devices + `}`, "labelsTemplateFrom"},
		"TemplateOfAConfigMap":    {`{name: r, labelsTemplateFrom: {configMapKeyRef: {name: c, key: k}}, varsTemplateFrom: {configMapKeyRef: {name: c, key: v}}, ` + devices + `}`, ""},
		"BothVarsTemplates":       {`{name: r, varsTemplate: "a=1", varsTemplateFrom: {configMapKeyRef: {name: c, key: k}}, ` + devices + `}`, "varsTemplateFrom"},
		"TwoPartsOfATemplate":     {`{name: r, labelsTemplate: "a\nb={{nope}}", ` + devices + `}`, "labelsTemplate ~labelsTemplate"},
		"TwoLinesWithoutAValue":   {`{name: r, labelsTemplate: "a\nb=1\nc", ` + devices + `}`, "~labelsTemplate ~labelsTemplate"},
		"TemplateOfNothing":       {`{name: r, labelsTemplate: "a=1"}`, "~labelsTemplate"},
		"TemplateOfAlternatives":  {`{name: r, labelsTemplate: "` + template + `", matchAny: [{` + devices + `}]}`, ""},
		"TemplateOfConditions":    {`{name: r, labelsTemplate: "a=1", conditions: [{op: is-true, args: {value: "yes"}}]}`, ""},
		"TemplateInAnotherCase":   {`{name: r, labelsTemplate: "` + template + `", matchFeatures: [{feature: PCI.Device}]}`, ""},

		"MatchedOfNothing":           {`{name: r, labels: {a: "{matched.pci.device.len()}"}}`, "labels[a]"},
		"MatchedOfAFeature":          {`{name: r, labels: {a: "{matched.pci.device.len()}"}, ` + devices + `}`, ""},
		"MatchedOfAnAlternative":     {`{name: r, labels: {a: "{matched.pci.device.len()}"}, matchAny: [{` + devices + `}]}`, ""},
		"ItemOfNoLoop":               {`{name: r, labels: {a: "{item}"}}`, "labels[a]"},
		"ItemOfALoop":                {`{name: r, loop: [1, 2], labels: {"a{item}": "1"}}`, ""},
		"ItemInALoop":                {`{name: r, loop: "{item}", labels: {"a{item}": "1"}}`, "loop"},
		"VariableOfAnAction":         {`{name: r, actions: [{op: set-var, args: {name: v, value: "1"}}]}, {name: s, labels: {a: "{v}"}}`, ""},
		"VariableOfAnotherAction":    {`{name: r, actions: [{op: extend-var, args: {name: v, value: "1"}}]}, {name: s, labels: {a: "{v.len()}"}}`, ""},
		"VariableThatIsOnlyUnset":    {`{name: r, actions: [{op: unset-var, args: {name: v}}]}, {name: s, labels: {a: "{v}"}}`, "labels[a]"},
		"VariableByPosition":         {`{name: r, actions: [{op: set-var, args: [v, "1"]}]}, {name: s, labels: {a: "{v}"}}`, "~actions[0].args"},
		"VariableOfAComputedName":    {`{name: r, actions: [{op: set-var, args: {name: "v{node}", value: "1"}}]}, {name: s, labels: {a: "{vn}"}}`, ""},
		"VariableOfAComputedKey":     {`{name: r, vars: {"v{node}": "1"}}, {name: s, labels: {a: "{vn}"}}`, ""},
		"VariableOfATemplate":        {`{name: r, varsTemplate: "v=1", ` + devices + `}, {name: s, labels: {a: "{v}"}}`, ""},
		"VariableOfATemplateFrom":    {`{name: r, varsTemplateFrom: {configMapKeyRef: {name: c, key: k}}, ` + devices + `}, {name: s, labels: {a: "{v}"}}`, ""},
		"VariableOfALabelsTemplate":  {`{name: r, labelsTemplate: "v=1", ` + devices + `}, {name: s, labels: {a: "{v}"}}`, "labels[a]"},
		"ResourceThatNFDWrites":      {`{name: r, extendedResources: {example.com/a: "-1"}}`, "extendedResources[example.com/a]"},
		"ResourceThatNFDDrops":       {`{name: r, extendedResources: {example.com/a: many}}`, "~extendedResources[example.com/a]"},
		"ResourceOfAProtectedPrefix": {`{name: r, extendedResources: {kubernetes.io/a: "1"}}`, "~extendedResources[kubernetes.io/a]"},
	} {
		t.Run(name, func(t *testing.T) {
			_, report := rules.CompileSpec("o", parseSpec(t, `{rules: [`+tc.rules+`]}`), rules.Options{})
			var got []string
			for _, err := range report.Errors {
				_, field, _ := strings.Cut(err.Field, "].")
				got = append(got, field)
			}
			for _, w := range report.Warnings {
				_, field, _ := strings.Cut(w.Path, "].")
				got = append(got, "~"+field)
			}
			if all := strings.Join(got, " "); all != tc.want {
				t.Errorf("got %q, want %q: %v %v", all, tc.want, report.Errors, report.Warnings)
			}
		})
	}
}

// TestPhasesReadAndWriteWhatTheyMay: the early phase reads features only, and only main writes to nodes.
func TestPhasesReadAndWriteWhatTheyMay(t *testing.T) {
	for text, want := range map[string]int{
		`{phase: early, rules: [{name: r, vars: {a: "{node.labels.rack}"}}]}`:                                                   1,
		`{phase: preprocess, rules: [{name: r, vars: {a: "{node.labels.rack}"}}]}`:                                              0,
		`{phase: early, rules: [{name: r, vars: {a: "1"}, matchFeatures: [{feature: a.b}]}]}`:                                   0,
		`{phase: early, rules: [{name: r, labels: {a: "1"}}]}`:                                                                  1,
		`{phase: early, rules: [{name: r, labelsTemplate: "a=1", matchFeatures: [{feature: a.b}]}]}`:                            1,
		`{phase: early, rules: [{name: r, annotations: {a: "1"}}]}`:                                                             1,
		`{phase: early, rules: [{name: r, extendedResources: {a: "1"}}]}`:                                                       1,
		`{phase: early, rules: [{name: r, taints: [{key: example.com/a, effect: NoSchedule}]}]}`:                                1,
		`{phase: early, rules: [{name: r, nodeConditions: [{type: example.com/A, status: "True"}]}]}`:                           1,
		`{phase: main, rules: [{name: r, labels: {a: "1"}, taints: [{key: example.com/a, effect: NoSchedule}]}]}`:               0,
		`{phase: late, rules: [{name: r, labels: {a: "1"}}]}`:                                                                   1,
		`{priority: -1, rules: [{name: r, labels: {a: "1"}}]}`:                                                                  1,
		`{priority: 0, rules: [{name: r, labels: {a: "1"}}]}`:                                                                   0,
		`{featureSources: "(", rules: [{name: r, labels: {a: "1"}}]}`:                                                           1,
		`{scope: "not valid!", rules: [{name: r, labels: {a: "1"}}]}`:                                                           1,
		`{nodeSelector: {matchExpressions: [{key: a, operator: Nope}]}, rules: [{name: r, labels: {a: "1"}}]}`:                  1,
		`{nodeSelector: {matchExpressions: [{key: a, operator: Nope}]}, scope: "?", rules: [{name: r, labels: {"{rakc}": x}}]}`: 3,
	} {
		set, report := rules.CompileSpec("o", parseSpec(t, text), rules.Options{})
		if len(report.Errors) != want || (set.Len() == 1) != (want == 0) {
			t.Errorf("%s: %d rules, %v, want %d errors", text, set.Len(), report.Errors, want)
		}
	}
}

// TestSettingsOfTheClusterApply: built-in rules are not limited by them, nor are objects that say otherwise.
func TestSettingsOfTheClusterApply(t *testing.T) {
	opt := rules.Options{DefaultScope: "blue", FeatureSources: regexp.MustCompile("^vendor/")}
	builtIn := opt
	builtIn.BuiltIn = true
	const any, own = `rules: [{name: r, labels: {a: "1"}, matchFeatures: [{feature: pci.device}]}]`, `rules: [{name: r, labels: {a: "1"}}]`
	for name, tc := range map[string]struct {
		spec      string
		opt       rules.Options
		publisher string
		scope     string
		want      bool
	}{
		"Default":                {`{` + own + `}`, opt, "own/n", "", false},
		"DefaultOfItsNodes":      {`{` + own + `}`, opt, "own/n", "blue", true},
		"NodeSelector":           {`{nodeSelector: {matchLabels: {rack: "7"}}, ` + own + `}`, opt, "own/n", "", true},
		"OtherNodeSelector":      {`{nodeSelector: {matchLabels: {rack: "8"}}, ` + own + `}`, opt, "own/n", "", false},
		"Scope":                  {`{scope: red, ` + own + `}`, opt, "own/n", "red", true},
		"NoScope":                {`{scope: "", ` + own + `}`, opt, "own/n", "red", true},
		"ScopeAndSelector":       {`{scope: red, nodeSelector: {matchLabels: {rack: "7"}}, ` + own + `}`, opt, "own/n", "", false},
		"BuiltIn":                {`{priority: 10000, ` + own + `}`, builtIn, "own/n", "", true},
		"Sources":                {`{scope: "", ` + any + `}`, opt, "own/n", "", false},
		"SourcesOfThePublisher":  {`{scope: "", ` + any + `}`, opt, "vendor/n", "", true},
		"SourcesOfTheObject":     {`{scope: "", featureSources: "^own/", ` + any + `}`, opt, "own/n", "", true},
		"SourcesOfABuiltInRule":  {`{` + any + `}`, builtIn, "own/n", "", true},
		"SourcesOfNoPublisher":   {`{scope: "", featureSources: "^other/", ` + any + `}`, builtIn, "own/n", "", false},
		"PriorityOfABuiltInRule": {`{priority: -7, ` + own + `}`, builtIn, "own/n", "", true},
	} {
		set, report := rules.CompileSpec("o", parseSpec(t, tc.spec), tc.opt)
		if !report.OK() {
			t.Errorf("%s: %v", name, report.Errors)
		}
		in := rules.Input{
			Node: rules.Node{Name: "n", Labels: map[string]string{"rack": "7", assayv1alpha1.ScopeLabel: tc.scope}}, Facts: someDevices(),
			Publishers: []rules.Publisher{{Name: tc.publisher, Facts: someDevices()}},
		}
		if got := len(rules.Link(tc.opt, set).Eval(in).Labels()) == 1; got != tc.want {
			t.Errorf("%s: the rule applies: %t, want %t", name, got, tc.want)
		}
	}
}

// TestTheSizeCountsEveryPart compares rules that differ in one string of 1,000 bytes.
func TestTheSizeCountsEveryPart(t *testing.T) {
	for name, rule := range map[string]string{
		"MatchName":         `matchFeatures: [{feature: a.b}, {feature: a.b, matchName: {op: In, value: [%s]}}]`,
		"MatchExpressions":  `matchFeatures: [{feature: a.b}, {feature: a.b, matchExpressions: {x: {op: In, value: [%s]}}}]`,
		"MatchAny":          `matchAny: [{matchFeatures: [{feature: a.b, matchName: {op: In, value: [%s]}}]}]`,
		"Labels":            `labels: {a: "%s"}`,
		"Vars":              `vars: {a: "%s"}`,
		"Taints":            `taints: [{key: example.com/a, value: "%s", effect: NoSchedule}]`,
		"NodeConditions":    `nodeConditions: [{type: example.com/A, status: "True", reason: R, message: "%s"}]`,
		"Conditions":        `conditions: [{op: eq, args: [a, "%s"]}]`,
		"LoopsOfConditions": `conditions: [{op: eq, args: [a, "{item}"], loop: [b, "%s"]}]`,
		"Actions":           `actions: [{op: log, args: {msg: "%s"}}]`,
		"LoopsOfActions":    `actions: [{op: log, args: {msg: "{item}"}, loop: [a, "%s"]}]`,
		"Loop":              `loop: [a, "%s"], labels: {a: "1"}`,
	} {
		size := func(value string) int {
			set, _ := rules.CompileSpec("o", parseSpec(t, `{rules: [{name: r, `+fmt.Sprintf(rule, value)+`}]}`), rules.Options{})
			return set.Size()
		}
		if grown := size(strings.Repeat("x", 1001)) - size("x"); grown < 1000 {
			t.Errorf("%s: 1,000 bytes more count %d", name, grown)
		}
	}
	null := *parseSpec(t, `{rules: [{name: r, matchFeatures: [{feature: a.b, matchExpressions: {x: null}}]}]}`)
	if _, report := rules.CompileSpec("o", &null, rules.Options{}); len(report.Errors) != 1 {
		t.Errorf("an expression without content: %v, want one error", report.Errors)
	}
}

// TestManyWarningsAreCutOff: an object draws at most 1,000.
func TestManyWarningsAreCutOff(t *testing.T) {
	for name, rule := range map[string]string{
		"Defects": `labels: {` + numbered(250, `"l#": "@bad"`) + `}`,
		"Others":  `labelsTemplate: "` + strings.Repeat(`a\n`, 250) + `", matchFeatures: [{feature: a.b}]`,
	} {
		_, report := rules.CompileSpec("o", parseSpec(t, repeated(5, rule)), rules.Options{})
		if len(report.Warnings) != 1000 {
			t.Errorf("%s: %d warnings, want 1,000", name, len(report.Warnings))
		}
	}
}

// TestAnAnnotationFitsOrIsLeftOut appends to a list up to its limit, and writes more annotations than a node has room for.
func TestAnAnnotationFitsOrIsLeftOut(t *testing.T) {
	const limit = 1024
	for length, want := range map[int]int{limit - len("x,"): 0, limit - len("x,") + 1: 1} {
		program := rules.Link(rules.Options{}, ruleSet(t, "o", `annotations: {vendor.io/list: x}, actions: [{op: extend-attribute, args: {path: /annotations/vendor.io~1list, value: "`+
			strings.Repeat("y", length)+`"}, loop: [1, 2]}]`))
		o := program.Eval(rules.Input{Facts: someDevices()})
		if got := len(o.Annotations()["vendor.io/list"]); want == 0 && got != limit {
			t.Errorf("a list of %d bytes has %d", limit, got)
		}
		if len(o.Rejected()) != 1 {
			t.Errorf("one rule reports that its list is full %d times: %v", len(o.Rejected()), o.Rejected())
		}
	}

	var list strings.Builder
	for i := range 200 {
		fmt.Fprintf(&list, ", vendor.io/k%03d: %s", i, strings.Repeat("v", 1000))
	}
	gone := `{name: gone, annotations: {gone: "1"}, actions: [{op: del-attribute, args: {path: /annotations/gone}}]}`
	set := compile(t, "metadata: {name: large}\nspec: {rules: ["+gone+", {name: r, annotations: {first: x"+list.String()+"}}]}", rules.Options{})
	o := rules.Link(rules.Options{}, set, ruleSet(t, "small", `annotations: {other: x}`)).Eval(rules.Input{Facts: someDevices()})
	size := 0
	for key, value := range o.Annotations() {
		size += len(key) + len(value)
	}
	if size > rules.MaxAnnotations || size < rules.MaxAnnotations-5000 || o.Annotations()[feature+"other"] != "x" {
		t.Errorf("%d annotations of %d bytes are written, want nearly %d", len(o.Annotations()), size, rules.MaxAnnotations)
	}
	left := 202 - len(o.Annotations())
	if got := o.Rejected(); len(got) != 1 || !strings.Contains(got[0].Reason, fmt.Sprintf("it and %d more are left out", left-1)) {
		t.Errorf("%d annotations are left out, and the object reads %v", left, got)
	}
}

// TestOutputsOfOneRuleAreLimited counts lines, Events, rejected outputs and taints of a loop that has more items.
func TestOutputsOfOneRuleAreLimited(t *testing.T) {
	program := rules.Link(rules.Options{}, compile(t, `
metadata: {name: o}
spec:
  rules:
  - {name: many, vars: {list: "{'a,b,c,d,e,f,g'.split(',')}"}, actions: [
      {op: log, args: {msg: a}, loop: [`+numbered(200, "#")+`]}, {op: log, args: {msg: b}, loop: [`+numbered(57, "#")+`]},
      {op: event, args: {reason: R, msg: a}, loop: [`+numbered(200, "#")+`]}, {op: event, args: {reason: R, msg: b}, loop: [`+numbered(57, "#")+`]},
      {op: extend-attribute, args: {path: /taints, value: {key: "example.com/t{item}", effect: NoSchedule}}, loop: [`+numbered(65, "#")+`]}]}
  - {name: rejected, actions: [
      {op: set-attribute, args: {path: "/labels/kubernetes.io~1{item}", value: x}, loop: [`+numbered(200, "#")+`]},
      {op: set-attribute, args: {path: "/labels/kubernetes.io~1{item}", value: x}, loop: [`+numbered(57, "#")+`]}]}
`, rules.Options{}))
	o := program.Eval(rules.Input{Facts: someDevices()})
	rejected := map[string]int{}
	for _, r := range o.Rejected() {
		rejected[r.Rule]++
	}
	got := []int{len(o.Messages()), len(o.Events()), len(o.Taints()), rejected["many"], rejected["rejected"]}
	if diff := cmp.Diff([]int{rules.MaxSaid, rules.MaxSaid, rules.MaxTaints, 3, rules.MaxRejected}, got); diff != "" {
		t.Errorf("lines, Events, taints and what is left out of each, rejected (-want +got):\n%s\n%v", diff, o.Rejected())
	}
}

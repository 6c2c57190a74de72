package action

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/lang/args"
	"github.com/assay-project/assay/rules/lang/expr"
)

// machine is the node of the cases.
type machine struct {
	features map[string]expr.Value
	vars     map[string]expr.Value
	left     int // steps
}

func newMachine() *machine {
	return &machine{
		features: map[string]expr.Value{
			"cpu.x":         expr.OfMap(expr.Dict{"count": expr.OfText("4"), "bmc": expr.OfText("192.168.1.100"), "password": expr.OfMasked(), "blank": expr.OfText("")}),
			"no.attributes": expr.OfMap(expr.Dict{}),
			"net.dev": expr.OfList(expr.Values{
				expr.OfMap(expr.Texts{"name": "eth0", "speed": "1000"}),
				expr.OfMap(expr.Texts{"name": "eth1", "speed": "25000"}),
				expr.OfMap(expr.Texts{"name": "lo"}),
			}),
			"none.dev": expr.OfList(nil),
		},
		vars: map[string]expr.Value{"list": expr.OfList(expr.Names{"a"}), "text": expr.OfText("t")},
		left: 10_000,
	}
}

func (m *machine) Spend(steps int) bool                   { m.left -= steps; return m.left >= 0 }
func (m *machine) Node() expr.Node                        { return expr.Node{Name: "node-1"} }
func (m *machine) Var(name string) (expr.Value, bool)     { v, ok := m.vars[name]; return v, ok }
func (m *machine) Feature(name string) (expr.Value, bool) { v, ok := m.features[name]; return v, ok }
func (m *machine) Matched(string) (expr.Value, bool)      { return expr.Value{}, false }
func (m *machine) Item() expr.Value                       { return expr.Value{} }
func (m *machine) Element(f, element string) (expr.Value, bool) {
	if f := m.features[f].Map(); f != nil {
		return f.Get(element)
	}
	return expr.Value{}, false
}

// recorder records what actions do, one line each, and keeps variables and annotations.
type recorder struct {
	*machine
	lines       []string
	annotations map[string]string
}

func (r *recorder) say(format string, args ...any) error {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
	return nil
}

func (r *recorder) SetLabel(name, value string) error { return r.say("label %s=%s", name, value) }
func (r *recorder) DeleteLabel(name string) error     { return r.say("label %s-", name) }
func (r *recorder) SetResource(name, quantity string) error {
	return r.say("resource %s=%s", name, quantity)
}
func (r *recorder) DeleteResource(name string) error   { return r.say("resource %s-", name) }
func (r *recorder) DeleteAnnotation(name string) error { return r.say("annotation %s-", name) }
func (r *recorder) Fail(message string) error          { return r.say("fail %s", message) }
func (r *recorder) Log(level, message string) error    { return r.say("log %s %s", level, message) }
func (r *recorder) Event(reason, message, eventType string) error {
	return r.say("event %s %s %s", eventType, reason, message)
}

func (r *recorder) SetAnnotation(name, value string) error {
	r.annotations[name] = value
	return r.say("annotation %s=%s", name, value)
}

func (r *recorder) AppendAnnotation(name, value string, unique bool) error {
	return r.SetAnnotation(name, Append(r.annotations[name], value, unique))
}

func (r *recorder) SetTaints(list []corev1.Taint) error {
	r.lines = append(r.lines, fmt.Sprintf("taints %d", len(list)))
	for _, t := range list {
		_ = r.say("taint %s", t.ToString())
	}
	return nil
}

func (r *recorder) AddTaint(t corev1.Taint, unique bool) error {
	return r.say("taint %s unique=%v", t.ToString(), unique)
}

func (r *recorder) SetVar(name string, value expr.Value) error {
	r.vars[name] = value
	return r.say("var %s=%s", name, value)
}

func (r *recorder) ExtendVar(name string, value expr.Value, unique bool) error {
	extended, ok := Extend(r.vars[name], value, unique)
	if !ok {
		return fmt.Errorf("%s is not a list", name)
	}
	return r.SetVar(name, extended)
}

func (r *recorder) UnsetVar(name string) error { return r.say("var %s-", name) }

func (r *recorder) SetFeature(feature, element, value string) error {
	return r.say("feature %s.%s=%s", feature, element, value)
}

func (r *recorder) ExtendFeature(feature, element, value string, unique bool) error {
	return r.say("feature %s.%s+=%s unique=%v", feature, element, value, unique)
}

func (r *recorder) UnsetFeature(feature, element string) error {
	return r.say("feature %s.%s-", feature, element)
}

func (r *recorder) SetInstanceAttribute(feature string, match map[string]string, name, value string) error {
	return r.say("instance %s %v %s=%s", feature, match, name, value)
}

func (r *recorder) ExtendInstanceAttribute(feature string, match map[string]string, name, value string, unique bool) error {
	return r.say("instance %s %v %s+=%s unique=%v", feature, match, name, value, unique)
}

func (r *recorder) DeleteInstanceAttribute(feature string, match map[string]string, name string) error {
	return r.say("instance %s %v %s-", feature, match, name)
}

func TestActions(t *testing.T) {
	tests := map[string]struct {
		phase   nfdv1alpha1.Phase // defaults to main
		actions string            // YAML
		want    []string
		err     string // error of the last action
		missing bool
	}{
		"SetsLabel":                      {actions: `[{op: set-attribute, args: {path: /labels/driver, value: ipmi}}]`, want: []string{"label driver=ipmi"}},
		"KeepsNamespaceInKey":            {actions: `[{op: set-attribute, args: {path: /labels/example.com/bmc, value: "{@cpu.x.bmc}"}}]`, want: []string{"label example.com/bmc=192.168.1.100"}},
		"UndoesPointerEscapes":           {actions: `[{op: set-attribute, args: {path: /labels/example.com~1bmc, value: x}}]`, want: []string{"label example.com/bmc=x"}},
		"ExpandsPath":                    {actions: `[{op: set-attribute, args: {path: "/labels/on-{node}", value: "true"}}]`, want: []string{"label on-node-1=true"}},
		"WritesNumbers":                  {actions: `[{op: set-attribute, args: {path: /extendedResources/example.com/n, value: "{@cpu.x.count*2}"}}, {op: set-attribute, args: {path: /labels/n, value: 5}}]`, want: []string{"resource example.com/n=8", "label n=5"}},
		"ResolvesReferenceAsMapsDo":      {actions: `[{op: set-attribute, args: {path: /labels/n, value: "@cpu.x.count"}}]`, want: []string{"label n=4"}},
		"ReferenceToAWholeFeatureIsText": {actions: `[{op: set-attribute, args: {path: /labels/n, value: "@cpu.x"}}]`, want: []string{"label n=@cpu.x"}},
		"ReferenceToNothingIsText":       {actions: `[{op: set-attribute, args: {path: /labels/n, value: "@cpu"}}]`, want: []string{"label n=@cpu"}},
		"QuotesInAReferenceAreText":      {actions: `[{op: set-attribute, args: {path: /labels/n, value: '@cpu.x."count"'}}]`, want: []string{`label n=@cpu.x."count"`}},
		"SkipsWhatNamesTheMissing":       {actions: `[{op: set-attribute, args: {path: /labels/n, value: "{@cpu.x.nope}"}}]`, err: "value: column 2: no value for @cpu.x.nope", missing: true},
		"RefusesMaskedValue":             {actions: `[{op: set-attribute, args: {path: /labels/n, value: "{@cpu.x.password}"}}]`, err: "masked"},
		"ExtendsAnnotation":              {actions: `[{op: extend-attribute, args: {path: /annotations/a, value: x}}, {op: extend-attribute, args: {path: /annotations/a, value: x}}]`, want: []string{"annotation a=x", "annotation a=x,x"}},
		"ExtendsComputedAnnotation":      {actions: `[{op: extend-attribute, args: {path: "{item.path}", value: x}, loop: [{path: /annotations/a}]}]`, want: []string{"annotation a=x"}},
		"ExtendsNoResourceOfThatPath":    {actions: `[{op: extend-attribute, args: {path: "{item.path}", value: x}, loop: [{path: /extendedResources/a}]}]`, err: "extendedResources are not lists"},
		"ExtendsAnnotationUniquely":      {actions: `[{op: extend-attribute, args: {path: /annotations/a, value: "{item}", unique: true}, loop: [x, z, x]}]`, want: []string{"annotation a=x", "annotation a=x,z", "annotation a=x,z"}},
		"LeavesRegexpInAnnotationAlone":  {actions: `[{op: set-attribute, args: {path: /annotations/a, value: "[a-z]{3}"}}]`, want: []string{"annotation a=[a-z]{3}"}},
		"AddsTaint":                      {actions: `[{op: extend-attribute, args: {path: /taints, value: {key: example.com/bad, value: "{node}", effect: NoSchedule}, unique: true}}]`, want: []string{"taint example.com/bad=node-1:NoSchedule unique=true"}},
		"ReplacesTaints":                 {actions: `[{op: set-attribute, args: {path: /taints, value: [{key: example.com/bad, effect: NoSchedule}]}}, {op: del-attribute, args: {path: /taints}}]`, want: []string{"taints 1", "taint example.com/bad:NoSchedule", "taints 0"}},
		"Deletes":                        {actions: `[{op: del-attribute, args: {path: /labels/a}}, {op: del-attribute, args: {path: /annotations/b}}, {op: del-attribute, args: {path: /extendedResources/c}}]`, want: []string{"label a-", "annotation b-", "resource c-"}},
		"LoopsOverMaps":                  {actions: `[{op: set-attribute, args: {path: "{item.path}", value: x}, loop: [{path: /labels/a}, {path: /annotations/b/c}, {path: /extendedResources/v.io/r}]}]`, want: []string{"label a=x", "annotation b/c=x", "resource v.io/r=x"}},
		"RefusesComputedPathToNothing":   {actions: `[{op: set-attribute, args: {path: "{item.path}", value: x}, loop: [{path: /properties/a}]}]`, err: `path: invalid value "/properties/a": write /labels/KEY`},
		"ExtendsNoLabelOfComputedPath":   {actions: `[{op: extend-attribute, args: {path: "{item.path}", value: x}, loop: [{path: /labels/a}]}]`, err: "labels are not lists"},
		"LoopsOverItemsWithExpressions":  {actions: `[{op: set-attribute, args: {path: "/labels/{item.key}", value: "{item.value}"}, loop: [{key: a, value: "{@cpu.x.count}"}, {key: b, value: z}]}]`, want: []string{"label a=4", "label b=z"}},
		"TakesOneMapForOneTurn":          {actions: `[{op: set-attribute, args: {path: "/labels/{item.key}", value: x}, loop: {key: a}}]`, want: []string{"label a=x"}},
		"LoopsOverFeatures":              {actions: `[{op: set-attribute, args: {path: "/labels/example.com/nic-{item.name}", value: "{item.speed}"}, loop: "{@net.dev}"}]`, want: []string{"label example.com/nic-eth0=1000", "label example.com/nic-eth1=25000"}, err: "no element speed", missing: true},
		"DoesNothingForEmptyFeature":     {actions: `[{op: log, args: {msg: "{item.name}"}, loop: "{@none.dev}"}]`},
		"SetsVar":                        {actions: `[{op: set-var, args: {name: a.b, value: {k: "{@cpu.x.count}", l: [1, true]}}}]`, want: []string{`var a.b={"k":"4","l":[1,true]}`}},
		"KeepsKindsInVars":               {actions: `[{op: set-var, args: {name: a, value: "{@cpu.x.count+1}"}}, {op: set-var, args: {name: b, value: "{@none.dev}"}}]`, want: []string{"var a=5", "var b=[]"}},
		"ExtendsVar":                     {actions: `[{op: extend-var, args: {name: list, value: "{item}"}, loop: [x, z, x]}]`, want: []string{`var list=["a","x"]`, `var list=["a","x","z"]`, `var list=["a","x","z","x"]`}},
		"ExtendsVarUniquely":             {actions: `[{op: extend-var, args: {name: list, value: "{item}", unique: true}, loop: [x, z, x]}]`, want: []string{`var list=["a","x"]`, `var list=["a","x","z"]`, `var list=["a","x","z"]`}},
		"ExtendsNewVar":                  {actions: `[{op: extend-var, args: {name: new, value: 1}}]`, want: []string{"var new=[1]"}},
		"CannotExtendText":               {actions: `[{op: extend-var, args: {name: text, value: 1}}]`, err: "text is not a list"},
		"UnsetsVar":                      {actions: `[{op: unset-var, args: {name: list}}]`, want: []string{"var list-"}},
		"DerivesFeatures": {phase: nfdv1alpha1.PhaseEarly, actions: `[{op: set-feature, args: {feature: site.derived, element: fast, value: "{@cpu.x.count}"}},
			{op: extend-feature, args: {feature: site.derived, element: all, value: x, unique: true}}, {op: unset-feature, args: {feature: site.derived, element: fast}}, {op: unset-feature, args: {feature: site.derived}}]`,
			want: []string{"feature site.derived.fast=4", "feature site.derived.all+=x unique=true", "feature site.derived.fast-", "feature site.derived.-"}},
		"ChangesInstances": {phase: nfdv1alpha1.PhasePreprocess, actions: `[{op: set-instance-attribute, args: {feature: network.device, match: {name: "eth{1-1}", m: 4}, name: role, value: storage}},
			{op: extend-instance-attribute, args: {feature: network.device, match: {name: eth0}, name: role, value: x}}, {op: del-instance-attribute, args: {feature: network.device, match: {name: eth0}, name: role}}]`,
			want: []string{"instance network.device map[m:4 name:eth0] role=storage", "instance network.device map[name:eth0] role+=x unique=false", "instance network.device map[name:eth0] role-"}},
		"ExpandsMessages":                {actions: `[{op: fail, args: {msg: "{node} is bad"}}, {op: log, args: {msg: "{node}"}}, {op: log, args: {msg: m, level: error}}, {op: event, args: {reason: NewGPU, msg: "{node}"}}]`, want: []string{"fail node-1 is bad", "log info node-1", "log error m", "event Normal NewGPU node-1"}},
		"FailsEvenIfTheMessageCannotSay": {actions: `[{op: fail, args: {msg: "firmware {@cpu.x.nope} is banned"}}]`, want: []string{"fail firmware {@cpu.x.nope} is banned"}},
		"RefusesMaskedMessage":           {actions: `[{op: fail, args: {msg: "{@cpu.x.password}"}}]`, err: "masked"},
		"ReferenceInAnAnnotationIsText":  {actions: `[{op: set-attribute, args: {path: /annotations/n, value: "@cpu.x.count"}}]`, want: []string{"annotation n=@cpu.x.count"}},
		"ReferenceWithAnExpression":      {actions: `[{op: set-attribute, args: {path: /labels/n, value: "@cpu.x.{node}"}}]`, want: []string{"label n=@cpu.x.node-1"}},
		"ReasonMayHaveEveryCharacter":    {actions: `[{op: event, args: {reason: 09azAZ, msg: x}}, {op: event, args: {reason: ` + strings.Repeat("a", maxReason) + `, msg: x}}]`, want: []string{"event Normal 09azAZ x", "event Normal " + strings.Repeat("a", maxReason) + " x"}},
		"NeedsAnElement":                 {phase: nfdv1alpha1.PhaseEarly, actions: `[{op: set-feature, args: {feature: a.b, element: "{@cpu.x.blank}", value: x}}]`, err: "the name is empty"},
		"NeedsAttributesToMatch":         {phase: nfdv1alpha1.PhaseEarly, actions: `[{op: set-instance-attribute, args: {feature: a.b, match: "{@no.attributes}", name: x, value: y}}]`, err: "match: a map is not a map of attributes"},
		"NeedsAMapToMatch":               {phase: nfdv1alpha1.PhaseEarly, actions: `[{op: set-instance-attribute, args: {feature: a.b, match: "{@net.dev}", name: x, value: y}}]`, err: "match: a list is not a map of attributes"},
		"TakesListOfArguments":           {actions: `[{op: set-attribute, args: [/labels/driver, ipmi]}]`, want: []string{"label driver=ipmi"}},
		"RefusesLargeLoop":               {actions: `[{op: log, args: {msg: x}, loop: "{@large.dev}"}]`, err: "loop over 257 items exceeds the budget of 256"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := &recorder{machine: newMachine(), annotations: map[string]string{}}
			r.features["large.dev"] = expr.OfList(make(expr.Values, 257))
			err := r.run(t, tc.phase, tc.actions)
			if diff := cmp.Diff(tc.want, r.lines); diff != "" {
				t.Errorf("effects (-want +got):\n%s", diff)
			}
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			if args.IsMissing(err) != tc.missing {
				t.Errorf("missing is %v, want %v: %v", !tc.missing, tc.missing, err)
			}
		})
	}
}

// run compiles and runs actions, up to the first error.
func (r *recorder) run(t *testing.T, phase nfdv1alpha1.Phase, text string) error {
	t.Helper()
	list, c := compile(t, phase, text)
	if len(c.Errors) > 0 {
		return fmt.Errorf("refused: %w", c.Errors.ToAggregate())
	}
	for _, a := range list {
		if err := a.Run(r, r); err != nil {
			return err
		}
	}
	return nil
}

func compile(t *testing.T, phase nfdv1alpha1.Phase, text string) ([]*Action, *args.Compiler) {
	t.Helper()
	var list []nfdv1alpha1.Action
	if err := yaml.UnmarshalStrict([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	if phase == "" {
		phase = nfdv1alpha1.PhaseMain
	}
	c := &args.Compiler{Scope: &expr.Scope{Vars: map[string]bool{"list": true, "text": true}}}
	var actions []*Action
	for i, in := range list {
		actions = append(actions, Compile(c, field.NewPath("actions").Index(i), phase, in))
	}
	return actions, c
}

func TestRefusals(t *testing.T) {
	tests := map[string]struct {
		phase  nfdv1alpha1.Phase
		action string
		want   string
	}{
		"UnknownAction":        {action: `{op: api-call, args: {url: x}}`, want: "actions[0].op: unknown action"},
		"MissingArgument":      {action: `{op: fail}`, want: "actions[0].args.msg: fail needs it"},
		"UnexpectedArgument":   {action: `{op: fail, args: {msg: x, mgs: y}}`, want: "actions[0].args.mgs: fail has no such argument"},
		"BadArgumentInALoop":   {action: `{op: set-attribute, args: {path: "/labels/{item.a}{rakc}", value: x}, loop: [{a: 1}]}`, want: "actions[0].args.path: column 18: unknown name rakc"},
		"UnknownLevel":         {action: `{op: log, args: {msg: x, level: bogus}}`, want: "actions[0].args.level"},
		"UnknownRoot":          {action: `{op: set-attribute, args: {path: /driver, value: ipmi}}`, want: "actions[0].args.path: a path is"},
		"PathWithDots":         {action: `{op: set-attribute, args: {path: driver.x, value: ipmi}}`, want: "actions[0].args.path: a path is"},
		"PathBelowText":        {action: `{op: set-attribute, args: {path: /labels/a/b/c, value: ipmi}}`, want: "actions[0].args.path: the path must end after the key"},
		"PathWithoutKey":       {action: `{op: set-attribute, args: {path: /labels/, value: ipmi}}`, want: "actions[0].args.path: the path needs a key"},
		"UnknownNameInPath":    {action: `{op: set-attribute, args: {path: "/labels/{rakc}", value: ipmi}}`, want: "actions[0].args.path: column 10: unknown name rakc"},
		"ListAsLabel":          {action: `{op: set-attribute, args: {path: /labels/a, value: "{@net.dev}"}}`, want: "actions[0].args.value: column 1: a whole feature is not a string"},
		"MapAsLabel":           {action: `{op: set-attribute, args: {path: /labels/a, value: {a: b}}}`, want: "actions[0].args.value: labels are strings"},
		"ExtendedLabel":        {action: `{op: extend-attribute, args: {path: /labels/a, value: x}}`, want: "actions[0].args.path: labels are not lists"},
		"ExtendedResource":     {action: `{op: extend-attribute, args: {path: /extendedResources/a, value: x}}`, want: "actions[0].args.path: extendedResources are not lists"},
		"TaintWithPath":        {action: `{op: extend-attribute, args: {path: /taints/a, value: x}}`, want: "actions[0].args.path: /taints takes no key"},
		"TaintWithoutEffect":   {action: `{op: extend-attribute, args: {path: /taints, value: {key: a}}}`, want: "actions[0].args.value: effect"},
		"AttributeTooEarly":    {phase: nfdv1alpha1.PhaseEarly, action: `{op: set-attribute, args: {path: /labels/a, value: x}}`, want: "actions[0].op: Forbidden: set-attribute runs in phase preprocess or main"},
		"FeatureTooLate":       {action: `{op: set-feature, args: {feature: a.b, element: c, value: d}}`, want: "actions[0].op: Forbidden: set-feature runs in phase early or preprocess"},
		"FeatureNobodyFinds":   {phase: nfdv1alpha1.PhaseEarly, action: `{op: set-feature, args: {feature: Site.X, element: c, value: d}}`, want: "actions[0].args.feature: matchers look for features in lower case"},
		"FeatureOfOthers":      {phase: nfdv1alpha1.PhaseEarly, action: `{op: set-feature, args: {feature: rule.matched, element: c, value: d}}`, want: "actions[0].args.feature: rules fill this feature"},
		"InstanceWithoutMatch": {phase: nfdv1alpha1.PhaseEarly, action: `{op: set-instance-attribute, args: {feature: a.b, match: {}, name: c, value: d}}`, want: "actions[0].args.match: match is a map"},
		"EmptyLoop":            {action: `{op: fail, args: {msg: x}, loop: []}`, want: "actions[0].loop: an empty loop has no effect"},
		"LoopOverText":         {action: `{op: fail, args: {msg: x}, loop: abc}`, want: "actions[0].loop: a string is not a list"},
		"UnquotedBraces":       {action: `{op: set-var, args: {name: a, value: {n1: null}}}`, want: "YAML takes unquoted braces for a map"},
		"ReasonOfTwoWords":     {action: `{op: event, args: {reason: new gpu, msg: x}}`, want: "actions[0].args.reason: a reason is a word"},
		"TypeOfEvent":          {action: `{op: event, args: {reason: a, msg: x, type: normal}}`, want: "actions[0].args.type"},
		"NoArguments":          {action: `{op: set-attribute, args: []}`, want: "actions[0].args.path: set-attribute needs text here"},
		"UnknownNameInValue":   {action: `{op: set-attribute, args: {path: /labels/a, value: "{rakc}"}}`, want: "actions[0].args.value: column 2: unknown name rakc"},
		"UnknownAnnotation":    {action: `{op: set-attribute, args: {path: "/annotations/{rakc}", value: x}}`, want: "actions[0].args.path: column 15: unknown name rakc"},
		"FeatureWithoutDomain": {phase: nfdv1alpha1.PhaseEarly, action: `{op: set-feature, args: {feature: .b, element: c, value: d}}`, want: "actions[0].args.feature: a feature is named DOMAIN.FEATURE"},
		"DomainAlone":          {phase: nfdv1alpha1.PhaseEarly, action: `{op: set-feature, args: {feature: a, element: c, value: d}}`, want: "actions[0].args.feature: a feature is named DOMAIN.FEATURE"},
		"LongReason":           {action: `{op: event, args: {reason: ` + strings.Repeat("a", maxReason+1) + `, msg: x}}`, want: "actions[0].args.reason: a reason is a word"},
		"UniqueAsText":         {action: `{op: extend-var, args: {name: a, value: x, unique: "yes"}}`, want: "actions[0].args.unique: true or false"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			list, c := compile(t, tc.phase, "["+tc.action+"]")
			if list[0] != nil {
				t.Fatal("it was accepted")
			}
			var got []string
			for _, e := range c.Errors {
				got = append(got, strings.Replace(e.Field+": "+strings.TrimPrefix(e.ErrorBody(), "Invalid value: "), "Required value: ", "", 1))
			}
			if len(slices.Compact(slices.Clone(got))) != len(got) {
				t.Errorf("an error is reported twice: %q", got)
			}
			all := strings.Join(got, "\n")
			path, message, _ := strings.Cut(tc.want, ": ")
			if !strings.Contains(all, path) || !strings.Contains(all, message) {
				t.Errorf("got %s\nwant %s", all, tc.want)
			}
		})
	}
}

func TestEveryActionIsDescribed(t *testing.T) {
	want := slices.Sorted(maps.Keys(kinds))
	documented := Kinds()
	if len(documented) != len(want) {
		t.Errorf("%d actions are documented, %d exist", len(documented), len(want))
	}
	for _, d := range documented {
		if d.Says == "" {
			t.Errorf("%s is not described", d.Name)
		}
	}
}

func FuzzRun(f *testing.F) {
	f.Add("set-attribute", `{"path":"/labels/{node}","value":"{@cpu.x.count}"}`, `[1,{"a":"{node}"}]`)
	f.Add("extend-attribute", `{"path":"/taints","value":[{"key":"a","effect":"NoSchedule"}]}`, `null`)
	f.Add("set-var", `["a",{"b":["{@net.dev}"]}]`, `"{@net.dev}"`)
	f.Add("set-instance-attribute", `{"feature":"a.b","match":{"n":"{item}"},"name":"c","value":"d"}`, `["{node}"]`)
	f.Add("event", `{"reason":"A","msg":"{@cpu.x.nope}"}`, `{}`)
	f.Fuzz(func(t *testing.T, op, arguments, loop string) {
		if !json.Valid([]byte(arguments)) || !json.Valid([]byte(loop)) {
			return
		}
		in := nfdv1alpha1.Action{Op: op, Args: nfdv1alpha1.JSON{Raw: []byte(arguments)}, Loop: &nfdv1alpha1.JSON{}}
		if err := in.Loop.UnmarshalJSON([]byte(loop)); err != nil {
			return
		}
		for _, phase := range []nfdv1alpha1.Phase{nfdv1alpha1.PhaseEarly, nfdv1alpha1.PhaseMain} {
			c := &args.Compiler{Scope: &expr.Scope{Vars: map[string]bool{"list": true}}}
			a := Compile(c, nil, phase, in)
			if (a == nil) != (len(c.Errors) > 0) {
				t.Fatalf("compiled %v with %v", a, c.Errors)
			}
			if a == nil {
				continue
			}
			var before []string
			for range 2 {
				r := &recorder{machine: newMachine(), annotations: map[string]string{}}
				if err := a.Run(r, r); err != nil && err.Error() == "" {
					t.Error("error without a message")
				}
				if before != nil && !slices.Equal(before, r.lines) {
					t.Errorf("first %q, then %q", before, r.lines)
				}
				before = r.lines
			}
			a.Output()
			a.Derives()
		}
	})
}

// TestTextsAreNoLists checks that a list is rejected as the value of a label, even if its kind is known only on the node.
func TestTextsAreNoLists(t *testing.T) {
	for _, value := range []string{`[a]`, `["{node}"]`, `{a: b}`, `{a: "{node}"}`} {
		var in nfdv1alpha1.Action
		if err := yaml.Unmarshal([]byte(`{op: set-attribute, args: {path: /labels/x, value: `+value+`}}`), &in); err != nil {
			t.Fatal(err)
		}
		c := &args.Compiler{Scope: &expr.Scope{}}
		if Compile(c, field.NewPath("a"), nfdv1alpha1.PhaseMain, in) != nil {
			t.Errorf("%s is taken as the value of a label", value)
		}
	}
}

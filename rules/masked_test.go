package rules_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/lang/condition"
	"github.com/assay-project/assay/rules/lang/match"
)

// secrets are values that every operator can distinguish.
var secrets = []string{"hunter2", "7", "42", "true", "false", "", "1.2.3", "10.1.2.3"}

// withSecret returns the facts of a node whose masked elements have the given value.
func withSecret(value string) *facts.Facts {
	return facts.FromMap(map[string]facts.Feature{
		"local.label": {Attributes: facts.NewAttributes(map[string]string{"bmc-password": value, "rack": "r1"})},
		"usb.device": {Instances: facts.NewInstances([]map[string]string{
			{"vendor": "1050", "serial-token": value}, {"vendor": "046d"},
		})},
	}, nil)
}

// guesses returns rules that compare the secret in every way that the language has.
func guesses() (specs []string) {
	main := func(rule string, args ...any) {
		specs = append(specs, fmt.Sprintf("{rules: [{name: r, vars: {hit: x}, labels: {hit: x}, "+rule+"}]}", args...))
	}
	values := map[string]string{"no value": "[]", "at least one value": `["7", "hunter2", "true", "^1", "h"]`, "exactly one value": `["7"]`, "exactly 2 values": `["7", "41"]`}
	for _, op := range match.Operators() {
		for _, kind := range []string{"", "version"} {
			expr := fmt.Sprintf("{op: %s, value: %s, type: %q}", op.Op, values[op.Values], kind)
			main("matchFeatures: [{feature: local.label, matchExpressions: {bmc-password: %s}}]", expr)
			main("matchFeatures: [{feature: usb.device, matchExpressions: {serial-token: %s, vendor: {op: Exists}}}]", expr)
			main("matchAny: [{matchFeatures: [{feature: usb.device, matchExpressions: {serial-token: %s}}]}]", expr)
		}
	}
	for _, about := range []string{
		`{@"local.label.bmc-password"}`, `{@local.label["bmc-password"]}`, `{@local.label}`, `{@"local.label.bmc-password".default("7")}`,
		`{@"local.label.bmc-password".hash(3)}`, `{@"local.label.bmc-password".len()}`, `{@usb.device[0]["serial-token"]}`, `{@usb.device}`, `{@usb.device[0]}`,
		`x{@local.label}`, `x{@usb.device}`,
	} {
		for _, op := range condition.Operators() {
			args := map[string]string{
				"address": about, "subnet": "10.0.0.0/8", "value": about, "regex": "7|hunter2|true", "type": "version",
			}
			var list []string
			for _, a := range op.Args {
				switch {
				case a.Name == "values" && op.Name == "one-of":
					list = append(list, `values: ["7", hunter2, "true"]`)
				case a.Name == "values":
					list = append(list, fmt.Sprintf(`values: ['%s', "7"]`, about))
				case args[a.Name] != "" && a.Name != "type":
					list = append(list, fmt.Sprintf("%s: '%s'", a.Name, args[a.Name]))
				}
			}
			main("conditions: [{op: %s, args: {%s}}]", op.Name, strings.Join(list, ", "))
			main(`conditions: [{op: %s, args: {%s}, loop: "{@usb.device}"}]`, op.Name,
				strings.ReplaceAll(strings.Join(list, ", "), about, `{item["serial-token"]}`))
		}
		main("annotations: {guess: '%s'}", about)
		main(`actions: [{op: set-var, args: {name: v, value: '%s'}}, {op: log, args: {msg: 'said {v}'}}]`, about)
		main(`actions: [{op: event, args: {reason: R, msg: '%s'}}]`, about)
		main("loop: '%s', annotations: {'guess-{item}': x}", about)
	}
	main(`conditions: [{op: eq, args: {values: ["{@local.label}", {bmc-password: "7", rack: r1}]}}]`)
	main(`conditions: [{op: eq, args: {values: ["{@local.label}", {bmc-password: "7", rack: r1}], force_strings: true}}]`)
	for _, term := range []string{
		"{feature: local.label, matchExpressions: {}}", "{feature: local.label, matchName: {op: Exists}}", "{feature: local.label, matchExpressions: {bmc-password: {op: Exists}}}",
		"{feature: usb.device, matchExpressions: {}}", "{feature: usb.device, matchExpressions: {serial-token: {op: Exists}}}", "{feature: usb.device, matchName: {op: InRegexp, value: [token]}}",
	} {
		for _, template := range []string{
			`{{ . }}`, `{{ range .local.label }}{{ .Value }}=x{{ end }}`, `{{ range .usb.device }}{{ index . "serial-token" }}=x{{ end }}`,
			`{{ range .usb.device }}{{ range $k, $v := . }}{{ $k }}={{ $v }}
{{ end }}{{ end }}`, `{{ range .usb.device }}{{ if eq (index . "serial-token") "7" }}hit=x{{ end }}{{ end }}`, `{{ toJson .usb.device }}=x`,
		} {
			data, _ := json.Marshal(template)
			specs = append(specs, fmt.Sprintf(`{rules: [{name: r, varsTemplate: %s, labelsTemplate: %s, matchFeatures: [%s]},
			  {name: then, labels: {hit: x}, matchFeatures: [{feature: rule.matched, matchName: {op: InRegexp, value: ["7|hunter|true"]}}]}]}`, data, data, term))
		}
	}
	for _, action := range []string{
		`{op: set-instance-attribute, args: {feature: usb.device, match: {serial-token: "7"}, name: guess, value: hit}}`,
		`{op: extend-instance-attribute, args: {feature: usb.device, match: {serial-token: "7"}, name: guess, value: hit}}`,
		`{op: del-instance-attribute, args: {feature: usb.device, match: {serial-token: "7"}, name: vendor}}`,
		`{op: set-feature, args: {feature: local.copy, element: x, value: '{@"local.label.bmc-password"}'}}`,
		`{op: extend-feature, args: {feature: local.label, element: bmc-password, value: "7", unique: true}}`,
	} {
		specs = append(specs, fmt.Sprintf("{phase: early, rules: [{name: r, actions: [%s]}]}", action))
	}
	return specs
}

// TestNothingDependsOnAMaskedValue compares, reads and writes a masked value in every possible way, on nodes that differ only in
// this value: users and programs must see the same results.
func TestNothingDependsOnAMaskedValue(t *testing.T) {
	const reader = `{rules: [{name: read, labels: {seen: x}, vars: {all: '{@usb.device}', same: '{@local.label}'}, annotations: {copy: '{@local.copy.x}'},
	  matchFeatures: [{feature: usb.device, matchExpressions: {guess: {op: In, value: [hit]}}}]}]}`
	compiled := 0
	for _, strict := range []bool{false, true} {
		opt := rules.Options{Strict: strict}
		last, report := rules.CompileSpec("z", parseSpec(t, reader), opt)
		if !report.OK() {
			t.Fatal(report.Errors.ToAggregate())
		}
		for _, text := range guesses() {
			spec := parseSpec(t, text)
			set, report := rules.CompileSpec("a", spec, opt)
			if !report.OK() {
				continue // a rejected rule cannot leak a value
			}
			compiled++
			program := rules.Link(opt, set, last)
			var want string
			for i, secret := range secrets {
				in := rules.Input{Node: rules.Node{Name: "n"}, Facts: withSecret(secret)}
				got := everythingSeen(t, program, in, &spec.Rules[0], opt)
				if i == 0 {
					want = got
				}
				if got != want {
					t.Errorf("strict %v: %s tells %q from %q:\n%s\n%s", strict, text, secret, secrets[0], want, got)
					break
				}
			}
		}
	}
	if compiled < 300 {
		t.Errorf("only %d guesses compile", compiled)
	}
}

func parseSpec(t *testing.T, text string) *nfdv1alpha1.NodeFeatureRuleSpec {
	t.Helper()
	spec := &nfdv1alpha1.NodeFeatureRuleSpec{}
	if err := yaml.UnmarshalStrict([]byte(text), spec); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return spec
}

// everythingSeen returns all that a program, and a pod with the same requirement, reveal about a node.
func everythingSeen(t *testing.T, p *rules.Program, in rules.Input, r *nfdv1alpha1.Rule, opt rules.Options) string {
	t.Helper()
	o := p.Eval(in)
	seen := []any{o.Labels(), o.Annotations(), o.Vars(), o.Rejected(), o.Events(), o.Messages(), o.Produced(), o.Failed}
	for _, rule := range o.Rules() {
		seen = append(seen, rule.Matched, fmt.Sprint(rule.Err, rule.Partial))
	}
	for _, trace := range p.Trace(in) {
		seen = append(seen, trace.MatchFeatures, trace.MatchAny, trace.Conditions, trace.Why, trace.Outputs, trace.Rejected)
	}
	q, report := rules.CompileRequirement(field.NewPath("required"), r.MatchFeatures, r.MatchAny, r.Conditions, opt)
	if report.OK() {
		ok, err := q.Eval(in, o.Produced())
		_, cost, _ := q.EvalCosting(in, o.Produced())
		seen = append(seen, ok, fmt.Sprint(err), cost, q.Lacks(in, o.Produced()), q.Why(in, o.Produced()), q.Unmet(in, o.Produced()))
	}
	out, err := json.Marshal(seen)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestAMaskedNameDrawsAWarning checks that the author of a rule gets a warning when applying it.
func TestAMaskedNameDrawsAWarning(t *testing.T) {
	const expression = "[{feature: local.label, matchExpressions: {bmc-password: {op: %s}, rack: {op: In, value: [r1]}}}]"
	for op, want := range map[string]string{
		`InRegexp, value: ["^h"]`: "spec.rules[0].matchFeatures[0].matchExpressions[bmc-password].op: InRegexp never holds: " +
			"the value is masked; use Exists or DoesNotExist",
		"Exists": "", "DoesNotExist": "",
	} {
		_, report := rules.CompileSpec("r", parseSpec(t, "{rules: [{name: r, matchFeatures: "+fmt.Sprintf(expression, op)+"}]}"), rules.Options{})
		var got []string
		for _, w := range report.Warnings {
			got = append(got, w.String())
		}
		if !report.OK() || strings.Join(got, "; ") != want {
			t.Errorf("%s: got %q, want %q (%v)", op, got, want, report.Errors)
		}
	}
}

// TestVariablesOfSensitiveRulesAreNotToldToPods checks that pods cannot read variables of sensitive rules, which may contain masked
// values.
func TestVariablesOfSensitiveRulesAreNotToldToPods(t *testing.T) {
	spec := parseSpec(t, `{sensitive: true, rules: [{name: r, vars: {v: '{@"local.label.bmc-password"}'}, labels: {l: "1"}}]}`)
	opt := rules.Options{Mask: rules.Masking{Mode: rules.MaskSensitive}}
	set, report := rules.CompileSpec("r", spec, opt)
	if !report.OK() {
		t.Fatal(report.Errors.ToAggregate())
	}
	o := rules.Link(opt, set).Eval(rules.Input{Facts: withSecret("hunter2")})
	if o.Vars()["v"] != "hunter2" || o.Produced()["v"] != "" || o.Produced()["l"] != "1" {
		t.Errorf("vars %v, produced %v", o.Vars(), o.Produced())
	}
}

// TestTracesOfSensitiveRulesAreWithoutConditions checks that the trace, which explain prints, has no operands of sensitive rules.
func TestTracesOfSensitiveRulesAreWithoutConditions(t *testing.T) {
	for text, want := range map[string]int{
		`{rules: [{name: r, labels: {l: "1"}, conditions: [{op: eq, args: ["a", "a"]}]}]}`:                  1,
		`{sensitive: true, rules: [{name: r, labels: {l: "1"}, conditions: [{op: eq, args: ["a", "a"]}]}]}`: 0,
	} {
		set, report := rules.CompileSpec("r", parseSpec(t, text), rules.Options{})
		if !report.OK() {
			t.Fatal(report.Errors)
		}
		traces := rules.Link(rules.Options{}, set).Trace(rules.Input{Facts: someDevices()})
		if len(traces) != 1 || !traces[0].Matched || len(traces[0].Conditions) != want {
			t.Errorf("%s: the trace is %+v, want %d conditions", text, traces, want)
		}
	}
}

// TestRequestedLabelsDoNotShowMaskedValues: a label that one publisher requests once showed the password that another one published.
func TestRequestedLabelsDoNotShowMaskedValues(t *testing.T) {
	const key = "example.com/bmc"
	in := rules.Input{Facts: withSecret("hunter2"), Labels: map[string]string{key: "@local.label.bmc-password", "example.com/rack": "@local.label.rack"}}
	for mode, want := range map[rules.MaskMode]string{rules.MaskAlways: "", rules.MaskSensitive: "", rules.MaskNever: "hunter2"} {
		o := rules.Link(rules.Options{Mask: rules.Masking{Mode: mode}}).Eval(in)
		if got := o.Labels(); got[key] != want || got["example.com/rack"] != "r1" {
			t.Errorf("%s: labels %v", mode, got)
		}
		if got := o.Rejected(); want == "" && (len(got) != 1 || got[0].Key != key || strings.Contains(got[0].Reason, "hunter2")) {
			t.Errorf("%s: rejected %v", mode, got)
		}
	}
}

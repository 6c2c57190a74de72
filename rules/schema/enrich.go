package schema

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/dictionary"
)

// enrich adds constraints to the schema of an object that the CustomResourceDefinition does not express. It recognizes the type of
// the object by its fields.
func enrich(fields, schema object) {
	has := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return fields[name] == nil })
	}
	switch {
	case has("feature", "matchExpressions", "matchName"):
		term(fields, schema)
	case has("op", "value"):
		matchExpression(fields, schema)
	case has("op", "args", "invert"):
		conditionOf(fields, schema)
	case has("op", "args"):
		actionOf(fields, schema)
	case has("key", "effect"):
		effect := fields["effect"].(object) //nolint:forcetypeassert // converted by convert
		effect["enum"] = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	case has("rules", "priority", "phase"):
		setDefault(fields, "priority", 0)
		setDefault(fields, "phase", "main")
	case has("labels", "matchFeatures", "expressions"):
		setDefault(fields, "expressions", "Auto")
		schema["examples"] = []any{ruleExample}
	}
}

// ruleExample is the snippet that editors offer for a new rule.
var ruleExample = object{
	"name":   "NVIDIA GPU",
	"labels": object{"example.com/gpu": "true"},
	"matchFeatures": []any{object{
		"feature":          "pci.device",
		"matchExpressions": object{"vendor": object{"op": "In", "value": []any{"10de"}}, "class": object{"op": "In", "value": []any{"0300", "0302"}}},
	}},
}

func setDefault(fields object, name string, value any) {
	if field, ok := fields[name].(object); ok {
		field["default"] = value
	}
}

// term adds suggestions for the names of features and of their elements. Other names stay valid, since publishers may add features.
func term(fields, schema object) {
	feature := fields["feature"].(object) //nolint:forcetypeassert // converted by convert
	feature["anyOf"] = []any{object{"enum": dictionary.Names()}, object{"type": "string"}}
	feature["examples"] = []any{"cpu.cpuid", "kernel.version", "pci.device"}
	expression := fields["matchExpressions"].(object)["additionalProperties"] //nolint:forcetypeassert // a map of expressions
	if expression == nil {
		return
	}
	var cases []any
	for _, f := range dictionary.All() {
		elements := object{}
		for _, name := range f.ElementNames() {
			elements[name] = element(f.Element(name))
		}
		if len(elements) == 0 {
			continue
		}
		cases = append(cases, object{
			"if":   object{"properties": object{"feature": object{"const": f.Name}}, "required": []string{"feature"}},
			"then": object{"properties": object{"matchExpressions": object{"properties": elements}}},
		})
	}
	schema["allOf"] = cases
}

// element describes an element for the hover text of editors.
func element(e *dictionary.Element) object {
	if e.Means == "" {
		return object{}
	}
	return object{"description": strings.ReplaceAll(e.Means+" ("+e.Says()+")", "`", "")}
}

// matchExpression limits the number of values for each operator.
func matchExpression(fields, schema object) {
	values := map[[2]int][]string{}
	var describe []string
	for _, op := range rules.MatchOperators() {
		key := [2]int{op.Min, op.Max}
		values[key] = append(values[key], string(op.Op))
		describe = append(describe, string(op.Op)+": "+op.Says)
	}
	var cases []any
	for _, op := range rules.MatchOperators() {
		key := [2]int{op.Min, op.Max}
		ops := values[key]
		if ops == nil {
			continue
		}
		values[key] = nil
		then := object{"required": []string{"value"}, "properties": object{"value": object{"minItems": op.Min, "maxItems": op.Max}}}
		if op.Max == 0 {
			then = object{"properties": object{"value": object{"maxItems": 0}}}
		}
		cases = append(cases, object{"if": object{"properties": object{"op": object{"enum": ops}}, "required": []string{"op"}}, "then": then})
	}
	schema["allOf"] = cases
	extend(fields, "op", strings.Join(describe, "; "))
}

// extend adds a sentence to the description of a field.
func extend(fields object, name, text string) {
	field, ok := fields[name].(object)
	if !ok {
		return
	}
	before, _ := field["description"].(string)
	field["description"] = strings.TrimSpace(before + " " + text + ".")
}

func conditionOf(fields, schema object) {
	var names []any
	var cases []any
	for _, op := range rules.ConditionOperators() {
		spellings := []string{op.Name, op.CamelCase, "!" + op.Name, "! " + op.Name, "!" + op.CamelCase, "! " + op.CamelCase}
		names = append(names, op.Name, op.CamelCase)
		cases = append(cases, argumentsOf(spellings, op.Args))
	}
	op := fields["op"].(object) //nolint:forcetypeassert // converted by convert
	op["anyOf"] = []any{object{"enum": names}, object{"pattern": "^!"}}
	setDefault(fields, "multiple", "any")
	schema["allOf"] = cases
}

func actionOf(fields, schema object) {
	var names []any
	var cases []any
	for _, kind := range rules.ActionKinds() {
		names = append(names, kind.Name)
		cases = append(cases, argumentsOf([]string{kind.Name}, kind.Args))
	}
	fields["op"].(object)["enum"] = names //nolint:forcetypeassert // converted by convert
	schema["allOf"] = cases
}

// argumentsOf adds suggestions for the arguments of an operator or action. It does not restrict the values, because the arguments
// may also be a list.
func argumentsOf(spellings []string, params []rules.Parameter) object {
	properties := object{}
	for _, p := range params {
		properties[p.Name] = object{}
	}
	return object{
		"if":   object{"properties": object{"op": object{"enum": spellings}}, "required": []string{"op"}},
		"then": object{"properties": object{"args": object{"properties": properties}}},
	}
}

//go:build linux

package main

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// domain is that of the keys of the rules of this test. Labels that NodeFeatures request can also have the default one.
const domain = "twin.example.com/"

// ruleForm is a kind of rule: YAML of the spec. RULE is replaced by its name, KEY by a prefix of keys that no other rule has, LEVEL by a digit, FLAG by the
// name of a flag, WORD by a random word, and NODE by a serial number of a node.
type ruleForm struct {
	family string // whose features it reads: worker, vendor, node
	spec   string
}

// ruleForms has all kinds. Expressions on features that a node lacks do not match, and values that are missing are not written.
var ruleForms = []ruleForm{
	{"worker", `{rules: [{name: reference, labels: {KEY-serial: "@twin.attr.serial"}, matchFeatures: [{feature: twin.attr, matchExpressions: {serial: {op: Exists}}}]}]}`},
	{"vendor", `{rules: [{name: reference, labels: {KEY-x: "@vendor.attr.x"}, matchFeatures: [{feature: vendor.attr, matchExpressions: {x: {op: Exists}}}]}]}`},
	{"worker", `{rules: [{name: template, labelsTemplate: "{{range .twin.card}}KEY-{{.slot}}={{.vendor}}\n{{end}}", matchFeatures: [{feature: twin.card, matchExpressions: {vendor: {op: Exists}}}]}]}`},
	{"vendor", `{rules: [{name: template, labelsTemplate: "{{range .vendor.card}}KEY-{{.slot}}={{.vendor}}\n{{end}}", matchFeatures: [{feature: vendor.card, matchExpressions: {speed: {op: In, value: ["25", "100"]}}}]}]}`},
	{"worker", `{rules: [{name: annotation, annotations: {KEY-text: "{node} {@twin.attr.serial} WORD"}, matchFeatures: [{feature: twin.attr, matchExpressions: {level: {op: Gt, value: ["LEVEL"]}}}]}]}`},
	{"worker", `{rules: [{name: taint, taints: [{key: KEY-taint, value: "WORD", effect: PreferNoSchedule}, {key: KEY-level, value: "{@twin.attr.model}", effect: NoSchedule}], matchFeatures: [{feature: twin.flag, matchExpressions: {FLAG: {op: Exists}}}]}]}`},
	{"worker", `{rules: [{name: resource, extendedResources: {KEY-level: "@twin.attr.level"}, matchFeatures: [{feature: twin.attr, matchExpressions: {level: {op: Exists}}}]}]}`},
	{"vendor", `{rules: [{name: condition, nodeConditions: [{type: KEY-Ready, status: "True", reason: Twin, message: "{@vendor.attr.x} WORD"}], matchFeatures: [{feature: vendor.attr, matchExpressions: {x: {op: Exists}}}]}]}`},
	{"worker", `{rules: [{name: variable, vars: {RULE_var: "{@twin.attr.model}"}, matchFeatures: [{feature: twin.attr, matchExpressions: {model: {op: Exists}}}]}, {name: reader, labels: {KEY-var: "@rule.matched.RULE_var"}, matchFeatures: [{feature: rule.matched, matchExpressions: {RULE_var: {op: Exists}}}]}]}`},
	{"worker", `{rules: [{name: any, labels: {KEY-any: "WORD"}, matchAny: [{matchFeatures: [{feature: twin.flag, matchExpressions: {FLAG: {op: Exists}}}]}, {matchFeatures: [{feature: vendor.attr, matchExpressions: {level: {op: Lt, value: ["LEVEL"]}}}]}]}]}`},
	{"worker", `{rules: [{name: conditions, conditions: [{op: gt, args: {values: ["{@twin.attr.level}", LEVEL]}}], labels: {KEY-over: "{@twin.attr.level}"}}]}`},
	{"vendor", `{rules: [{name: actions, conditions: [{op: is-empty, invert: true, args: {value: "{@vendor.attr.x}"}}], actions: [{op: set-attribute, args: {path: "/labels/KEY-set", value: "{@vendor.attr.x}"}}, {op: extend-attribute, args: {path: "/annotations/twin.example.com/list", value: "WORD-{@vendor.attr.level}"}}]}]}`},
	{"worker", `{rules: [{name: loop, loop: "{@twin.card}", conditions: [{op: is-empty, invert: true, args: {value: "{item.vendor}"}}], labels: {"KEY-card-{item.slot}": "{item.vendor}"}}]}`},
	{"worker", `{phase: early, rules: [{name: derive, conditions: [{op: gt, args: {values: ["{item.speed}", 20]}, loop: "{@twin.card}"}], actions: [{op: set-feature, args: {feature: derived.fast, element: RULE, value: "WORD"}}]}]}`},
	{"worker", `{rules: [{name: derived, labelsTemplate: "{{range .derived.fast}}KEY-{{.Name}}={{.Value}}\n{{end}}", matchFeatures: [{feature: derived.fast, matchName: {op: Exists}}]}]}`},
	{"node", `{nodeSelector: {matchLabels: {pool: WORD}}, rules: [{name: selected, labels: {KEY-pool: "{node}"}}]}`},
	{"node", `{rules: [{name: version, labels: {KEY-version: "@kubernetes.node.kubelet_version"}, matchFeatures: [{feature: kubernetes.node, matchExpressions: {kubelet_version: {op: Exists}}}]}]}`},
	{"vendor", `{featureSources: "^vendor-a/", rules: [{name: sources, labels: {KEY-source: "@vendor.attr.level"}, matchFeatures: [{feature: vendor.attr, matchExpressions: {level: {op: Exists}}}]}]}`},
	{"worker", `{featureSources: "^assay-system/", rules: [{name: sources, labels: {KEY-own: "@twin.attr.level"}, matchFeatures: [{feature: twin.attr, matchExpressions: {level: {op: Exists}}}]}]}`},
	{"worker", `{priority: LEVEL, rules: [{name: shared, labels: {twin.example.com/shared: "WORD", twin.example.com/shared-model: "@twin.attr.model"}, matchFeatures: [{feature: twin.flag, matchExpressions: {FLAG: {op: Exists}}}]}]}`},
	{"worker", `{rules: [{name: names, labelsTemplate: "{{range .twin.flag}}KEY-{{.Name}}=WORD\n{{end}}", matchFeatures: [{feature: twin.flag, matchName: {op: InRegexp, value: ["^F[0-LEVEL]$"]}}]}]}`},
	{"worker", `{rules: [{name: secrets, labels: {KEY-secret: "@twin.attr.db-password", KEY-level: "@twin.attr.level"}, annotations: {KEY-text: "{@twin.attr.db-password}"}, matchFeatures: [{feature: twin.attr, matchExpressions: {level: {op: Exists}}}]}]}`},
	{"worker", `{rules: [{name: secrets, labelsTemplate: "{{range .twin.attr}}KEY-{{.Name}}={{.Value}}\n{{end}}", matchFeatures: [{feature: twin.attr, matchName: {op: Exists}}]}]}`},
	{"vendor", `{rules: [{name: secrets, labelsTemplate: "{{range .vendor.card}}KEY-{{.slot}}={{index . \"api-token\"}}\n{{end}}", annotations: {KEY-x: "{@vendor.attr.vendor-password}"}, matchFeatures: [{feature: vendor.card, matchExpressions: {slot: {op: Exists}}}]}]}`},
	{"worker", `{rules: [{name: big, labels: {KEY-big: "@twin.big.variant"}, matchFeatures: [{feature: twin.big, matchExpressions: {CONFIG_OPTION_07: {op: Exists}}}]}]}`},
	{"worker", `{rules: [{name: ports, labelsTemplate: "{{range .twin.port}}KEY-{{.name}}={{.driver}}\n{{end}}", matchFeatures: [{feature: twin.port, matchExpressions: {name: {op: In, value: [port-LEVEL, port-1LEVEL]}}}]}]}`},
	{"vendor", `{rules: [{name: encoded, labelsTemplate: "{{range .vendor.port}}KEY-{{.peer}}={{.name}}\n{{end}}", matchFeatures: [{feature: vendor.port, matchExpressions: {name: {op: Exists}}}]}]}`},
	{"worker", `{rules: [{name: one, labels: {KEY-one: "@twin.attr.serial"}, matchFeatures: [{feature: twin.attr, matchExpressions: {serial: {op: In, value: ["NODE"]}}}]}]}`},
	{"other rules", `{rules: [{name: back, labels: {KEY-back: "@rule.matched.twin.example.com/shared"}, matchFeatures: [{feature: rule.matched, matchExpressions: {"twin.example.com/shared": {op: Exists}}}]}]}`},
}

// rule returns a rule of a form with random values.
func (d *drawer) rule(name string, f ruleForm, serials []string) (*nfdv1alpha1.NodeFeatureRule, error) {
	rule := &nfdv1alpha1.NodeFeatureRule{}
	rule.Name = name
	node := "none"
	if len(serials) > 0 {
		node = serials[d.IntN(len(serials))]
	}
	text := replace(f.spec, map[string]string{
		"KEY": domain + name, "RULE": name, "LEVEL": fmt.Sprint(1 + d.IntN(8)), "FLAG": fmt.Sprintf("F%d", d.IntN(8)), "WORD": d.one("red", "green", "blue"), "NODE": node,
	})
	if err := yaml.UnmarshalStrict([]byte(text), &rule.Spec); err != nil {
		return nil, fmt.Errorf("rule %s: %w\n%s", f.family, err, text)
	}
	return rule, nil
}

func replace(text string, words map[string]string) string {
	var pairs []string
	for word, by := range words {
		pairs = append(pairs, word, by)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

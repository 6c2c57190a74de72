package rules_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

// waysToWrite are all the ways in which a rule can write a key: %[1]s is the key, %[2]s the key as part of a JSON pointer.
var waysToWrite = []string{
	`labels: {%[1]s: x}`,
	`annotations: {%[1]s: x}`,
	`extendedResources: {%[1]s: "1"}`,
	`taints: [{key: %[1]s, effect: NoSchedule}]`,
	`labelsTemplate: "{{range .a.b}}{{.Value}}=x\n{{end}}", matchFeatures: [{feature: a.b, matchName: {op: In, value: [key]}}]`,
	`labels: {"{@a.b.key}": x}`,
	`annotations: {"{@a.b.key}": x}`,
	`extendedResources: {"{@a.b.key}": "1"}`,
	`taints: [{key: "{@a.b.key}", effect: NoSchedule}]`,
	`actions: [{op: set-attribute, args: {path: "/labels/%[2]s", value: x}}]`,
	`actions: [{op: set-attribute, args: {path: "/annotations/%[2]s", value: x}}]`,
	`actions: [{op: extend-attribute, args: {path: "/annotations/%[2]s", value: x}}]`,
	`actions: [{op: set-attribute, args: {path: "/extendedResources/%[2]s", value: "1"}}]`,
	`actions: [{op: set-attribute, args: {path: "/labels/{@a.b.pointer}", value: x}}]`,
	`actions: [{op: extend-attribute, args: {path: "/annotations/{@a.b.pointer}", value: x}}]`,
	`actions: [{op: set-attribute, args: {path: /taints, value: [{key: %[1]s, effect: NoSchedule}]}}]`,
	`actions: [{op: extend-attribute, args: {path: /taints, value: {key: "{@a.b.key}", effect: NoExecute}}}]`,
	`loop: "{@c.d}", labels: {"{item.key}": x}`,
}

// written evaluates one way to write a key and returns the keys that are written. A rejected rule writes none.
func written(t *testing.T, way, key string) []string {
	t.Helper()
	pointer := strings.ReplaceAll(key, "/", "~1")
	text := "{rules: [{name: r, " + way + "}]}"
	if strings.Contains(way, "%[") {
		text = fmt.Sprintf(text, key, pointer)
	}
	var spec nfdv1alpha1.NodeFeatureRuleSpec
	if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
		t.Fatal(text, err)
	}
	set, _ := rules.CompileSpec("r", &spec, rules.Options{})
	o := rules.Link(rules.Options{}, set).Eval(rules.Input{Node: rules.Node{Name: "n"}, Facts: facts.FromMap(map[string]facts.Feature{
		"a.b": {Attributes: facts.NewAttributes(map[string]string{"key": key, "pointer": pointer})},
		"c.d": {Instances: facts.NewInstances([]map[string]string{{"key": key}})},
	}, nil)})
	var out []string
	for _, m := range []map[string]string{o.Labels(), o.Annotations(), o.ExtendedResources()} {
		out = append(out, keysOf(m)...)
	}
	for _, taint := range o.Taints() {
		out = append(out, taint.Key)
	}
	return out
}

// TestReservedKeysCannotBeSetInAnyWay tries to write each reserved key in every way, and to request it as a label of a NodeFeature.
func TestReservedKeysCannotBeSetInAnyWay(t *testing.T) {
	data, err := os.ReadFile("keys/testdata/reserved.txt")
	if err != nil {
		t.Fatal(err)
	}
	reserved := strings.Fields(string(data))
	if len(reserved) < 40 {
		t.Fatalf("only %d keys", len(reserved))
	}
	for _, way := range waysToWrite {
		if got := written(t, way, "example.com/free"); len(got) != 1 || got[0] != "example.com/free" {
			t.Errorf("got %v of a key that may be written, want it alone: %s", got, way)
		}
		for _, key := range reserved {
			if got := written(t, way, key); len(got) > 0 {
				t.Errorf("%v was written by %s", got, way)
			}
		}
	}
	asked := map[string]string{"feature.node.kubernetes.io/fine": "1"}
	for _, key := range reserved {
		asked[key] = "x"
	}
	o := rules.Link(rules.Options{}).Eval(rules.Input{Node: rules.Node{Name: "n"}, Labels: asked})
	if got := o.Labels(); len(got) != 1 || got["feature.node.kubernetes.io/fine"] != "1" {
		t.Errorf("NodeFeatures that ask get %v", got)
	}
}

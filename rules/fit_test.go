package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/assay-project/assay/rules"
)

// TestAnObjectKeepsWhatComesFirst checks that an object whose labels exceed the limit keeps the first ones, and does not keep later
// ones because they are small.
func TestAnObjectKeepsWhatComesFirst(t *testing.T) {
	var list strings.Builder
	for i := range 256 { // the maximum number of rules in an object
		fmt.Fprintf(&list, "  - {name: r%d, labels: {%s%04d: \"%s\"}}\n", i, strings.Repeat("k", 40), i, strings.Repeat("v", 60))
	}
	var sets []*rules.RuleSet
	for object := range 4 {
		text := strings.ReplaceAll(list.String(), "kkkk", fmt.Sprintf("ob%dk", object))
		sets = append(sets, compile(t, fmt.Sprintf("metadata: {name: o%d}\nspec:\n  rules:\n%s", object, text), rules.Options{}))
	}
	last := compile(t, "metadata: {name: o3}\nspec: {rules: [{name: small, labels: {z: \"1\"}}]}", rules.Options{})
	labels := rules.Link(rules.Options{}, append(sets, last)...).Eval(rules.Input{Facts: someDevices()}).Labels()
	size := 0
	for key, value := range labels {
		size += 2*len(key) + len(value) - len("feature.node.kubernetes.io/") + len(",")
	}
	if size > rules.MaxLabels || size < rules.MaxLabels/2 {
		t.Errorf("%d labels of %d bytes are written, want nearly %d", len(labels), size, rules.MaxLabels)
	}
	for object := range 4 {
		key := func(i int) string {
			return fmt.Sprintf("feature.node.kubernetes.io/%s%04d", strings.ReplaceAll(strings.Repeat("k", 40), "kkkk", fmt.Sprintf("ob%dk", object)), i)
		}
		for i := 1; i < 256; i++ {
			_, before := labels[key(i-1)]
			if _, here := labels[key(i)]; here && !before {
				t.Errorf("object %d keeps label %d and not the one before it", object, i)
			}
		}
		if _, first := labels[key(0)]; !first {
			t.Errorf("object %d keeps none of its labels", object)
		}
	}
}

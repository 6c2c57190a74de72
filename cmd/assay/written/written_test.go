package written_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/assay-project/assay/cmd/assay/written"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
)

// TestDiffersKnowsEachKind: assay explain once showed an extended resource and a taint as written although the Node had another value.
func TestDiffersKnowsEachKind(t *testing.T) {
	node := &corev1.Node{}
	node.Labels, node.Annotations = map[string]string{"a/l": "1"}, map[string]string{"a/n": "1"}
	node.Spec.Taints = []corev1.Taint{{Key: "a/t", Value: "1", Effect: corev1.TaintEffectNoSchedule}}
	node.Status.Capacity = corev1.ResourceList{"a/r": resource.MustParse("2k")}
	node.Status.Conditions = []corev1.NodeCondition{{Type: "a/C", Status: corev1.ConditionTrue}}
	for kind, c := range map[keys.Kind]struct{ key, has, other, shown string }{
		keys.Label:      {"a/l", "1", "2", "1"},
		keys.Annotation: {"a/n", "1", "2", "1"},
		keys.Taint:      {"a/t:NoSchedule", "1", "2", "1"},
		keys.Resource:   {"a/r", "2000", "3000", "2k"},
		keys.Condition:  {"a/C", "True", "False", "True"},
	} {
		differs := func(key, value string) string { return written.Differs(node, rules.Withholding{}, kind, key, value) }
		if why := differs(c.key, c.has); why != "" {
			t.Errorf("%s: %s", kind, why)
		}
		if why := differs(c.key, c.other); why != "the Node has "+c.shown+" instead" {
			t.Errorf("%s with another value: %q", kind, why)
		}
		if why := differs("a/missing:NoSchedule", c.has); why != "the Node does not have it" {
			t.Errorf("%s that is missing: %q", kind, why)
		}
	}
}

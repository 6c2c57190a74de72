package desired_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// TestAComparisonKnowsEachKind: assay explain once showed an extended resource and a taint as written although the Node had another value, and
// a resource of which the allocatable amount was another one.
func TestAComparisonKnowsEachKind(t *testing.T) {
	node := &corev1.Node{}
	node.Labels, node.Annotations = map[string]string{"a/l": "1"}, map[string]string{"a/n": "1"}
	node.Spec.Taints = []corev1.Taint{{Key: "a/t", Value: "1", Effect: corev1.TaintEffectNoSchedule}}
	amounts := corev1.ResourceList{"a/r": resource.MustParse("2k")}
	node.Status.Capacity, node.Status.Allocatable = amounts, amounts
	node.Status.Conditions = []corev1.NodeCondition{{Type: "a/C", Status: corev1.ConditionTrue}}
	outputs := func(key, value string) desired.Outputs {
		one := map[string]string{key: value}
		name, _, _ := strings.Cut(key, ":")
		return desired.Outputs{
			Labels: one, Annotations: one, ExtendedResources: one, Conditions: one,
			Taints: []corev1.Taint{{Key: name, Value: value, Effect: corev1.TaintEffectNoSchedule}},
		}
	}
	for kind, c := range map[keys.Kind]struct{ key, has, other, shown string }{
		keys.Label:      {"a/l", "1", "2", "1"},
		keys.Annotation: {"a/n", "1", "2", "1"},
		keys.Taint:      {"a/t:NoSchedule", "1", "2", "1"},
		keys.Resource:   {"a/r", "2000", "3000", "2k"},
		keys.Condition:  {"a/C", "True", "False", "True"},
	} {
		for _, foreign := range []bool{false, true} {
			settings := desired.Settings{Policy: plan.Policy{Taints: true, KeepForeign: foreign}}
			check := func(node *corev1.Node, key, value string, want desired.State, shown string) {
				t.Helper()
				compared := settings.Compare(node, outputs(key, value))
				if got, has, _ := compared.Given(kind, key); got != want || has != shown {
					t.Errorf("%s %s=%s: %s, has %q; want %s, %q", kind, key, value, got, has, want, shown)
				}
				if left := compared.Leaves(kind, key); left != (foreign && want == desired.Different) {
					t.Errorf("%s %s=%s: left to another client: %t", kind, key, value, left)
				}
			}
			check(node, c.key, c.has, desired.Written, "")
			check(node, c.key, c.other, desired.Different, c.shown)
			check(node, "a/missing:NoSchedule", c.has, desired.Missing, "")
			check(nil, c.key, c.has, desired.Unknown, "")
		}
	}
	node.Status.Allocatable = corev1.ResourceList{"a/r": resource.MustParse("1k")}
	compared := (&desired.Settings{}).Compare(node, outputs("a/r", "2k"))
	if got, has, _ := compared.Given(keys.Resource, "a/r"); got != desired.Different || has != "1k of 2k" {
		t.Errorf("with another allocatable amount: %s, has %q", got, has)
	}
}

// TestKeysWithoutARuleAreNoDifferences: the controller writes the taint of lost features and the labels of requests itself.
func TestKeysWithoutARuleAreNoDifferences(t *testing.T) {
	request := assayv1alpha1.RequestLabelNamespace + "/ml.amx"
	loss := corev1.Taint{Key: "a/lost", Effect: corev1.TaintEffectNoExecute}
	fail := corev1.Taint{Key: "a/failed", Value: "true", Effect: corev1.TaintEffectNoSchedule}
	node := &corev1.Node{}
	node.Labels = map[string]string{request: "true", "a/kept": "1"}
	node.Annotations = map[string]string{
		nfdv1alpha1.FeatureLabelsAnnotation: "a/kept," + request, nfdv1alpha1.TaintsAnnotation: "a/failed=true:NoSchedule,a/lost=ml.amx:NoExecute",
	}
	node.Spec.Taints = []corev1.Taint{fail, {Key: "a/lost", Value: "ml.amx", Effect: corev1.TaintEffectNoExecute}}
	settings := desired.Settings{Policy: plan.Policy{Taints: true}, FailTaint: &fail, LossTaint: &loss}
	compared := settings.Compare(node, desired.Outputs{})
	if got := compared.Differences(); len(got) != 1 || got[0].Key != "a/kept" {
		t.Errorf("differences: %v", got)
	}
	for key, want := range map[string]desired.State{request: desired.Own, "a/kept": desired.Kept, "a/other": desired.Foreign} {
		if got, _ := compared.Found(keys.Label, key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}

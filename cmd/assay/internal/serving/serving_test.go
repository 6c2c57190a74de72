package serving_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/serving"
	"github.com/assay-project/assay/rules/requirements"
)

const (
	required  = "required: {matchFeatures: [{feature: cpu.cpuid}]}"
	preferred = "preferred: [{weight: 1, matchFeatures: [{feature: cpu.cpuid}]}]"
)

// TestWays: what serves each part of the requirements of a pod, in the words that assay why and assay doctor print.
func TestWays(t *testing.T) {
	policy := serving.Installed{Policy: "assay-feature-request"}
	webhook := serving.Installed{Webhook: "assay-feature-requests"}
	second := serving.Installed{Scheduler: "assay"}
	rules := serving.Installed{RuleLabels: map[string]bool{"feature.node.kubernetes.io/amx": true}}
	const amx = "features.assay.dev/ml.amx"
	const unattached = "the default scheduler does not check it unless the extender is attached to it"
	for name, test := range map[string]struct {
		in                         serving.Installed
		name, selector, annotation string
		scheduler                  string
		request                    string // spec; empty: there is none
		reason                     string // of Materialized=False
		want                       []string
	}{
		"no requirements":       {policy, "", "", "", "", "", "", nil},
		"by the policy":         {policy, "amx", amx, "", "", required, "", []string{"NodeFeatureRequest ml/amx: served by node selector features.assay.dev/ml.amx by the MutatingAdmissionPolicy assay-feature-request"}},
		"by the webhook":        {webhook, "amx", amx, "", "", required, "", []string{"NodeFeatureRequest ml/amx: served by node selector features.assay.dev/ml.amx by the webhook assay-feature-requests"}},
		"by its own template":   {serving.Installed{}, "", amx, "", "", required, "", []string{"NodeFeatureRequest ml/amx: served by node selector features.assay.dev/ml.amx of the pod"}},
		"both":                  {serving.Installed{}, "amx", amx, "", "", required, "", []string{"NodeFeatureRequest ml/amx: served by node selector features.assay.dev/ml.amx of the pod"}},
		"no room":               {policy, "amx", amx, "", "", required, "TooManyRequests", []string{"NodeFeatureRequest ml/amx: served by node selector features.assay.dev/ml.amx by the MutatingAdmissionPolicy assay-feature-request; no node gets the label: TooManyRequests: because"}},
		"no request":            {policy, "amx", amx, "", "", "", "", []string{"NodeFeatureRequest ml/amx: served by node selector features.assay.dev/ml.amx by the MutatingAdmissionPolicy assay-feature-request; no node has the label: the request does not exist"}},
		"never, own selector":   {policy, "", amx, "", "", required + "\nmaterialize: Never", "", []string{"NodeFeatureRequest ml/amx: served by node selector features.assay.dev/ml.amx of the pod; no node gets the label: materialize is Never"}},
		"before admission":      {serving.Installed{}, "amx", "", "", "", required, "", []string{"NodeFeatureRequest ml/amx: not served: the pod has no node selector features.assay.dev/ml.amx, and " + unattached}},
		"never":                 {policy, "amx", "", "", "", required + "\nmaterialize: Never", "", []string{"NodeFeatureRequest ml/amx: not served: nodes get no label (materialize is Never), and " + unattached}},
		"never, extender":       {second, "amx", "", "", "assay", required + "\nmaterialize: Never", "", []string{"NodeFeatureRequest ml/amx: served by the extender of the scheduler assay"}},
		"preferences":           {policy, "amx", amx, "", "", required + "\n" + preferred, "", []string{"NodeFeatureRequest ml/amx: served by node selector features.assay.dev/ml.amx by the MutatingAdmissionPolicy assay-feature-request", "preferred of NodeFeatureRequest ml/amx: not served: " + unattached}},
		"annotation":            {policy, "", "", "assay.dev/required-features", "", "", "", []string{"annotation assay.dev/required-features: not served: " + unattached}},
		"annotation, extender":  {second, "", "", "assay.dev/required-features", "assay", "", "", []string{"annotation assay.dev/required-features: served by the extender of the scheduler assay"}},
		"annotation, rule":      {rules, "", "feature.node.kubernetes.io/amx", "assay.dev/required-features", "", "", "", []string{"annotation assay.dev/required-features: served by node selector feature.node.kubernetes.io/amx, which a rule writes"}},
		"preference, rule":      {rules, "", "feature.node.kubernetes.io/amx", "assay.dev/preferred-features", "", "", "", []string{"annotation assay.dev/preferred-features: not served: " + unattached}},
		"scheduler is not here": {policy, "", "", "assay.dev/required-features", "assay", "", "", []string{"annotation assay.dev/required-features: not served: the scheduler assay does not check it unless it runs and the extender is attached to it"}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Labels: map[string]string{}, Annotations: map[string]string{}}}
			pod.Spec.SchedulerName = test.scheduler
			if test.name != "" {
				pod.Labels[assayv1alpha1.FeatureRequestLabel] = test.name
			}
			if test.selector != "" {
				pod.Spec.NodeSelector = map[string]string{test.selector: "true", "disk": "ssd"}
			}
			if test.annotation != "" {
				pod.Annotations[test.annotation] = "x"
			}
			var request *assayv1alpha1.NodeFeatureRequest
			if test.request != "" {
				request = &assayv1alpha1.NodeFeatureRequest{}
				if err := yaml.UnmarshalStrict([]byte(test.request), &request.Spec); err != nil {
					t.Fatal(err)
				}
				c := metav1.Condition{Type: assayv1alpha1.ConditionMaterialized, Status: metav1.ConditionTrue, Reason: "Labeled"}
				if test.reason != "" {
					c.Status, c.Reason, c.Message = metav1.ConditionFalse, test.reason, "because"
				}
				request.Status.Conditions = []metav1.Condition{c}
			}
			var got []string
			for _, w := range test.in.Of(pod, func(name string) *assayv1alpha1.NodeFeatureRequest {
				if name != "amx" {
					t.Errorf("it looks up %q", name)
				}
				return request
			}) {
				got = append(got, w.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("got (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAnInvalidNameIsExplained: the selector of a name that cannot be a label is one that no node has.
func TestAnInvalidNameIsExplained(t *testing.T) {
	name := strings.Repeat("x", 61)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Labels: map[string]string{assayv1alpha1.FeatureRequestLabel: name}}}
	pod.Spec.NodeSelector = map[string]string{"features.assay.dev/invalid-feature-request": "true"}
	in := serving.Installed{}
	ways := in.Of(pod, func(string) *assayv1alpha1.NodeFeatureRequest { return nil })
	if len(ways) != 1 || !strings.Contains(ways[0].Problem, "has 64 characters") {
		t.Errorf("got %v", ways)
	}
}

// TestAPolicyIsServedByTheExtenderAlone: a pod that a NodeFeatureSchedulingPolicy selects says nothing about features itself.
func TestAPolicyIsServedByTheExtenderAlone(t *testing.T) {
	policies := func(namespace string, _ map[string]string) []*requirements.Policy {
		if namespace != "ml" {
			return nil
		}
		return []*requirements.Policy{{Name: "gpu-pods"}}
	}
	for scheduler, want := range map[string]string{
		"assay": "NodeFeatureSchedulingPolicy gpu-pods: served by the extender of the scheduler assay",
		"":      "NodeFeatureSchedulingPolicy gpu-pods: not served: the default scheduler does not check it unless the extender is attached to it",
	} {
		in := serving.Installed{Scheduler: "assay", Policies: policies}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml"}, Spec: corev1.PodSpec{SchedulerName: scheduler}}
		ways := in.Of(pod, nil)
		if len(ways) != 1 || ways[0].String() != want {
			t.Errorf("the scheduler %q: got %v, want %s", scheduler, ways, want)
		}
		pod.Namespace = "web"
		if ways := in.Of(pod, nil); len(ways) > 0 {
			t.Errorf("a pod that no policy selects: got %v", ways)
		}
	}
}

package doctor

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// TestCountsRulesStoredWithoutAReview: one line counts the rules that the webhook would have rejected, without those whose bases have the
// errors, and only where a webhook is installed.
func TestCountsRulesStoredWithoutAReview(t *testing.T) {
	rule := func(name, label string, accepted metav1.ConditionStatus, bases ...nfdv1alpha1.Base) nfdv1alpha1.NodeFeatureRule {
		r := nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}}
		r.Spec.BasedOn, r.Spec.Rules = bases, []nfdv1alpha1.Rule{{Name: "r", Labels: map[string]string{"a": label}}}
		r.Status.ObservedGeneration = 1
		r.Status.Conditions = []metav1.Condition{{Type: nfdv1alpha1.ConditionAccepted, Status: accepted}}
		return r
	}
	list := nfdv1alpha1.NodeFeatureRuleList{Items: []nfdv1alpha1.NodeFeatureRule{
		rule("good", "1", metav1.ConditionTrue), rule("first", "{nope}", metav1.ConditionFalse), rule("second", "{nope}", metav1.ConditionFalse),
		rule("inherits", "1", metav1.ConditionFalse, nfdv1alpha1.Base{Name: "broken"}),
	}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(list) }))
	t.Cleanup(s.Close)
	const want = "2 NodeFeatureRules with errors that the webhook rejects: stored without its review, or before it was installed or updated"
	hook := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{component: "webhook"}}}
	for name, deployments := range map[string][]appsv1.Deployment{"Webhook": {hook}, "NoWebhook": nil} {
		t.Run(name, func(t *testing.T) {
			e := &examination{c: clientOf(t, s.URL), deployments: deployments}
			if err := e.rules(t.Context()); err != nil {
				t.Fatal(err)
			}
			lines := slices.DeleteFunc(slices.Clone(e.found), func(f Finding) bool { return !strings.Contains(f.Message, "the webhook") })
			if deployments == nil && len(lines) > 0 || deployments != nil && (len(lines) != 1 || lines[0].Message != want || lines[0].Level != Warning) {
				t.Errorf("got %v of %v, want %q", lines, e.found, want)
			}
		})
	}
}

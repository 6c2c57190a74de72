package chart

import (
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// TestAGivenCertificateLosesNoReview renders the webhook configurations of a certificate from another controller, which the webhook
// does not install itself. They must have the early review in mutating admission, and a condition that holds for an object without a
// spec: if a condition fails, the API server skips the review.
func TestAGivenCertificateLosesNoReview(t *testing.T) {
	const unlessUnchanged = "request.operation != 'UPDATE' || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec"
	for name, values := range map[string]string{
		"CertManager": `{webhook: {failurePolicy: Fail, certManager: {enabled: true}}}`,
		"Secret":      `{webhook: {failurePolicy: Fail, certificateSecret: mine, caBundle: Q0E=}}`,
	} {
		t.Run(name, func(t *testing.T) {
			policies := map[string]admissionregistrationv1.FailurePolicyType{}
			check := func(hook string, policy *admissionregistrationv1.FailurePolicyType, client admissionregistrationv1.WebhookClientConfig, conditions []admissionregistrationv1.MatchCondition) {
				policies[hook] = *policy
				if got := string(client.CABundle); (got == "CA") != (name == "Secret") {
					t.Errorf("%s: CA bundle %q", hook, got)
				}
				if hook != "features.assay.dev" && !slices.ContainsFunc(conditions, func(c admissionregistrationv1.MatchCondition) bool { return c.Expression == unlessUnchanged }) {
					t.Errorf("%s: match conditions %v", hook, conditions)
				}
			}
			for _, object := range objects(t, mustRender(t, set(t, values))) {
				switch object["kind"] {
				case "MutatingWebhookConfiguration":
					var config admissionregistrationv1.MutatingWebhookConfiguration
					convert(t, object, &config)
					for _, h := range config.Webhooks {
						check(h.Name, h.FailurePolicy, h.ClientConfig, h.MatchConditions)
					}
				case "ValidatingWebhookConfiguration":
					var config admissionregistrationv1.ValidatingWebhookConfiguration
					convert(t, object, &config)
					for _, h := range config.Webhooks {
						check(h.Name, h.FailurePolicy, h.ClientConfig, h.MatchConditions)
					}
				}
			}
			for hook, want := range map[string]admissionregistrationv1.FailurePolicyType{
				"rules.assay.dev": "Fail", "features.assay.dev": "Ignore", "early.rules.assay.dev": "Ignore", "early.features.assay.dev": "Ignore",
			} {
				if policies[hook] != want {
					t.Errorf("failure policy of %s: %q, want %q", hook, policies[hook], want)
				}
			}
		})
	}
}

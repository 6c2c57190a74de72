package chart

import (
	"slices"
	"strings"
	"testing"
)

// TestRequestsAreServedByWhatTheClusterHas checks what adds labels of requests to node selectors, by the version of the cluster and the
// values: the policies, the webhook, or nothing.
func TestRequestsAreServedByWhatTheClusterHas(t *testing.T) {
	for name, test := range map[string]struct {
		version, values string
		want            string
	}{
		"New":               {"v1.36.0", `{}`, "policy"},
		"NewPreRelease":     {"v1.36.0-eks-1", `{}`, "policy"},
		"Old":               {"v1.35.9", `{}`, "webhook"},
		"OldWithoutWebhook": {"v1.35.9", `{webhook: {enabled: false}}`, "off"},
		"ChosenWebhook":     {"v1.36.0", `{scheduling: {requests: webhook}}`, "webhook"},
		"ChosenOff":         {"v1.36.0", `{scheduling: {requests: "off"}}`, "off"},
		"NoLabels":          {"v1.36.0", `{controller: {config: {materializedRequests: {total: 0}}}}`, "off"},
		"Instance":          {"v1.36.0", `{controller: {instance: second}}`, "off"},
		"NotServed":         {"v1.35.9", `{scheduling: {requests: policy}}`, "error: scheduling.requests: policy needs Kubernetes 1.36"},
		"NoWebhook":         {"v1.35.9", `{scheduling: {requests: webhook}, webhook: {enabled: false}}`, "error: scheduling.requests: webhook needs webhook.enabled"},
		"Unknown":           {"v1.36.0", `{scheduling: {requests: plugin}}`, "error: values don't meet the specifications"},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := render(t, load(t), rendering{release: "assay", namespace: "assay-system", kubernetes: test.version, values: set(t, test.values)})
			if message, wanted := strings.CutPrefix(test.want, "error: "); wanted || err != nil {
				if err == nil || !wanted || !strings.Contains(err.Error(), message) {
					t.Errorf("got %v, want %s", err, test.want)
				}
				return
			}
			var got []string
			for _, object := range objects(t, files) {
				switch identity(object) {
				case "MutatingAdmissionPolicy//assay-feature-request":
					got = append(got, "policy")
				case "MutatingWebhookConfiguration//assay-feature-requests":
					got = append(got, "webhook")
				case "Deployment/assay-system/assay-webhook":
					arguments, _ := at(object, "spec.template.spec.containers.0.args").([]any)
					if flag := slices.Contains(arguments, any("--request-selectors")); flag != (test.want == "webhook") {
						t.Errorf("the webhook has the flag: %t", flag)
					}
				}
			}
			if len(got) == 0 {
				got = []string{"off"}
			}
			if !slices.Equal(got, []string{test.want}) {
				t.Errorf("got %v, want %s", got, test.want)
			}
			if notes := files["assay/templates/NOTES.txt"]; strings.Contains(notes, "scheduling.requests: off") != (test.want == "off") {
				t.Errorf("the notes are\n%s", notes)
			}
		})
	}
}

// TestPoliciesOfRequestsApplyInTheirNamespaces checks that the value reaches each binding, beside what the binding selects itself.
func TestPoliciesOfRequestsApplyInTheirNamespaces(t *testing.T) {
	bindings := 0
	for _, object := range objects(t, mustRender(t, set(t, `{scheduling: {namespaceSelector: {matchLabels: {team: ml}}}}`))) {
		if object["kind"] != "MutatingAdmissionPolicyBinding" {
			continue
		}
		bindings++
		if got := at(object, "spec.matchResources.namespaceSelector.matchLabels.team"); got != "ml" {
			t.Errorf("%s applies in namespaces of team %v", identity(object), got)
		}
		if pods := at(object, "spec.matchResources.objectSelector") != nil; pods != strings.HasSuffix(identity(object), "-pods") {
			t.Errorf("%s selects objects: %t", identity(object), pods)
		}
	}
	if bindings != 3 {
		t.Errorf("there are %d bindings", bindings)
	}
}

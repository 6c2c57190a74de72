package policies_test

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/api/policies"
)

func TestEveryPolicyIsBound(t *testing.T) {
	for name, data := range policies.All(policies.Names{}) {
		docs := strings.Split(string(data), "\n---\n")
		if len(docs) != 2 {
			t.Errorf("%s: %d documents, want a policy and its binding", name, len(docs))
			continue
		}
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		if err := yaml.UnmarshalStrict([]byte(docs[0]), &policy); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
		if err := yaml.UnmarshalStrict([]byte(docs[1]), &binding); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if binding.Spec.PolicyName != policy.Name {
			t.Errorf("%s: the binding is of %q, the policy is %q", name, binding.Spec.PolicyName, policy.Name)
		}
	}
}

func TestNamesOfTheInstallationReplaceTheDefaults(t *testing.T) {
	for name, data := range policies.All(policies.Names{Namespace: "nfd", Worker: "w", Manager: "m"}) {
		for _, want := range []string{"'system:serviceaccount:nfd:w'", "'system:serviceaccount:nfd:m'", "== 'nfd'"} {
			if !strings.Contains(string(data), want) {
				t.Errorf("%s: %q does not occur", name, want)
			}
		}
		if strings.Contains(string(data), policies.DefaultNamespace) {
			t.Errorf("%s: %q is left", name, policies.DefaultNamespace)
		}
	}
}

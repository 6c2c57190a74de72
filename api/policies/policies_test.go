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
	all := policies.All(policies.Names{Namespace: "nfd", Worker: "w", Manager: "m"})
	for name, want := range map[string][]string{
		"node-bound-publishing.yaml": {"'system:serviceaccount:nfd:w'", "'system:serviceaccount:nfd:m'", "== 'nfd'"},
		"node-bound-sets.yaml":       {"'system:serviceaccount:nfd:w'", "'system:serviceaccount:nfd:m'", "== 'nfd'"},
		"recorded-writes.yaml":       {"'system:serviceaccount:nfd:m'"},
	} {
		for _, w := range want {
			if !strings.Contains(string(all[name]), w) {
				t.Errorf("%s: %q does not occur", name, w)
			}
		}
		if strings.Contains(string(all[name]), policies.DefaultNamespace) {
			t.Errorf("%s: %q is left", name, policies.DefaultNamespace)
		}
		delete(all, name)
	}
	if len(all) > 0 {
		t.Errorf("policies that nobody looks at: %v", all)
	}
}

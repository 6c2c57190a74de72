package charts_test

import (
	"maps"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/charts"
)

func TestEveryPolicyIsBound(t *testing.T) {
	for name, data := range charts.Policies(charts.PolicySettings{}) {
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

func TestSettingsOfTheInstallationReplaceTheDefaults(t *testing.T) {
	all := charts.Policies(charts.PolicySettings{
		Namespace: "nfd", Worker: "w", Manager: "m", StartupTaint: "a.b/c", OwnTaints: []string{"d.e/f", "g.h/i"}, Namespaces: []string{"vendor.io", ".example.com"},
		Hardened: true, Publishers: []string{"topo/topograph"},
	})
	bound := map[string]string{
		"worker": "request.userInfo.username == 'system:serviceaccount:nfd:w'", "manager": "request.userInfo.username == 'system:serviceaccount:nfd:m'",
		"hardened": "true", "publishers": "['system:serviceaccount:topo:topograph']",
	}
	for name, want := range map[string]map[string]string{
		"node-bound-publishing.yaml": bound,
		"node-bound-sets.yaml":       bound,
		"holds.yaml":                 {"manager": bound["manager"]},
		"node-writes.yaml":           {"startupTaint": "'a.b/c'", "ownTaints": "['d.e/f', 'g.h/i']", "namespaces": "['vendor.io', '.example.com']"},
	} {
		document, _, _ := strings.Cut(string(all[name]), "\n---\n")
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		if err := yaml.UnmarshalStrict([]byte(document), &policy); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, v := range policy.Spec.Variables {
			if _, ok := want[v.Name]; ok {
				got[v.Name] = v.Expression
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: the variables are %q, want %q", name, got, want)
		}
		if strings.Contains(string(all[name]), charts.DefaultNamespace) {
			t.Errorf("%s: %q is left", name, charts.DefaultNamespace)
		}
		delete(all, name)
	}
	if len(all) > 0 {
		t.Errorf("policies without expectations: %v", all)
	}
}

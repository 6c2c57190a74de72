package doctor

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/hack/kustomize"
)

// TestTheAccountsOfPoliciesAreFound reads the policies of the chart, which name ServiceAccounts, and those of the kustomize base, which have
// patterns that an overlay keeps.
func TestTheAccountsOfPoliciesAreFound(t *testing.T) {
	chart, base := map[string][]string{}, map[string][]string{}
	for _, file := range charts.Policies(charts.PolicySettings{}) {
		collect(t, chart, string(file))
	}
	objects, err := kustomize.Objects("ValidatingAdmissionPolicy")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		collect(t, base, string(text))
	}
	const worker, manager = "system:serviceaccount:assay-system:assay-worker", "system:serviceaccount:assay-system:assay-manager"
	for _, p := range protects {
		own, moved := worker, "system:serviceaccount:node-features:prod-assay-worker-v2"
		if p.component == "controller" {
			own, moved = manager, "system:serviceaccount:node-features:prod-assay-controller-v2"
		}
		if !matchesAny(chart[p.name], own) || matchesAny(chart[p.name], moved) || matchesAny(chart[p.name], "system:serviceaccount:kube-system:") {
			t.Errorf("the chart's %s names %q", p.name, chart[p.name])
		}
		if !matchesAny(base[p.name], moved) || matchesAny(base[p.name], "system:serviceaccount:node-features:default") {
			t.Errorf("the base's %s has the patterns %q", p.name, base[p.name])
		}
	}
}

func collect(t *testing.T, into map[string][]string, file string) {
	t.Helper()
	for document := range strings.SplitSeq(file, "\n---\n") {
		var p admissionregistrationv1.ValidatingAdmissionPolicy
		if err := yaml.Unmarshal([]byte(document), &p); err != nil {
			t.Fatal(err)
		}
		if p.Kind == "ValidatingAdmissionPolicy" {
			into[p.Name] = accountsOf(&p.Spec)
		}
	}
}

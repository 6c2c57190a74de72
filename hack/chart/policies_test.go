package chart

import (
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPoliciesNameTheAccountsOfTheRelease compares the ServiceAccounts that expressions of policies name with those of the pods.
func TestPoliciesNameTheAccountsOfTheRelease(t *testing.T) {
	account := regexp.MustCompile(`request\.userInfo\.username == '(system:serviceaccount:[^']+)'`)
	for name, r := range map[string]rendering{
		"Default":         {release: "assay", namespace: "assay-system"},
		"OtherRelease":    {release: "x", namespace: "y"},
		"Overridden":      {release: "x", namespace: "y", values: map[string]any{"fullnameOverride": "features", "namespaceOverride": "elsewhere"}},
		"ServiceAccounts": {release: "x", namespace: "y", values: set(t, `{worker: {serviceAccount: {name: a}}, controller: {serviceAccount: {name: b}}, topology: {serviceAccount: {name: c}}}`)},
	} {
		t.Run(name, func(t *testing.T) {
			r.kubernetes = "v1.37.2"
			if r.values == nil {
				r.values = map[string]any{}
			}
			topology, _ := r.values["topology"].(map[string]any)
			if topology == nil {
				topology = map[string]any{}
			}
			topology["enabled"] = true
			r.values["topology"] = topology
			files, err := render(t, load(t), r)
			if err != nil {
				t.Fatal(err)
			}
			named, pods := map[string]bool{}, map[string]bool{}
			for _, object := range objects(t, files) {
				switch object["kind"] {
				case "DaemonSet", "Deployment":
					component := at(object, "spec.template.metadata.labels.app.kubernetes.io/component").(string)
					if slices.Contains([]string{"worker", "controller", "topology"}, component) {
						pods["system:serviceaccount:"+at(object, "metadata.namespace").(string)+":"+at(object, "spec.template.spec.serviceAccountName").(string)] = true
					}
				case "ValidatingAdmissionPolicy":
					for _, list := range []string{"spec.matchConditions", "spec.variables"} {
						entries, _ := at(object, list).([]any)
						for _, entry := range entries {
							for _, m := range account.FindAllStringSubmatch(entry.(map[string]any)["expression"].(string), -1) {
								named[m[1]] = true
							}
						}
					}
				}
			}
			if diff := cmp.Diff(slices.Sorted(maps.Keys(pods)), slices.Sorted(maps.Keys(named))); diff != "" || len(pods) != 3 {
				t.Errorf("accounts (-of pods +in policies):\n%s", diff)
			}
		})
	}
}

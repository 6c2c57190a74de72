package keys

import (
	"regexp"
	"strings"
	"testing"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/charts"
)

// protectedAlways does not check the lists for keys outside of the namespaces of Kubernetes and Assay, or in the default namespace.
// This test fails if the lists contain such a key.
func TestListsOfProtectedKeysAreLookedAt(t *testing.T) {
	looked := func(namespace string) bool {
		return namespace != nfdv1alpha1.FeatureLabelNamespace && (reserved(namespace) || within(namespace, assayv1alpha1.GroupName))
	}
	for _, entry := range protectedNamespaces {
		if !looked(entry.Namespace) || entry.Below && within(nfdv1alpha1.FeatureLabelNamespace, entry.Namespace) {
			t.Errorf("namespace %s is listed, and not protected", entry.Namespace)
		}
	}
	for key := range protectedKeys {
		if namespace, _ := Split(key); !looked(namespace) {
			t.Errorf("key %s is listed, and not protected", key)
		}
	}
}

// TestThePolicyProtectsTheSameKeys checks the ValidatingAdmissionPolicy: a client with the controller's token must not be able to
// write keys that rules cannot write.
func TestThePolicyProtectsTheSameKeys(t *testing.T) {
	_, text, _ := strings.Cut(string(charts.Policies(charts.PolicySettings{})["node-writes.yaml"]), "k.matches('")
	text, _, found := strings.Cut(text, "')")
	if !found {
		t.Fatal("the policy has no list of keys")
	}
	forbidden, err := regexp.Compile(text)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{
		"vendor.io/x": false, "feature.node.kubernetes.io/x": false, "x.feature.node.kubernetes.io/y": false, "kubernetes.io/other": false,
		"example.com/node-role.kubernetes.io": false, "mytopology.kubernetes.io/x": false,
	}
	for _, entry := range protectedNamespaces {
		want[entry.Namespace+"/x"] = true
		if entry.Below {
			want["below."+entry.Namespace+"/x"] = true
		}
	}
	for key := range protectedKeys {
		want[key] = true
	}
	for key := range protectedBareKeys {
		want[key] = true
	}
	for key, protected := range want {
		namespace, _ := Split(key)
		if got := protectedAlways(namespace, key) != ""; got != protected {
			t.Errorf("%s: rules may not write it: %t, want %t", key, got, protected)
		}
		if got := forbidden.MatchString(key); got != protected {
			t.Errorf("%s: the policy protects it: %t, want %t", key, got, protected)
		}
	}
}

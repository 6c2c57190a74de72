package keys

import (
	"testing"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// protectedAlways looks at no key outside of Kubernetes' and Assay's own namespaces, nor at those of the default one. This
// test fails if the lists name something there.
func TestListsOfProtectedKeysAreLookedAt(t *testing.T) {
	looked := func(namespace string) bool {
		return namespace != nfdv1alpha1.FeatureLabelNamespace && (reserved(namespace) || within(namespace, assayv1alpha1.GroupName))
	}
	for _, entry := range protectedNamespaces {
		if !looked(entry.namespace) || entry.below && within(nfdv1alpha1.FeatureLabelNamespace, entry.namespace) {
			t.Errorf("namespace %s is listed, and not protected", entry.namespace)
		}
	}
	for key := range protectedKeys {
		if namespace, _ := Split(key); !looked(namespace) {
			t.Errorf("key %s is listed, and not protected", key)
		}
	}
}

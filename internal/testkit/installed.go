package testkit

import (
	"bytes"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/charts"
)

// Policies creates the admission policies of the chart with their bindings.
func Policies(t testing.TB, c client.Client, namespace string) {
	t.Helper()
	for _, file := range charts.Policies(charts.PolicySettings{Namespace: namespace}) {
		for document := range bytes.SplitSeq(file, []byte("\n---\n")) {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(document, &o.Object); err != nil {
				t.Fatal(err)
			}
			Create(t, c, o)
		}
	}
}

// Account returns the ServiceAccount of a part, as it is in the policies of Policies.
func Account(part string) string {
	switch part {
	case "worker":
		return charts.DefaultWorker
	case "controller":
		return charts.DefaultManager
	}
	return "assay-" + part
}

// Rights lets all ServiceAccounts of a namespace do everything, and returns the binding.
func Rights(t testing.TB, c client.Client, namespace string) client.Object {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "all-of-" + namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:" + namespace}},
	}
	Create(t, c, binding)
	return binding
}

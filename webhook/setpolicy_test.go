//go:build linux

package webhook_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/hack/kustomize"
	"github.com/assay-project/assay/internal/testkit"
)

// workerRole returns the rules of the Role that the chart renders for its workers.
func workerRole(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	var role rbacv1.Role
	rendered(t, "Role", kustomize.Worker, &role)
	return role.Rules
}

// rendered decodes the object of a kind and name that the chart renders by default.
func rendered(t *testing.T, kind, name string, into any) {
	t.Helper()
	objects, err := kustomize.Objects(kind)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.GetName() == name {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("the chart renders no %s %s", kind, name)
}

// setObject returns a NodeFeatureSet with a label that names its creator; none if it is empty.
func setObject(t *testing.T, value, creator string) *unstructured.Unstructured {
	t.Helper()
	name, err := featureset.Name(&nfdv1alpha1.Features{Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{
		"test.policy": {Elements: map[string]string{"value": value}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{"features": map[string]any{
			"flags": map[string]any{}, "instances": map[string]any{},
			"attributes": map[string]any{"test.policy": map[string]any{"elements": map[string]any{"value": value}}},
		}},
	}}
	o.SetGroupVersionKind(assayv1alpha1.NodeFeatureSetGVK)
	if creator != "" {
		o.SetLabels(map[string]string{assayv1alpha1.CreatedByNodeLabel: creator})
	}
	return o
}

// TestARealWorkerTokenCreatesSetsOfItsNodeOnly uses tokens of pods with the Role of the chart: the policy and the Role together say what a
// stolen token can do to sets.
func TestARealWorkerTokenCreatesSetsOfItsNodeOnly(t *testing.T) {
	c := testkit.Cluster(t)
	const ours, node = "assay-set-policy-test", "set-policy-n1"
	installPolicies(t, c, charts.PolicySettings{Namespace: ours})
	ctx, k := t.Context(), testkit.Client(t, c.User)
	token := func(namespace, account, node string) dynamic.NamespaceableResourceInterface {
		d, _ := newToken(t, c, namespace, account, node)
		meta := metav1.ObjectMeta{GenerateName: "sets-", Namespace: ours}
		role := &rbacv1.Role{ObjectMeta: meta, Rules: workerRole(t)}
		testkit.Create(t, k, role)
		testkit.Create(t, k, &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account}},
		})
		return d.Resource(assayv1alpha1.NodeFeatureSetResource)
	}
	worker, unbound := token(ours, "assay-worker", node), token(ours, "assay-worker", "")
	third := token(ours+"-third", "operator", node)
	testkit.Create(t, k, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "everything-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ours + "-third", Name: "operator"}},
	})
	t.Cleanup(func() {
		if err := k.DeleteAllOf(context.WithoutCancel(ctx), &assayv1alpha1.NodeFeatureSet{}, client.InNamespace(ours)); err != nil {
			t.Error(err)
		}
	})
	testkit.Eventually(t, "the policy and the Role to be active", func(ctx context.Context) error {
		probe := setObject(t, "probe", "another")
		if _, err := worker.Namespace(ours).Create(ctx, probe, metav1.CreateOptions{}); err == nil {
			_ = k.Delete(ctx, probe)
			return fmt.Errorf("a worker may create a set in the name of another node")
		} else if !strings.Contains(err.Error(), "must be the node of the token") {
			return err
		}
		return nil
	})
	own := setObject(t, "own", node)
	create := func(c dynamic.NamespaceableResourceInterface, o *unstructured.Unstructured) error {
		_, err := c.Namespace(ours).Create(ctx, o, metav1.CreateOptions{})
		return err
	}
	patch := func(c dynamic.NamespaceableResourceInterface, body string) error {
		_, err := c.Namespace(ours).Patch(ctx, own.GetName(), types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	for _, step := range []struct {
		name    string
		do      func() error
		refused string
	}{
		{"for itself", func() error { return create(worker, own) }, ""},
		{"for another node", func() error { return create(worker, setObject(t, "a", "set-policy-n2")) }, "must be the node of the token"},
		{"without its node", func() error { return create(worker, setObject(t, "a", "")) }, "must be the node of the token"},
		{"with a token of no pod", func() error { return create(unbound, setObject(t, "a", node)) }, "this token names none"},
		{"reads it", func() error {
			_, err := worker.Namespace(ours).Get(ctx, own.GetName(), metav1.GetOptions{})
			return err
		}, ""},
		{"changes its own", func() error { return patch(worker, `{"metadata":{"annotations":{"a":"b"}}}`) }, "forbidden"},
		{"deletes its own", func() error { return worker.Namespace(ours).Delete(ctx, own.GetName(), metav1.DeleteOptions{}) }, "forbidden"},
		{"lists all", func() error {
			_, err := worker.Namespace(ours).List(ctx, metav1.ListOptions{})
			return err
		}, "forbidden"},
		{"elsewhere", func() error {
			_, err := worker.Namespace(metav1.NamespaceDefault).Create(ctx, setObject(t, "a", node), metav1.CreateOptions{})
			return err
		}, "forbidden"},
		{"another account that RBAC permits it", func() error { return create(third, setObject(t, "a", "set-policy-n2")) }, ""},
		{"changes the content with all permissions", func() error {
			return patch(third, `{"spec":{"features":{"attributes":{"test.policy":{"elements":{"value":"other"}}}}}}`)
		}, "immutable"},
	} {
		switch err := step.do(); {
		case step.refused == "" && err != nil:
			t.Errorf("%s: %v", step.name, err)
		case step.refused == "forbidden" && !apierrors.IsForbidden(err),
			step.refused != "" && (err == nil || !strings.Contains(err.Error(), step.refused)):
			t.Errorf("%s: want %q, got %v", step.name, step.refused, err)
		}
	}
}

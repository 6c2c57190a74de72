//go:build linux

// Package script_test runs the command line scripts that need a cluster; cmd/assay runs the others.
package script_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
)

func TestClusterStories(t *testing.T) {
	c := testkit.Cluster(t)
	client := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, client)
	for name, vendor := range map[string]string{"n1": "Intel", "n2": "AMD", "n3": "Intel"} {
		node := testkit.Node(t, client, name)
		// The API server records no managers of an object that was created without fields, like this Node but not a kubelet's,
		// before the first apply.
		labels := ctrlclient.RawPatch(types.ApplyPatchType,
			[]byte(`{"apiVersion": "v1", "kind": "Node", "metadata": {"labels": {"site.example.com/rack": "7"}}}`))
		if err := client.Patch(t.Context(), node, labels, ctrlclient.FieldOwner("rack-labeler")); err != nil {
			t.Fatal(err)
		}
		testkit.Create(t, client, &nfdv1alpha1.NodeFeature{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: name}},
			Spec: nfdv1alpha1.NodeFeatureSpec{
				Features: nfdv1alpha1.Features{Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{
					"cpu.model": {Elements: map[string]string{"vendor_id": vendor, "serial": "S-" + name}},
				}},
				Labels: map[string]string{"asked": "yes"},
			},
		})
	}
	testkit.Create(t, client, &nfdv1alpha1.NodeFeatureRule{
		ObjectMeta: metav1.ObjectMeta{Name: "vendor"},
		Spec: nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{
			Name:   "intel",
			Labels: map[string]string{"example.com/intel": "true"},
			MatchFeatures: nfdv1alpha1.FeatureMatcher{{
				Feature: "cpu.model",
				MatchExpressions: &nfdv1alpha1.MatchExpressionSet{
					"vendor_id": {Op: nfdv1alpha1.MatchIn, Value: nfdv1alpha1.MatchValue{"Intel"}},
				},
			}},
		}}},
	})
	// Another client owns the rules of an object that has the name of one of the library.
	const hailo = `{"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeatureRule", "metadata": {"name": "hailo"}, "spec": {"rules": [
		{"name": "a", "labels": {"example.com/a": "true"}, "matchFeatures": [{"feature": "local.feature", "matchExpressions": {"a": {"op": "Exists"}}}]}]}}`
	rule := &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: "hailo"}}
	if err := client.Patch(t.Context(), rule, ctrlclient.RawPatch(types.ApplyPatchType, []byte(hailo)), ctrlclient.FieldOwner("team")); err != nil {
		t.Fatal(err)
	}
	testkit.Create(t, client, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "rules", Namespace: namespace},
		StringData: map[string]string{"r": `[{name: third, labels: {example.com/hidden: "true"}, conditions: [{op: eq, args: {values: ["{node}", n3]}}]}]`},
	})
	testkit.Create(t, client, &nfdv1alpha1.NodeFeatureRule{
		ObjectMeta: metav1.ObjectMeta{Name: "hidden"},
		Spec: nfdv1alpha1.NodeFeatureRuleSpec{RulesFrom: []nfdv1alpha1.RulesSource{
			{SecretKeyRef: &nfdv1alpha1.KeyRef{Name: "rules", Key: "r"}},
		}},
	})
	testkit.Create(t, client, &assayv1alpha1.NodeFeatureRuleTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "below"},
		Spec: nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{
			Name: "below", Labels: map[string]string{"example.com/below": "true"},
		}}},
	})
	nobody, err := c.NewUser("nobody")
	if err != nil {
		t.Fatal(err)
	}
	libraryHook(t, client)
	team := testkit.Namespace(t, client)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "train-0", Namespace: team, Annotations: map[string]string{
			assayv1alpha1.RequiredFeaturesAnnotation: "matchFeatures: [{feature: cpu.model, matchExpressions: {vendor_id: {op: In, value: [AMD]}}}]",
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}, SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.com/never"}}},
	}
	// The ServiceAccount of the pod is created with the namespace.
	testkit.Eventually(t, "create a pod", func(ctx context.Context) error { return client.Create(ctx, pod) })
	bin := filepath.Dir(testkit.Program(t, "assay"))
	testscript.Run(t, testscript.Params{
		Dir: "cluster", RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("KUBECONFIG", c.Kubeconfig)
			e.Setenv("NOBODY", nobody.Kubeconfig)
			e.Setenv("NS", namespace)
			e.Setenv("TEAM", team)
			e.Setenv("PATH", bin+string(os.PathListSeparator)+e.Getenv("PATH"))
			return nil
		},
	})
}

// libraryHook grants the user library-hook the permissions that the chart renders for its hook that applies rules of the library.
func libraryHook(t *testing.T, client ctrlclient.Client) {
	t.Helper()
	const user = "library-hook"
	data, err := os.ReadFile("../../hack/chart/testdata/everything/rendered.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(data), "---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil || role.Kind != "ClusterRole" || role.Name != "features-library" {
			continue
		}
		testkit.Create(t, client, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: role.Rules})
		testkit.Create(t, client, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})
		return
	}
	t.Fatal("the chart renders no role for its hook of the library")
}

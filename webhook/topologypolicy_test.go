//go:build linux

package webhook_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// TestAStolenTopologyTokenKeepsNoObject uses the token of a publisher of topologies: its object goes with its Node.
func TestAStolenTopologyTokenKeepsNoObject(t *testing.T) {
	c := testkit.PrivateCluster(t, cluster.Options{})
	ctx, k := t.Context(), testkit.Client(t, c.User)
	const ours, account, node = "assay-topology-test", "assay-topology", "topology-n1"
	for _, data := range [][]byte{charts.TopologyCRD(), charts.TopologyPolicy(ours)} {
		if _, err := c.KubectlInput(ctx, string(data), "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
	d, owner := newToken(t, c, ours, account, node)
	testkit.Create(t, k, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "everything-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ours, Name: account}},
	})
	topologies := d.Resource(schema.GroupVersionResource{Group: "topology.node.k8s.io", Version: "v1alpha2", Resource: "noderesourcetopologies"})
	object := func(name string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"zones": []any{}, "topologyPolicies": []any{}}}
		o.SetAPIVersion("topology.node.k8s.io/v1alpha2")
		o.SetKind("NodeResourceTopology")
		o.SetName(name)
		return owned(o, owner)
	}
	testkit.Eventually(t, "the policy is active", func(ctx context.Context) error {
		_, err := topologies.Create(ctx, object("another"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "publishes only its own") {
			return fmt.Errorf("for another node: %w", err)
		}
		return nil
	})
	if _, err := topologies.Create(ctx, object(node), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ metadata, refused string }{
		"Annotates": {`{"annotations":{"a":"b"}}`, ""},
		"Finalizer": {`{"finalizers":["example.com/stay"]}`, "sets no finalizers"},
		"Blocks": {
			fmt.Sprintf(`{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":%q,"uid":%q,"blockOwnerDeletion":true}]}`, node, owner.UID),
			"without blockOwnerDeletion",
		},
		"Pod": {
			fmt.Sprintf(`{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":%q,"uid":%q},{"apiVersion":"v1","kind":"Pod","name":"p","uid":"b"}]}`, node, owner.UID),
			"no owner but its Node",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := topologies.Patch(ctx, node, types.MergePatchType, fmt.Appendf(nil, `{"metadata":%s}`, test.metadata), metav1.PatchOptions{})
			if test.refused == "" && err != nil || test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused)) {
				t.Errorf("want %q, got %v", test.refused, err)
			}
		})
	}
}

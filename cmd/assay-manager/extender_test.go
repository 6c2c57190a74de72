//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// extenderRole is all that the extender may do: it writes nothing, and reads Pods only when somebody asks for an explanation.
func extenderRole(name string) *rbacv1.ClusterRole {
	watch := []string{"list", "watch"}
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "namespaces"}, Verbs: watch},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
		{APIGroups: []string{nfdv1alpha1.GroupName}, Resources: []string{"nodefeatures", "nodefeaturerules"}, Verbs: watch},
		{
			APIGroups: []string{assayv1alpha1.GroupName}, Verbs: watch,
			Resources: []string{"nodefeaturerequests", "nodefeatureschedulingpolicies", "nodefeatureruletemplates"},
		},
	}}
}

func TestExtenderAnswersWithTheRightsItNeeds(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	user, err := c.NewUser("extender-test")
	if err != nil {
		t.Fatal(err)
	}
	role := extenderRole("extender-test")
	testkit.Create(t, k, role)
	testkit.Create(t, k, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "extender-test"}},
	})
	testkit.Node(t, k, "extender-node")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	if err := c.Run(t.Context(), cluster.Program{
		Name: "extender", Path: program, Env: []string{asManager + "=1"},
		Args: []string{"extender", "--kubeconfig=" + user.Kubeconfig, "--address=" + address},
		Ready: func(ctx context.Context) error {
			_, err := get(ctx, "http://"+address+"/readyz")
			return err
		},
	}); err != nil {
		t.Fatal(err)
	}
	names := []string{"extender-node", "stranger"}
	question, err := json.Marshal(extenderv1.ExtenderArgs{
		Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", Annotations: map[string]string{
			assayv1alpha1.RequiredFeaturesAnnotation: `conditions: [{op: eq, args: {values: ["{node.name}", extender-node]}}]`,
		}}},
		NodeNames: &names,
	})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post("http://"+address+"/filter", "application/json", bytes.NewReader(question))
	if err != nil {
		t.Fatal(err)
	}
	var got extenderv1.ExtenderFilterResult
	if err := errors.Join(json.NewDecoder(resp.Body).Decode(&got), resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	if got.NodeNames == nil || len(*got.NodeNames) != 1 || (*got.NodeNames)[0] != "extender-node" || got.Error != "" {
		t.Errorf("got %+v", got)
	}
	if text, err := get(t.Context(), "http://"+address+"/metrics"); err != nil || !bytes.Contains([]byte(text), []byte("assay_extender_nodes 1")) {
		t.Errorf("metrics: %v\n%s", err, text)
	}
	if err := c.Terminate(t.Context(), "extender"); err != nil {
		t.Errorf("it does not end when asked to: %v", err)
	}
}

//go:build linux

package webhook_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// publisher writes NodeFeatures with the token of a ServiceAccount.
type publisher struct {
	client dynamic.NamespaceableResourceInterface
	node   *corev1.Node // owner of what it publishes; nil: no owner
}

// newPublisher creates a ServiceAccount with all permissions, a pod of it on the node, and a token that is bound to the pod;
// without a node, the token is not bound.
func newPublisher(t *testing.T, c *cluster.Cluster, namespace, account, node string) publisher {
	t.Helper()
	d, owner := newToken(t, c, namespace, account, node)
	testkit.Create(t, testkit.Client(t, c.User), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "everything-" + namespace + "-" + account + "-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account}},
	})
	return publisher{d.Resource(nfdv1alpha1.NodeFeatureResource), owner}
}

// newToken returns a client with the configuration of newTokenConfig.
func newToken(t *testing.T, c *cluster.Cluster, namespace, account, node string) (dynamic.Interface, *corev1.Node) {
	t.Helper()
	config, owner := newTokenConfig(t, c, namespace, account, node)
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return d, owner
}

// newTokenConfig creates a ServiceAccount without permissions, a pod of it on the node, and returns a configuration with a token that
// is bound to the pod; without a node, the token is not bound.
func newTokenConfig(t *testing.T, c *cluster.Cluster, namespace, account, node string) (*rest.Config, *corev1.Node) {
	t.Helper()
	ctx := t.Context()
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must(err)
	_, err = client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	must(err)
	request := &authenticationv1.TokenRequest{}
	var owner *corev1.Node
	if node != "" {
		_, err = client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
		must(err)
		owner, err = client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		must(err)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: account + "-" + node, Namespace: namespace},
			Spec: corev1.PodSpec{
				NodeName: node, ServiceAccountName: account, TerminationGracePeriodSeconds: ptr.To[int64](0),
				Containers: []corev1.Container{{Name: "c", Image: "none"}},
			},
		}
		_, err = client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		must(err)
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name}
	}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	must(err)
	config := rest.AnonymousClientConfig(c.RESTConfig())
	config.BearerToken = token.Status.Token
	return config, owner
}

// owned sets Nodes as the owners of an object.
func owned(object *unstructured.Unstructured, nodes ...*corev1.Node) *unstructured.Unstructured {
	var refs []metav1.OwnerReference
	for _, n := range nodes {
		refs = append(refs, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID})
	}
	object.SetOwnerReferences(refs)
	return object
}

func featureObject(namespace, name, node, told string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": nfdv1alpha1.GroupVersion.String(), "kind": "NodeFeature",
		"metadata": map[string]any{"name": name, "namespace": namespace, "labels": map[string]any{nfdv1alpha1.NodeNameLabel: node}},
		"spec": map[string]any{"features": map[string]any{"attributes": map[string]any{
			"system.name": map[string]any{"elements": map[string]any{"nodename": told}}}}},
	}}
}

func (p publisher) create(ctx context.Context, namespace, name, node, told string) error {
	object := featureObject(namespace, name, node, told)
	if p.node != nil {
		owned(object, p.node)
	}
	_, err := p.client.Namespace(namespace).Create(ctx, object, metav1.CreateOptions{})
	return err
}

// installPolicies activates the admission policies in a namespace until the test ends.
func installPolicies(t *testing.T, c *cluster.Cluster, settings charts.PolicySettings) {
	t.Helper()
	for _, data := range charts.Policies(settings) {
		if _, err := c.KubectlInput(t.Context(), string(data), "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := c.KubectlInput(context.Background(), string(data), "delete", "-f", "-"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPolicyBindsRealTokens(t *testing.T) {
	c := testkit.Cluster(t)
	const ours = "assay-policy-test"
	installPolicies(t, c, charts.PolicySettings{Namespace: ours})
	ctx := t.Context()
	admin, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	all := publisher{client: admin.Resource(nfdv1alpha1.NodeFeatureResource)}
	worker := newPublisher(t, c, ours, "assay-worker", "policy-n1")
	manager := newPublisher(t, c, ours, "assay-manager", "policy-n1")
	unbound := newPublisher(t, c, ours, "assay-worker", "")
	third := newPublisher(t, c, ours+"-third", "operator", "policy-n1")
	if err := all.create(ctx, ours, "policy-n2", "policy-n2", "policy-n2"); err != nil {
		t.Fatalf("an administrator: %v", err)
	}
	err = cluster.WaitFor(ctx, "the policy to be active", func(ctx context.Context) error {
		if err := worker.create(ctx, ours, "probe", "policy-n2", "policy-n2"); err == nil {
			_ = all.client.Namespace(ours).Delete(ctx, "probe", metav1.DeleteOptions{})
			return fmt.Errorf("a worker may still publish for another node")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	patch := func(p publisher, name, body string) error {
		_, err := p.client.Namespace(ours).Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	ownedBy := func(owners string) string { return `{"metadata":{"ownerReferences":[` + owners + `]}}` }
	steps := []struct {
		name    string
		do      func() error
		refused string
	}{
		{"for itself", func() error { return worker.create(ctx, ours, "policy-n1", "policy-n1", "policy-n1") }, ""},
		{"for another", func() error { return worker.create(ctx, ours, "policy-n3", "policy-n3", "policy-n3") }, "a node publishes only for itself"},
		{"in another namespace", func() error { return worker.create(ctx, ours+"-third", "policy-n3", "policy-n3", "policy-n3") }, "a node publishes only for itself"},
		{"under another name", func() error { return worker.create(ctx, ours, "other", "policy-n1", "policy-n1") }, "has the name of its node"},
		{"turns its object", func() error {
			return patch(worker, "policy-n1", `{"metadata":{"labels":{"`+nfdv1alpha1.NodeNameLabel+`":"policy-n2"}}}`)
		}, "a node publishes only for itself"},
		{"drops the label", func() error {
			return patch(worker, "policy-n1", `{"metadata":{"labels":{"`+nfdv1alpha1.NodeNameLabel+`":null}}}`)
		}, "a node publishes only for itself"},
		{"lies", func() error {
			return patch(worker, "policy-n1", `{"spec":{"features":{"attributes":{"system.name":{"elements":{"nodename":"policy-n2"}}}}}}`)
		}, "system.name.nodename"},
		{"sets a finalizer", func() error { return patch(worker, "policy-n1", `{"metadata":{"finalizers":["example.com/stay"]}}`) }, "sets no finalizers"},
		{"is owned by a ConfigMap, too", func() error {
			return patch(worker, "policy-n1", ownedBy(fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","name":"policy-n1","uid":%q},`, worker.node.UID)+
				`{"apiVersion":"v1","kind":"ConfigMap","name":"kube-root-ca.crt","uid":"a"}`))
		}, "no owners but its Node, its pod and its DaemonSet"},
		{"blocks its Node", func() error {
			return patch(worker, "policy-n1", ownedBy(fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","name":"policy-n1","uid":%q,"blockOwnerDeletion":true}`, worker.node.UID)))
		}, "without blockOwnerDeletion"},
		{"is owned by its pod and DaemonSet, too", func() error {
			return patch(worker, "policy-n1", ownedBy(fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","name":"policy-n1","uid":%q},`, worker.node.UID)+
				`{"apiVersion":"v1","kind":"Pod","name":"p","uid":"b"},{"apiVersion":"apps/v1","kind":"DaemonSet","name":"ds","uid":"c"}`))
		}, ""},
		{"an administrator sets a finalizer", func() error { return patch(all, "policy-n1", `{"metadata":{"finalizers":["example.com/stay"]}}`) }, ""},
		{"keeps the administrator's finalizer", func() error { return patch(worker, "policy-n1", `{"metadata":{"annotations":{"a":"b"}}}`) }, ""},
		{"removes it", func() error { return patch(worker, "policy-n1", `{"metadata":{"finalizers":null}}`) }, ""},
		{"takes another's", func() error {
			return patch(worker, "policy-n2", `{"metadata":{"labels":{"`+nfdv1alpha1.NodeNameLabel+`":"policy-n1"}}}`)
		}, "changes only what is its own"},
		{"deletes another's", func() error { return worker.client.Namespace(ours).Delete(ctx, "policy-n2", metav1.DeleteOptions{}) }, "changes only what is its own"},
		{"unbound token", func() error {
			return patch(unbound, "policy-n1", `{"metadata":{"annotations":{"a":"b"}}}`)
		}, "this token names none"},
		{"third party at home", func() error { return third.create(ctx, ours+"-third", "vendor", "policy-n2", "policy-n2") }, ""},
		{"third party in ours", func() error { return third.create(ctx, ours, "vendor", "policy-n2", "policy-n2") }, ""},
		{"the manager annotates", func() error { return patch(manager, "policy-n2", `{"metadata":{"annotations":{"a":"b"}}}`) }, ""},
		{"the manager lies", func() error {
			return patch(manager, "policy-n2", `{"spec":{"features":{"attributes":{"system.name":{"elements":{"nodename":"x"}}}}}}`)
		}, "changes neither their features nor their labels"},
		{"the manager moves an object", func() error {
			return patch(manager, "policy-n2", `{"metadata":{"labels":{"`+nfdv1alpha1.NodeNameLabel+`":"policy-n1"}}}`)
		}, "changes neither their features nor their labels"},
		{"the manager publishes", func() error { return manager.create(ctx, ours, "policy-n4", "policy-n4", "policy-n4") }, "changes neither their features nor their labels"},
		{"the manager cleans up", func() error { return manager.client.Namespace(ours).Delete(ctx, "policy-n2", metav1.DeleteOptions{}) }, ""},
		{"deletes its own", func() error { return worker.client.Namespace(ours).Delete(ctx, "policy-n1", metav1.DeleteOptions{}) }, ""},
	}
	for _, s := range steps {
		err := s.do()
		switch {
		case s.refused == "" && err != nil:
			t.Errorf("%s: %v", s.name, err)
		case s.refused != "" && (err == nil || !strings.Contains(err.Error(), s.refused)):
			t.Errorf("%s: want %q, got %v", s.name, s.refused, err)
		}
	}
}

// TestAPublisherOfAllNodesIsBoundByRBACAlone is about programs such as NVIDIA's topograph: one pod publishes a NodeFeature for every node,
// in Assay's namespace, with a Role that its administrator granted. Its token names the node of the pod.
func TestAPublisherOfAllNodesIsBoundByRBACAlone(t *testing.T) {
	c := testkit.Cluster(t)
	const ours, vendor = "assay-publisher-test", "topograph"
	k := testkit.Client(t, c.User)
	account := func(account string) publisher {
		d, owner := newToken(t, c, vendor, account, "publisher-n1")
		meta := metav1.ObjectMeta{GenerateName: account + "-", Namespace: ours}
		role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{nfdv1alpha1.GroupVersion.Group}, Resources: []string{"nodefeatures"}, Verbs: []string{"get", "list", "create", "update", "delete"},
		}}}
		testkit.Create(t, k, role)
		testkit.Create(t, k, &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: vendor, Name: account}},
		})
		return publisher{d.Resource(nfdv1alpha1.NodeFeatureResource), owner}
	}
	newToken(t, c, ours, "assay-worker", "") // creates the namespace
	topograph, other := account("topograph"), account("other")
	write := func(ctx context.Context, p publisher, node string) error {
		object := featureObject(ours, "topograph-"+node, node, node)
		_ = p.client.Namespace(ours).Delete(ctx, object.GetName(), metav1.DeleteOptions{})
		_, err := p.client.Namespace(ours).Create(ctx, object, metav1.CreateOptions{})
		return err
	}
	for name, test := range map[string]struct {
		settings  charts.PolicySettings
		topograph string // what refuses it; empty: nothing
		other     string
	}{
		"Default":  {charts.PolicySettings{Namespace: ours}, "", ""},
		"Hardened": {charts.PolicySettings{Namespace: ours, Hardened: true}, "a node publishes only for itself", "a node publishes only for itself"},
		"Listed":   {charts.PolicySettings{Namespace: ours, Hardened: true, Publishers: []string{vendor + "/topograph"}}, "", "a node publishes only for itself"},
	} {
		t.Run(name, func(t *testing.T) {
			installPolicies(t, c, test.settings)
			testkit.Eventually(t, "the policies are active", func(ctx context.Context) error {
				for _, step := range []struct {
					who, node, refused string
					as                 publisher
				}{
					{"topograph", "publisher-n2", test.topograph, topograph}, {"another account", "publisher-n3", test.other, other},
					{"another account, of its node", "publisher-n1", "", other},
				} {
					err := write(ctx, step.as, step.node)
					if step.refused == "" && err != nil || step.refused != "" && (err == nil || !strings.Contains(err.Error(), step.refused)) {
						return fmt.Errorf("%s: want %q, got %w", step.who, step.refused, err)
					}
				}
				return nil
			})
		})
	}
}

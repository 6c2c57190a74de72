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

// thief has the credentials that are on one node: the token of the worker's pod, with the permissions that the chart grants, and
// the kubelet's client certificate.
type thief struct {
	*testing.T
	admin     kubernetes.Interface
	features  dynamic.ResourceInterface // as an administrator
	config    *rest.Config              // without credentials
	namespace string
}

const stolenAccount = "assay-worker"

func newThief(t *testing.T, c *cluster.Cluster, namespace string) *thief {
	t.Helper()
	admin, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	all, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	s := &thief{
		T: t, admin: admin, namespace: namespace, config: rest.AnonymousClientConfig(c.RESTConfig()),
		features: all.Resource(nfdv1alpha1.NodeFeatureResource).Namespace(namespace),
	}
	ctx, meta := t.Context(), metav1.ObjectMeta{Name: stolenAccount, Namespace: namespace}
	_, err = admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	s.must(err)
	_, err = admin.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	s.must(err)
	_, err = admin.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{nfdv1alpha1.GroupVersion.Group}, Resources: []string{"nodefeatures"}, Verbs: []string{"create", "get", "patch", "watch"},
	}}}, metav1.CreateOptions{})
	s.must(err)
	_, err = admin.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: stolenAccount},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: stolenAccount, Namespace: namespace}},
	}, metav1.CreateOptions{})
	s.must(err)
	return s
}

func (s *thief) must(err error) {
	s.Helper()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		s.Fatal(err)
	}
}

// node creates a Node, and replaces an existing one.
func (s *thief) node(name string) *corev1.Node {
	s.Helper()
	err := s.admin.CoreV1().Nodes().Delete(s.Context(), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		s.Fatal(err)
	}
	node, err := s.admin.CoreV1().Nodes().Create(s.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return node
}

// token creates a pod of the worker on a node, and returns a token that is bound to it; without a node, the token is not bound.
func (s *thief) token(node string) (token string, pod *corev1.Pod) {
	s.Helper()
	request := &authenticationv1.TokenRequest{}
	if node != "" {
		var err error
		pod, err = s.admin.CoreV1().Pods(s.namespace).Create(s.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "worker-"},
			Spec: corev1.PodSpec{
				NodeName: node, ServiceAccountName: stolenAccount, TerminationGracePeriodSeconds: ptr.To[int64](0),
				Containers: []corev1.Container{{Name: "c", Image: "none"}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			s.Fatal(err)
		}
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
	}
	got, err := s.admin.CoreV1().ServiceAccounts(s.namespace).CreateToken(s.Context(), stolenAccount, request, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return got.Status.Token, pod
}

// as returns a client that uses a token.
func (s *thief) as(token string, change ...func(*rest.Config)) dynamic.ResourceInterface {
	s.Helper()
	config := rest.CopyConfig(s.config)
	config.BearerToken = token
	for _, f := range change {
		f(config)
	}
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		s.Fatal(err)
	}
	return d.Resource(nfdv1alpha1.NodeFeatureResource).Namespace(s.namespace)
}

// TestAStolenTokenIsOfNoUseForAnotherNode tries all attacks that are possible with the credentials on one node. Each tries to write
// the features of another node, and each must fail.
func TestAStolenTokenIsOfNoUseForAnotherNode(t *testing.T) {
	c := testkit.Cluster(t)
	const ours, mine, theirs = "assay-identity-test", "thief-n1", "thief-n2"
	installPolicies(t, c, charts.PolicySettings{Namespace: ours})
	s := newThief(t, c, ours)
	own := s.node(mine)
	s.node(theirs)
	stolen, _ := s.token(mine)
	worker := s.as(stolen)
	unbound, _ := s.token("")
	kubelet, err := c.NewUser("system:node:"+mine, "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	certified, err := dynamic.NewForConfig(kubelet.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	create := func(as dynamic.ResourceInterface, name, node, told string) error {
		_, err := as.Create(t.Context(), owned(featureObject(ours, name, node, told), own), metav1.CreateOptions{})
		return err
	}
	patch := func(as dynamic.ResourceInterface, kind types.PatchType, name, body string, options metav1.PatchOptions) error {
		_, err := as.Patch(t.Context(), name, kind, []byte(body), options)
		return err
	}
	merge := func(as dynamic.ResourceInterface, name, body string) error {
		return patch(as, types.MergePatchType, name, body, metav1.PatchOptions{})
	}
	const toOther = `{"metadata":{"labels":{"` + nfdv1alpha1.NodeNameLabel + `":"` + theirs + `"}}}`
	if _, err := s.features.Create(t.Context(), featureObject(ours, theirs, theirs, theirs), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err = cluster.WaitFor(t.Context(), "the policy to be active", func(ctx context.Context) error {
		if err := create(worker, "probe", theirs, theirs); err == nil {
			_ = s.features.Delete(ctx, "probe", metav1.DeleteOptions{})
			return fmt.Errorf("a worker may still publish for another node")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := create(worker, mine, mine, mine); err != nil {
		t.Fatalf("what a worker is for: %v", err)
	}

	attacks := map[string]func() error{
		// Eight attacks, of which all but one succeed if nothing binds the token to its node.
		"CreateForAnother": func() error { return create(worker, "thief-n3", "thief-n3", "thief-n3") },
		"TurnTheLabel":     func() error { return merge(worker, mine, toOther) },
		"TurnTheNameInside": func() error {
			return merge(worker, mine, `{"spec":{"features":{"attributes":{"system.name":{"elements":{"nodename":"`+theirs+`"}}}}}}`)
		},
		"PatchAnothers": func() error { return merge(worker, theirs, `{"spec":{"labels":{"stolen":"true"}}}`) },
		"ApplyAnothers": func() error {
			body := `{"apiVersion":"nfd.k8s-sigs.io/v1alpha1","kind":"NodeFeature","metadata":{"name":"` + theirs + `"},"spec":{"labels":{"stolen":"true"}}}`
			return patch(worker, types.ApplyPatchType, theirs, body, metav1.PatchOptions{FieldManager: "thief", Force: ptr.To(true)})
		},
		"DeleteAnothers": func() error { return worker.Delete(t.Context(), theirs, metav1.DeleteOptions{}) },
		"DeleteAll": func() error {
			return worker.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		},
		"TakeOverAnothers": func() error {
			return merge(worker, theirs, `{"metadata":{"labels":{"`+nfdv1alpha1.NodeNameLabel+`":"`+mine+`"}}}`)
		},
		"UnboundToken": func() error { return create(s.as(unbound), theirs+"-x", theirs, theirs) },
		// A second object for its own node.
		"AnotherName": func() error { return create(worker, "another", mine, mine) },
		"GeneratedName": func() error {
			o := owned(featureObject(ours, "", mine, mine), own)
			o.SetGenerateName("many-")
			_, err := worker.Create(t.Context(), o, metav1.CreateOptions{})
			return err
		},
		// Expired or invalid identities.
		"TokenOfADeletedPod": func() error {
			token, pod := s.token(theirs)
			if err := s.admin.CoreV1().Pods(ours).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
				t.Fatal(err)
			}
			return cluster.WaitFor(t.Context(), "the token to end", func(context.Context) error {
				err := merge(s.as(token), theirs, `{"metadata":{"annotations":{"stolen":"true"}}}`)
				if apierrors.IsUnauthorized(err) {
					return nil
				}
				return fmt.Errorf("it is still good: %w", err)
			})
		},
		"TokenOfAnEarlierNodeOfThatName": func() error {
			// The pod is deleted with its Node, and its token becomes invalid.
			s.node("thief-n4")
			token, pod := s.token("thief-n4")
			s.node("thief-n4")
			if err := s.admin.CoreV1().Pods(ours).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			return cluster.WaitFor(t.Context(), "the token to end", func(context.Context) error {
				err := create(s.as(token), "thief-n4", "thief-n4", "thief-n4")
				if apierrors.IsUnauthorized(err) {
					return nil
				}
				return fmt.Errorf("it is still good: %w", err)
			})
		},
		"Impersonation": func() error {
			as := s.as(stolen, func(c *rest.Config) {
				c.Impersonate.UserName = "system:serviceaccount:" + ours + ":" + stolenAccount
				c.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {theirs}}
			})
			return merge(as, theirs, `{"spec":{"labels":{"stolen":"true"}}}`)
		},
		"KubeletsCertificate": func() error {
			return merge(certified.Resource(nfdv1alpha1.NodeFeatureResource).Namespace(ours), theirs, `{"spec":{"labels":{"stolen":"true"}}}`)
		},
		"KubeletsTokenForAnothersPod": func() error { // the Node authorizer allows a kubelet to request tokens for its own pods
			_, pod := s.token(theirs)
			client, err := kubernetes.NewForConfig(kubelet.RESTConfig())
			if err != nil {
				t.Fatal(err)
			}
			request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
			}}
			_, err = client.CoreV1().ServiceAccounts(ours).CreateToken(t.Context(), stolenAccount, request, metav1.CreateOptions{})
			return err
		},
	}
	for name, attack := range attacks {
		err := attack()
		waited := strings.HasPrefix(name, "TokenOf") // these wait until the attack fails, and then return nil
		if (err == nil) != waited {
			t.Errorf("%s: %v", name, err)
		}
	}

	// A pod cannot move to another node, so the node in its token cannot change.
	_, pod := s.token(mine)
	pod.Spec.NodeName = theirs
	if _, err := s.admin.CoreV1().Pods(ours).Update(t.Context(), pod, metav1.UpdateOptions{}); err == nil {
		t.Error("a pod has moved to another node")
	}

	left, err := s.features.Get(t.Context(), theirs, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(left.Object); strings.Contains(text, "stolen") || left.GetLabels()[nfdv1alpha1.NodeNameLabel] != theirs {
		t.Errorf("the other node's object is %s", text)
	}
	all, err := s.features.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(all.Items) != 2 {
		t.Errorf("%d objects (%v), want one for each node", len(all.Items), err)
	}
}

// TestATokenOfAnEarlierNodeSpeaksForNoOther: a Node was deleted and created again with the same name, while the pod of the old one
// still exists.
func TestATokenOfAnEarlierNodeSpeaksForNoOther(t *testing.T) {
	c := testkit.Cluster(t)
	const ours, name = "assay-earlier-test", "earlier-n1"
	installPolicies(t, c, charts.PolicySettings{Namespace: ours})
	s := newThief(t, c, ours)
	before := s.node(name)
	token, _ := s.token(name)
	worker := s.as(token)
	create := func(owners ...*corev1.Node) error {
		_, err := worker.Create(t.Context(), owned(featureObject(ours, name, name, name), owners...), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	testkit.Eventually(t, "the policy is active", func(context.Context) error {
		if err := create(); !apierrors.IsForbidden(err) {
			return fmt.Errorf("a worker may publish without an owner: %w", err)
		}
		return nil
	})
	if err := create(before); err != nil {
		t.Fatalf("what a worker is for: %v", err)
	}
	after := s.node(name)
	stranger := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "x"}}
	for attack, owners := range map[string][]*corev1.Node{
		"TheNewNode": {after}, "Both": {before, after}, "None": nil, "NoSuchNode": {stranger},
	} {
		if err := create(owners...); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), string(before.UID)) {
			t.Errorf("%s: %v", attack, err)
		}
	}
	// The objects that it can still write are owned by the deleted Node, and do not count: see gather.Policy.Outlived.
	if _, err := s.features.Create(t.Context(), owned(featureObject(ours, name, name, name), after), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := worker.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"labels":{"stolen":"true"}}}`), metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("it changes what the new Node owns: %v", err)
	}
}

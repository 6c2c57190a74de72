//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/assay-project/assay/hack/kustomize"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/webhook"
)

// installed is the namespace of the installation.
const installed = kustomize.Namespace

// gains are privileges that a token may give in addition to reading and writing Assay's kinds, as listed in docs/security.md. The
// test tries each with a dry run.
var gains = []struct {
	name string
	try  func(context.Context, *rest.Config) error
}{
	{"create a Secret that holds another account's token", func(ctx context.Context, as *rest.Config) error {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Name: "stolen", Annotations: map[string]string{corev1.ServiceAccountNameKey: "assay-controller"},
		}, Type: corev1.SecretTypeServiceAccountToken}
		_, err := kubernetes.NewForConfigOrDie(as).CoreV1().Secrets(installed).Create(ctx, secret, tryOut)
		return err
	}},
	{"request a token of another account", func(ctx context.Context, as *rest.Config) error {
		_, err := kubernetes.NewForConfigOrDie(as).CoreV1().ServiceAccounts(installed).CreateToken(ctx, "assay-cleanup", &authenticationv1.TokenRequest{}, tryOut)
		return err
	}},
	{"impersonate another account", func(ctx context.Context, as *rest.Config) error {
		as.Impersonate.UserName = "system:serviceaccount:" + installed + ":assay-controller"
		_, err := kubernetes.NewForConfigOrDie(as).CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
		return err
	}},
	{"create a pod with another account", func(ctx context.Context, as *rest.Config) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "stolen"}, Spec: corev1.PodSpec{
			ServiceAccountName: "assay-controller", Containers: []corev1.Container{{Name: "c", Image: "none"}},
		}}
		_, err := kubernetes.NewForConfigOrDie(as).CoreV1().Pods(installed).Create(ctx, pod, tryOut)
		return err
	}},
	{"bind a role to itself", func(ctx context.Context, as *rest.Config) error {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "stolen"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		}
		_, err := kubernetes.NewForConfigOrDie(as).RbacV1().ClusterRoleBindings().Create(ctx, binding, tryOut)
		return err
	}},
	{"extend its own role", func(ctx context.Context, as *rest.Config) error {
		body := []byte(`{"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["*"]}]}`)
		_, err := kubernetes.NewForConfigOrDie(as).RbacV1().ClusterRoles().Patch(ctx, "assay-controller", types.MergePatchType, body, tryOutPatch)
		return err
	}},
	{"request a client certificate", func(ctx context.Context, as *rest.Config) error {
		csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "stolen"}, Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientSignerName, Request: []byte("x"), Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		}}
		_, err := kubernetes.NewForConfigOrDie(as).CertificatesV1().CertificateSigningRequests().Create(ctx, csr, tryOut)
		return err
	}},
	{"create a webhook configuration", func(ctx context.Context, as *rest.Config) error {
		c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "stolen"}}
		_, err := kubernetes.NewForConfigOrDie(as).AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, c, tryOut)
		return err
	}},
	{"send all objects to another server by Assay's webhook configurations", func(ctx context.Context, as *rest.Config) error {
		_, err := kubernetes.NewForConfigOrDie(as).AdmissionregistrationV1().ValidatingWebhookConfigurations().
			Patch(ctx, webhook.ConfigurationName, types.MergePatchType, []byte(`{"webhooks":[]}`), tryOutPatch)
		return err
	}},
	{"read Secrets of Assay's namespace", func(ctx context.Context, as *rest.Config) error {
		_, err := kubernetes.NewForConfigOrDie(as).CoreV1().Secrets(installed).List(ctx, metav1.ListOptions{})
		return err
	}},
	{"read Secrets of other namespaces", func(ctx context.Context, as *rest.Config) error {
		_, err := kubernetes.NewForConfigOrDie(as).CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
		return err
	}},
	{"replace the owners of a Node, so that it is deleted", func(ctx context.Context, as *rest.Config) error {
		body := []byte(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"gone","uid":"x"}]}}`)
		_, err := kubernetes.NewForConfigOrDie(as).CoreV1().Nodes().Patch(ctx, "obtain-n1", types.MergePatchType, body, tryOutPatch, "status")
		return err
	}},
	{"change a Node's health", func(ctx context.Context, as *rest.Config) error {
		body := []byte(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
		_, err := kubernetes.NewForConfigOrDie(as).CoreV1().Nodes().Patch(ctx, "obtain-n1", types.MergePatchType, body, tryOutPatch, "status")
		return err
	}},
	{"cordon a Node", func(ctx context.Context, as *rest.Config) error {
		_, err := kubernetes.NewForConfigOrDie(as).CoreV1().Nodes().Patch(ctx, "obtain-n1", types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`), tryOutPatch)
		return err
	}},
}

var (
	tryOut      = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	tryOutPatch = metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
)

// TestWhatATokenCanObtain uses the token of each ServiceAccount of the kustomize base, with the policies, to try to gain more
// privileges, and compares the results with the table in docs/security.md.
func TestWhatATokenCanObtain(t *testing.T) {
	c := testkit.Cluster(t)
	install(t, c)
	admin := kubernetes.NewForConfigOrDie(c.RESTConfig())
	testkit.Node(t, testkit.Client(t, c.User), "obtain-n1")
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := []string{"worker", "controller", "webhook"}
	tokens := map[string]string{}
	for _, part := range parts {
		got, err := admin.CoreV1().ServiceAccounts(installed).CreateToken(t.Context(), "assay-"+part, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		tokens[part] = got.Status.Token
	}
	as := func(part string) *rest.Config {
		config := rest.AnonymousClientConfig(c.RESTConfig())
		config.BearerToken = tokens[part]
		return config
	}
	testkit.Eventually(t, "roles and policies are active", func(ctx context.Context) error {
		if _, err := kubernetes.NewForConfigOrDie(as("controller")).CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
			return err
		}
		if err := gains[len(gains)-2].try(ctx, as("controller")); !apierrors.IsForbidden(err) {
			return fmt.Errorf("the policy does not hold yet: %w", err)
		}
		return nil
	})
	for _, gain := range gains {
		row := "| " + gain.name + " |"
		for _, part := range parts {
			err := gain.try(t.Context(), as(part))
			switch {
			case err == nil:
				row += " **yes** |"
			case apierrors.IsForbidden(err):
				row += " no |"
			default:
				t.Errorf("%s: %s: %v", part, gain.name, err)
			}
		}
		if !strings.Contains(string(page), row+"\n") {
			t.Errorf("docs/security.md lacks the row\n%s", row)
		}
	}
}

// install creates the objects of the kustomize base that grant or restrict privileges, and those that the webhook updates.
func install(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	objects, err := kustomize.Objects("Namespace", "ServiceAccount", "Secret", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ResourceQuota",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := c.KubectlInput(t.Context(), stream(t, c, objects), "apply", "-f", "-"); err != nil {
		t.Fatal(out, err)
	}
}

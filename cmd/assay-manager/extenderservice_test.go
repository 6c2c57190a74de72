//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// rendered has the objects of the extender and its scheduler in the chart with the extender behind a Service, and the ClusterRoles of all
// parts. A test of the chart keeps it up to date.
const rendered = "../../hack/chart/testdata/service/rendered.yaml"

// fromChart returns an object in the rendered chart.
func fromChart[T any](t *testing.T, kind, name string) *T {
	t.Helper()
	data, err := os.ReadFile(rendered)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(data), "---\n") {
		var head metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(document), &head); err != nil || head.Kind != kind || head.Name != name {
			continue
		}
		out := new(T)
		if err := yaml.Unmarshal([]byte(document), out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	t.Fatalf("%s has no %s %s", rendered, kind, name)
	return nil
}

// documentedCertificates runs the documented commands that create certificates without cert-manager, and writes the results as
// mounted Secrets. It returns the directories of the server and of the client.
func documentedCertificates(t *testing.T) (server, client string) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("the documented commands need openssl")
	}
	page, err := os.ReadFile("../../docs/scheduling.md")
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile("(?s)```sh certificates\n(.*?)```").FindSubmatch(page)
	if script == nil {
		t.Fatal("docs/scheduling.md shows no commands that make certificates")
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", string(script[1])) // #nosec G204 -- from the documentation of this project
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"server", "client"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		for from, to := range map[string]string{"ca.crt": "ca.crt", name + ".crt": "tls.crt", name + ".key": "tls.key"} {
			if err := os.Link(filepath.Join(dir, from), filepath.Join(dir, name, to)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return filepath.Join(dir, "server"), filepath.Join(dir, "client")
}

// serviceName is the DNS name in the documented certificate.
const serviceName = "assay-extender.assay-system.svc"

// behindService is an extender in its own process, with the arguments and permissions in the rendered chart.
type behindService struct {
	address string
	roots   *x509.CertPool
}

func startBehindService(t *testing.T, c *cluster.Cluster, certificates string) *behindService {
	t.Helper()
	k := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, k)
	e := &behindService{address: testkit.FreeAddress(t), roots: x509.NewCertPool()}
	ca, err := os.ReadFile(filepath.Join(certificates, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	e.roots.AppendCertsFromPEM(ca)

	const name = "extender-behind-service"
	user, err := c.NewUser(name)
	if err != nil {
		t.Fatal(err)
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}}
	everywhere, own := metav1.ObjectMeta{Name: name}, metav1.ObjectMeta{Namespace: namespace, Name: name}
	ref := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: everywhere, Rules: fromChart[rbacv1.ClusterRole](t, "ClusterRole", "assay-extender").Rules},
		&rbacv1.ClusterRoleBinding{ObjectMeta: everywhere, RoleRef: ref("ClusterRole"), Subjects: subjects},
		&rbacv1.Role{ObjectMeta: own, Rules: fromChart[rbacv1.Role](t, "Role", "assay-extender").Rules},
		&rbacv1.RoleBinding{ObjectMeta: own, RoleRef: ref("Role"), Subjects: subjects},
	} {
		testkit.Create(t, k, object)
	}

	var args []string
	for _, arg := range fromChart[appsv1.Deployment](t, "Deployment", "assay-extender").Spec.Template.Spec.Containers[0].Args {
		if strings.HasPrefix(arg, "--address=") {
			arg = "--address=" + e.address
		}
		args = append(args, strings.Replace(arg, "/certificate/", certificates+"/", 1))
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	err = c.Run(t.Context(), cluster.Program{
		Name: name, Path: program, Env: []string{asManager + "=1"}, Args: append(args, "--kubeconfig="+user.Kubeconfig, "--namespace="+namespace),
		Ready: func(ctx context.Context) error {
			_, _, err := e.get(ctx, "/readyz", "") // the kubelet does not present a certificate either
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Log(name))
		}
		if err := c.Terminate(context.WithoutCancel(t.Context()), name); err != nil {
			t.Errorf("it does not end when asked to: %v", err)
		}
	})
	return e
}

// get sends a GET request, with a bearer token if token is not empty.
func (e *behindService) get(ctx context.Context, path, token string) (status int, text string, err error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: e.roots, ServerName: serviceName, MinVersion: tls.VersionTLS13}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+e.address+path, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, "", err
	}
	body, err := io.ReadAll(resp.Body)
	err = errors.Join(err, resp.Body.Close())
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return resp.StatusCode, string(body), err
}

// TestExtenderBehindItsService runs the extender and kube-scheduler as configured by the chart, with the documented certificates: a
// pod is scheduled to the node that meets its requirements, and gets an event if no node does.
func TestExtenderBehindItsService(t *testing.T) {
	c := testkit.Cluster(t)
	serverDir, clientDir := documentedCertificates(t)
	k := testkit.Client(t, c.User)
	e := startBehindService(t, c, serverDir)

	config := fromChart[corev1.ConfigMap](t, "ConfigMap", "assay-scheduler").Data["config.yaml"]
	for from, to := range map[string]string{
		"https://" + serviceName + ":8443": "https://" + e.address,
		"tlsConfig:\n":                     "tlsConfig:\n      serverName: " + serviceName + "\n", // in a cluster, the host of the URL
		"/client/":                         clientDir + "/",
		"leaderElect: true":                "leaderElect: false", // the Lease's namespace does not exist here
	} {
		if !strings.Contains(config, from) {
			t.Fatalf("the scheduler's configuration has no %s:\n%s", from, config)
		}
		config = strings.ReplaceAll(config, from, to)
	}
	if err := c.RunScheduler(t.Context(), "scheduler-over-tls", []byte(config)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Terminate(t.Context(), "scheduler-over-tls"); err != nil {
			t.Error(err)
		}
	}()

	namespace := testkit.Namespace(t, k)
	for _, name := range []string{"plain", "sealed"} {
		testkit.Node(t, k, name)
		testkit.Create(t, k, flagsOf(namespace, name, name))
	}
	placed := podFor(namespace, "placed", "sealed")
	testkit.Create(t, k, placed)
	testkit.Eventually(t, "the pod is placed", func(ctx context.Context) error {
		if err := k.Get(ctx, client.ObjectKeyFromObject(placed), placed); err != nil || placed.Spec.NodeName != "sealed" {
			return fmt.Errorf("it is on %q: %v (%w)", placed.Spec.NodeName, placed.Status.Conditions, err)
		}
		return nil
	})
	waits := podFor(namespace, "waits", "nobody-has-it")
	testkit.Create(t, k, waits)
	testkit.Eventually(t, "the pod has a condition that names what is missing", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(waits), waits)
		if text := fmt.Sprint(waits.Status.Conditions); err != nil || !strings.Contains(text, "cpu.cpuid/nobody-has-it (no node has it)") {
			return fmt.Errorf("got the conditions %s (%w)", text, err)
		}
		return nil
	})
	t.Run("Tokens", func(t *testing.T) { e.tokens(t, c) })
}

// tokens requests the metrics with bearer tokens: with that of the user in the values, and with another one.
func (e *behindService) tokens(t *testing.T, c *cluster.Cluster) {
	k := testkit.Client(t, c.User)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "monitoring"}}
	testkit.Create(t, k, ns)
	for name, want := range map[string]int{"prometheus": http.StatusOK, "stranger": http.StatusForbidden} {
		testkit.Create(t, k, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: name}})
		token, err := c.Kubectl(t.Context(), "create", "token", name, "--namespace="+ns.Name)
		if err != nil {
			t.Fatal(err)
		}
		got, text, err := e.get(t.Context(), "/metrics", strings.TrimSpace(token))
		if got != want {
			t.Errorf("%s: got %d, want %d (%v)", name, got, want, err)
		}
		if expiry := "assay_certificate_expiration_timestamp_seconds 1"; got == http.StatusOK && !strings.Contains(text, expiry) {
			t.Errorf("the metrics do not say %s…:\n%s", expiry, text)
		}
	}
	if got, _, err := e.get(t.Context(), "/metrics", ""); got != http.StatusUnauthorized {
		t.Errorf("without a token: got %d, want %d (%v)", got, http.StatusUnauthorized, err)
	}
}

// flagsOf returns a NodeFeature whose node has one CPU flag.
func flagsOf(namespace, node, flag string) *nfdv1alpha1.NodeFeature {
	return &nfdv1alpha1.NodeFeature{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: node, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: node}},
		Spec: nfdv1alpha1.NodeFeatureSpec{Features: nfdv1alpha1.Features{
			Flags:      map[string]nfdv1alpha1.FlagFeatureSet{"cpu.cpuid": {Elements: map[string]nfdv1alpha1.Nil{flag: {}}}},
			Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{}, Instances: map[string]nfdv1alpha1.InstanceFeatureSet{},
		}},
	}
}

// podFor returns a pod for the second scheduler that requires a CPU flag. No kubelet runs it, so it has no grace period.
func podFor(namespace, name, flag string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{
			assayv1alpha1.RequiredFeaturesAnnotation: fmt.Sprintf("matchFeatures: [{feature: cpu.cpuid, matchExpressions: {%s: {op: Exists}}}]", flag),
		}},
		Spec: corev1.PodSpec{
			SchedulerName: "assay", TerminationGracePeriodSeconds: ptr.To[int64](0),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, // no kubelet makes the node ready
			Containers:  []corev1.Container{{Name: "c", Image: "example.com/c"}},
		},
	}
}

//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/doctest"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
	"github.com/assay-project/assay/webhook"
)

var update = flag.Bool("update", false, "write what kubectl prints into docs/admission.md; read the diff")

// asManager is set to run the test binary as the manager: the test covers a process with its signals and exit code.
const asManager = "ASSAY_TEST_AS_MANAGER"

func TestMain(m *testing.M) {
	if os.Getenv(asManager) != "" {
		main()
		return
	}
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// process is a running webhook.
type process struct {
	cluster       *cluster.Cluster
	name          string
	namespace     string
	health, serve string // addresses
	metrics       string
}

// startWebhook starts a webhook and waits until the API server calls it.
func startWebhook(t *testing.T, c *cluster.Cluster, args ...string) *process {
	t.Helper()
	p := &process{cluster: c, name: "webhook-" + strings.ToLower(t.Name()), health: testkit.FreeAddress(t), serve: testkit.FreeAddress(t), metrics: testkit.FreeAddress(t)}
	k := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, k)
	p.namespace = namespace
	user := webhookUser(t, c, namespace)
	testkit.WebhookObjects(t, k, namespace, "assay-webhook-cert", webhook.ConfigurationName)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Terminate(context.WithoutCancel(t.Context()), p.name); err != nil && !t.Failed() {
			t.Log(err) // a test may have stopped it
		}
	})
	err = c.Run(t.Context(), cluster.Program{
		Name: p.name, Path: program, Env: []string{asManager + "=1", "GOMEMLIMIT=" + webhookGoal},
		Args: append([]string{
			"webhook", "--kubeconfig=" + user.Kubeconfig, "--namespace=" + namespace,
			"--webhook-url=https://" + p.serve, "--webhook-port=" + testkit.Port(p.serve),
			"--port=" + testkit.Port(p.health), "--metrics-port=" + testkit.Port(p.metrics), "--failure-policy=Fail", "--shutdown-delay=0s",
		}, args...),
		Ready: func(ctx context.Context) error {
			_, err := testkit.Get(ctx, "http://"+p.health+"/readyz")
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the API server asks the webhook", func(ctx context.Context) error {
		if err := k.Create(ctx, object(t, broken), client.DryRunAll); !apierrors.IsInvalid(err) {
			return fmt.Errorf("a broken rule is not refused yet: %w", err)
		}
		return nil
	})
	return p
}

// webhookUser returns a user with the permissions that the documentation lists for the webhook, and no others.
func webhookUser(t *testing.T, c *cluster.Cluster, namespace string) *cluster.User {
	t.Helper()
	user, err := c.NewUser("webhook-" + namespace)
	if err != nil {
		t.Fatal(err)
	}
	k := testkit.Client(t, c.User)
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "webhook-" + namespace}}
	read := []string{"list", "watch"}
	cluster := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "webhook-" + namespace},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"},
				Verbs: []string{"patch"}, ResourceNames: []string{webhook.ConfigurationName}},
			{APIGroups: []string{""}, Resources: []string{"namespaces", "nodes"}, Verbs: read},
			{APIGroups: []string{nfdv1alpha1.GroupName}, Resources: []string{"nodefeatures", "nodefeaturerules"}, Verbs: read},
			{APIGroups: []string{assayv1alpha1.GroupName}, Resources: []string{"nodefeatureruletemplates"}, Verbs: read},
			definitionRule,
		},
	}
	meta := metav1.ObjectMeta{Name: "webhook", Namespace: namespace}
	testkit.Create(t, k, cluster)
	testkit.Create(t, k, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: cluster.Name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: cluster.Name},
	})
	testkit.Create(t, k, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "update"}, ResourceNames: []string{"assay-webhook-cert"}}, referencesRule,
	}})
	testkit.Create(t, k, &rbacv1.RoleBinding{
		ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
	})
	return user
}

const (
	broken = `{rules: [{name: a, labels: {a: "{nope}"}}]}`
	whole  = `{rules: [{name: a, labels: {a: b}, matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: Exists}}}]}]}`
)

func object(t testing.TB, spec string) *nfdv1alpha1.NodeFeatureRule {
	t.Helper()
	o := &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{GenerateName: "webhook-test-"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &o.Spec); err != nil {
		t.Fatal(err)
	}
	return o
}

const (
	// burstSize is the number of rules that burst applies.
	burstSize = 200
	// inFlight is the number of concurrent requests. More would test whether this machine can answer them within the API server's
	// timeout.
	inFlight = 16
)

// burst applies rules, half of them invalid, and reports wrong responses.
func burst(t *testing.T, k client.Client) {
	t.Helper()
	var wg sync.WaitGroup
	slots := make(chan struct{}, inFlight)
	for i := range burstSize {
		spec, invalid := whole, i%2 == 1
		if invalid {
			spec = broken
		}
		o := object(t, spec)
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			err := k.Create(t.Context(), o, client.DryRunAll)
			if invalid && !apierrors.IsInvalid(err) || !invalid && err != nil {
				t.Errorf("rejected should be %v, got %v", invalid, err)
			}
		})
	}
	wg.Wait()
}

// The certificate and CA are replaced several times while clients apply rules.
func TestRotationLosesNoRequest(t *testing.T) {
	c := testkit.Cluster(t)
	p := startWebhook(t, c, "--cert-life=4s", "--ca-life=8s")
	k := testkit.Client(t, c.User)
	serials := map[string]bool{}
	bursts := 0
	for ; len(serials) < 4 && !t.Failed(); bursts++ {
		var secrets corev1.SecretList
		if err := k.List(t.Context(), &secrets); err != nil {
			t.Fatal(err)
		}
		for _, s := range secrets.Items {
			if s.Name == "assay-webhook-cert" {
				serials[string(s.Data[corev1.TLSCertKey])] = true
			}
		}
		burst(t, k)
	}
	t.Logf("%d reviews over %d certificates", burstSize*bursts, len(serials))
	metrics, err := testkit.Get(t.Context(), "http://"+p.metrics+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`assay_webhook_reviews_total{resource="nodefeaturerules",verdict="denied"}`,
		`assay_webhook_reviews_total{resource="nodefeaturerules",verdict="allowed"}`,
		`assay_webhook_review_duration_seconds_bucket{resource="nodefeaturerules",le="0.001"}`,
		"assay_certificate_expiration_timestamp_seconds 1", `assay_build_info{component="webhook",`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if strings.Contains(metrics, `verdict="failed"`) {
		t.Error("a review failed")
	}
}

// A replica that is shutting down is not ready, but continues to answer until no more requests arrive.
func TestEndingLosesNoRequest(t *testing.T) {
	c := testkit.Cluster(t)
	p := startWebhook(t, c, "--shutdown-delay=1h") // longer than any machine takes for the requests; a second signal ends it
	k := testkit.Client(t, c.User)
	ended := make(chan error, 1)
	go func() { ended <- c.Terminate(context.WithoutCancel(t.Context()), p.name) }()
	testkit.Eventually(t, "the replica is not ready", func(ctx context.Context) error {
		if _, err := testkit.Get(ctx, "http://"+p.health+"/readyz"); err == nil {
			return errors.New("it is ready")
		}
		return nil
	})
	burst(t, k)
	select {
	case err := <-ended:
		t.Fatalf("it ended within the delay: %v\n%s", err, c.Log(p.name))
	default:
	}
	if err := c.Terminate(context.WithoutCancel(t.Context()), p.name); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	err := k.Create(t.Context(), object(t, whole), client.DryRunAll)
	if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("with the failure policy Fail and no webhook, got %v, want an error", err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "bystander-"}}
	if err := k.Create(t.Context(), node, client.DryRunAll); err != nil {
		t.Errorf("what is not ours must not depend on the webhook: %v", err)
	}
}

// An object with the maximum number of rules is reviewed, also in an update, where the API server first compares both versions.
// Changes to labels and annotations are not sent to the webhook.
func TestTheLargestObjectIsReviewed(t *testing.T) {
	c := testkit.Cluster(t)
	p := startWebhook(t, c)
	k := testkit.Client(t, c.User)
	o := &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{GenerateName: "largest-"}}
	matcher := object(t, whole).Spec.Rules[0].MatchFeatures
	for i := range 256 {
		o.Spec.Rules = append(o.Spec.Rules, nfdv1alpha1.Rule{
			Name: fmt.Sprintf("r%d", i), MatchFeatures: matcher,
			LabelsTemplate: fmt.Sprintf("r%d={{ len .kernel.version }}{{/* %s */}}\n", i, strings.Repeat("x", 300)),
		})
	}
	testkit.Create(t, k, o)
	good := o.DeepCopy()
	o.Spec.Rules[255].Labels = map[string]string{"a": "{nope}"}
	if err := k.Update(t.Context(), o); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.rules[255].labels[a]") {
		t.Errorf("want the broken rule refused, got %v", err)
	}
	before := reviews(t, p)
	good.Annotations = map[string]string{"example.com/a": "b"}
	if err := k.Update(t.Context(), good); err != nil {
		t.Error(err)
	}
	if after := reviews(t, p); after != before {
		t.Errorf("a change of annotations was reviewed:\n%s\n%s", before, after)
	}
}

// reviews returns the metrics with the number of reviews of rules.
func reviews(t *testing.T, p *process) string {
	t.Helper()
	metrics, err := testkit.Get(t.Context(), "http://"+p.metrics+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, `assay_webhook_reviews_total{resource="nodefeaturerules"`) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// By default, the API server accepts rules without a response, so that an unavailable webhook does not block clients.
func TestWithoutAnAnswerRulesPassByDefault(t *testing.T) {
	c := testkit.Cluster(t)
	p := startWebhook(t, c, "--failure-policy=Ignore")
	k := testkit.Client(t, c.User)
	if err := c.Kill(p.name); err != nil {
		t.Fatal(err)
	}
	if err := k.Create(t.Context(), object(t, broken), client.DryRunAll); err != nil {
		t.Error(err)
	}
}

// The installation creates, owns and removes the configurations; the webhook only updates them, and creates nothing.
func TestTheWebhookFillsWhatTheInstallationCreates(t *testing.T) {
	c := testkit.Cluster(t)
	p := startWebhook(t, c)
	k := testkit.Client(t, c.User)
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhook.ConfigurationName}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "assay-webhook-cert"}}
	for _, o := range []client.Object{config, secret} {
		if err := k.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		if len(o.GetLabels()) > 0 || len(o.GetOwnerReferences()) > 0 {
			t.Errorf("%T: a drift for who deploys it: labels %v, owners %v", o, o.GetLabels(), o.GetOwnerReferences())
		}
	}
	if len(config.Webhooks) == 0 || len(secret.Data) == 0 {
		t.Fatal("it is not filled")
	}
	if err := k.Delete(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if err := c.Terminate(t.Context(), p.name); err != nil {
		t.Fatal(err)
	}
	if err := k.Get(t.Context(), client.ObjectKeyFromObject(config), config); !apierrors.IsNotFound(err) {
		t.Errorf("it was created again: %v", err)
	}
}

// A certificate that is not renewed makes the replica unready before it expires, and a new file makes it ready again.
func TestAMountedCertificateIsReplaced(t *testing.T) {
	c := testkit.Cluster(t)
	dir := t.TempDir()
	writeCertificate(t, dir, time.Minute) // of an hour
	p := &process{cluster: c, name: "webhook-mounted", health: testkit.FreeAddress(t), serve: testkit.FreeAddress(t), metrics: testkit.FreeAddress(t)}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Terminate(context.WithoutCancel(t.Context()), p.name) })
	err = c.Run(t.Context(), cluster.Program{
		Name: p.name, Path: program, Env: []string{asManager + "=1"},
		Args: []string{"webhook", "--kubeconfig=" + c.Kubeconfig, "--cert-dir=" + dir, "--shutdown-delay=0s", "--node-warnings=false",
			"--webhook-port=" + testkit.Port(p.serve), "--port=" + testkit.Port(p.health), "--metrics-port=0"},
		Ready: func(ctx context.Context) error {
			_, err := testkit.Get(ctx, "http://"+p.health+"/healthz")
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if said, err := testkit.Get(t.Context(), "http://"+p.health+"/readyz"); err == nil {
		t.Errorf("it is ready: %s", said)
	}
	writeCertificate(t, dir, 50*time.Minute)
	testkit.Eventually(t, "the new certificate is served", func(ctx context.Context) error {
		_, err := testkit.Get(ctx, "http://"+p.health+"/readyz")
		return err
	})
	if _, err := c.Kubectl(t.Context(), "get", "validatingwebhookconfiguration", webhook.ConfigurationName); err == nil {
		t.Error("the webhook writes its configuration although its certificate is mounted")
	}
}

// writeCertificate writes a certificate with a lifetime of one hour, of which left remains.
func writeCertificate(t *testing.T, dir string, left time.Duration) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(left)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotBefore: end.Add(-time.Hour), NotAfter: end}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		corev1.TLSCertKey: {Type: "CERTIFICATE", Bytes: cert}, corev1.TLSPrivateKeyKey: {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// The documentation must show what kubectl prints.
func TestDocumentation(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	for i := range 3 {
		name := fmt.Sprintf("docs-%d", i+1)
		testkit.Node(t, k, name)
		testkit.Create(t, k, published(name))
	}
	startWebhook(t, c, "--enable-taints")
	page, err := doctest.Read("../../docs/admission.md")
	if err != nil {
		t.Fatal(err)
	}
	runner := doctest.Runner{Dir: t.TempDir(), Kubectl: kubectl(t, c)}
	examples, problems := runner.Run(page)
	if *update {
		if err := page.Update(); err != nil {
			t.Fatal(err)
		}
	}
	for _, problem := range problems {
		t.Error(problem)
	}
	if examples < 10 {
		t.Errorf("only %d examples", examples)
	}
}

// published returns the NodeFeature of a node without special hardware.
func published(node string) *nfdv1alpha1.NodeFeature {
	f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{
		Name: node, Namespace: "default", Labels: map[string]string{nfdv1alpha1.NodeNameLabel: node},
	}}
	f.Spec.Features.Attributes = map[string]nfdv1alpha1.AttributeFeatureSet{
		"kernel.version": {Elements: map[string]string{"major": "6", "full": "6.12.0"}},
	}
	f.Spec.Features.Flags = map[string]nfdv1alpha1.FlagFeatureSet{
		"kernel.loadedmodule": {Elements: map[string]nfdv1alpha1.Nil{"ip_tables": {}}},
	}
	f.Spec.Features.Instances = map[string]nfdv1alpha1.InstanceFeatureSet{
		"pci.device": {Elements: []nfdv1alpha1.InstanceFeature{{Attributes: map[string]string{"class": "0200", "vendor": "8086", "device": "1521"}}}},
	}
	return f
}

// kubectl returns a function that runs kubectl in the directory with the files of a page, and returns its output.
func kubectl(t *testing.T, c *cluster.Cluster) func(string, []string, io.Writer) error {
	return func(dir string, args []string, out io.Writer) error {
		cmd := exec.CommandContext(t.Context(), c.Program(kube.Kubectl), append([]string{"--kubeconfig=" + c.Kubeconfig, "--cache-dir=" + filepath.Join(dir, ".cache")}, args...)...)
		cmd.Dir = dir
		var all bytes.Buffer
		cmd.Stdout, cmd.Stderr = &all, &all
		err := cmd.Run()
		for line := range strings.Lines(all.String()) {
			fmt.Fprintln(out, strings.TrimRight(line, " \n"))
		}
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return nil // a rejection, which kubectl has printed
		}
		return err
	}
}

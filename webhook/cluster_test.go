//go:build linux

package webhook_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/certs"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/webhook"
)

// serve runs a webhook with its own certificates and registers it with the API server.
func serve(t *testing.T, c *cluster.Cluster, life time.Duration) *certs.SelfSigned {
	t.Helper()
	return serveWith(t, c, life, nil)
}

// serveWith also uses the given templates, nil for none. With them, objects are allowed if they cannot be reviewed.
func serveWith(t *testing.T, c *cluster.Cluster, life time.Duration, templates compose.Lookup) *certs.SelfSigned {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	var server *webhook.Server
	secret := "assay-webhook-" + strings.ToLower(t.Name())
	testkit.WebhookObjects(t, testkit.Client(t, c.User), "default", secret, webhook.ConfigurationName)
	keeper, err := certs.NewSelfSigned(certs.Options{
		Secrets: client.CoreV1().Secrets("default"), Name: secret,
		IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		Life: life, AuthorityLife: 2 * life, Settle: life / 4,
		Publish: func(ctx context.Context, bundle []byte) error {
			if server.Answers(ctx) != nil {
				return certs.ErrNotYet
			}
			api := client.AdmissionregistrationV1()
			_, err := webhook.Install(ctx, api.ValidatingWebhookConfigurations(), api.MutatingWebhookConfigurations(),
				webhook.ConfigurationOptions{URL: "https://" + server.Addr(), CABundle: bundle, Fail: templates == nil})
			return err
		},
		Report: func(err error) { t.Error(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	server = newServer(t, func(o *webhook.Options) {
		o.Addr, o.GetCertificate = "127.0.0.1:0", keeper.GetCertificate
		if templates != nil {
			o.Known.Templates, o.Known.DefaultTemplate = templates, "default"
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := server.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() { _ = keeper.Run(ctx) })
	t.Cleanup(func() { // before WebhookObjects deletes the configurations, which the keeper could write at that moment
		cancel()
		wg.Wait()
	})
	err = cluster.WaitFor(t.Context(), "the webhook to be asked", func(ctx context.Context) error {
		err := create(ctx, c, ruleYAML(`{rules: [{name: probe, labels: {a: "{nope}"}}]}`))
		if !apierrors.IsInvalid(err) {
			return fmt.Errorf("a broken rule is not refused yet: %w", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keeper
}

// create creates an object in dry-run mode.
func create(ctx context.Context, c *cluster.Cluster, manifest string) error {
	client, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), object); err != nil {
		return err
	}
	_, err = client.Resource(nfdv1alpha1.NodeFeatureRuleResource).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// once hides the Retry-After header from the client.
type once struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (o once) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

// No review finishes, and the failure policy is Ignore: the API server must get a rejection in time.
func TestAnOverloadedWebhookLetsNoInvalidRulePass(t *testing.T) {
	c := testkit.Cluster(t)
	var overloaded atomic.Bool
	ends := make(chan struct{})
	serveWith(t, c, time.Hour, func(string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
		if overloaded.Load() {
			<-ends
		}
		return &nfdv1alpha1.NodeFeatureRuleSpec{}, nil
	})
	t.Cleanup(func() { close(ends) })
	overloaded.Store(true)
	config := c.RESTConfig()
	config.QPS, config.Burst = -1, 0
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return once{rt} })
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(ruleYAML(`{rules: [{name: probe, labels: {a: "{nope}"}}]}`)), object); err != nil {
				t.Error(err)
				return
			}
			object.SetName(fmt.Sprint("overload-", i))
			_, err := client.Resource(nfdv1alpha1.NodeFeatureRuleResource).Create(t.Context(), object, metav1.CreateOptions{})
			if !apierrors.IsTooManyRequests(err) {
				t.Errorf("rule %d: got %v, want 429", i, err)
			}
		})
	}
	wg.Wait()
	list, err := client.Resource(nfdv1alpha1.NodeFeatureRuleResource).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("%d invalid rules are stored (%v)", len(list.Items), err)
	}
}

// Users see the message of the review; the CRD schema may reject the object first.
func TestUsersSeeWhatIsWrong(t *testing.T) {
	c := testkit.Cluster(t)
	serve(t, c, time.Hour)
	out, err := c.Kubectl(t.Context(), "apply", "--dry-run=server", "--warnings-as-errors", "-f", abs(t, "testdata/good"))
	if err != nil {
		t.Errorf("good rules: %v\n%s", err, out)
	}
	if _, err := c.Kubectl(t.Context(), "create", "namespace", "x"); err != nil {
		t.Log(err) // exists from an earlier run
	}
	out, err = c.Kubectl(t.Context(), "apply", "--dry-run=server", "--validate=false", "-f", abs(t, "testdata/wrong"))
	for _, file := range list(t, "testdata/wrong/*.yaml") {
		refused := strings.HasPrefix(string(read(t, file)), "# refused")
		created := strings.Contains(out, "/"+name(file)+" created (server dry run)")
		if refused == created {
			t.Errorf("%s: refused should be %v", name(file), refused)
		}
	}
	if dir := os.Getenv("ASSAY_TRANSCRIPT"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, "apply.txt"), []byte(fmt.Sprint(out, err)), 0o600); err != nil {
			t.Error(err)
		}
	}
}

// rotationLife is short enough for three rotations, and long enough that a loaded machine completes each before a certificate
// expires.
const rotationLife = 10 * time.Second

// inFlight is the number of concurrent requests. More would only test whether the machine can answer them within the webhook
// timeout of the API server.
const inFlight = 16

// TestNoReviewIsLostWhileCertificatesRotate applies rules while certificate and authority are replaced: each client gets the right
// response.
func TestNoReviewIsLostWhileCertificatesRotate(t *testing.T) {
	c := testkit.Cluster(t)
	keeper := serve(t, c, rotationLife)
	good := ruleYAML(`{rules: [{name: a, labels: {a: b}, matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: Exists}}}]}]}`)
	bad := ruleYAML(`{rules: [{name: a, labels: {a: "{nope}"}}]}`)
	config := c.RESTConfig()
	config.QPS, config.Burst = -1, 0
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	post := func(ctx context.Context, manifest string) error {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(manifest), object); err != nil {
			return err
		}
		_, err := client.Resource(nfdv1alpha1.NodeFeatureRuleResource).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	serials := map[string]bool{}
	var reviews atomic.Int64
	for len(serials) < 4 && !t.Failed() {
		st, _ := keeper.Status()
		serials[st.Serial] = true
		var wg sync.WaitGroup
		for range inFlight {
			wg.Go(func() {
				for i := range 10 {
					manifest, invalid := good, i%2 == 1
					if invalid {
						manifest = bad
					}
					err := post(t.Context(), manifest)
					for late(err) {
						err = post(t.Context(), manifest)
					}
					if invalid && !apierrors.IsInvalid(err) || !invalid && err != nil {
						t.Errorf("rejected should be %v, got %v", invalid, err)
					}
					reviews.Add(1)
				}
			})
		}
		wg.Wait()
	}
	t.Logf("%d reviews over %d certificates", reviews.Load(), len(serials))
}

// late reports whether the API server gave up a review after the webhook's timeout of two seconds, as on a machine that is too slow. An
// expired certificate, or one that the API server does not know, is another error.
func late(err error) bool {
	return err != nil && strings.Contains(err.Error(), context.DeadlineExceeded.Error())
}

func abs(t *testing.T, path string) string {
	t.Helper()
	p, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

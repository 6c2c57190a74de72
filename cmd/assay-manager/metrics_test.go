//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/assay-project/assay/internal/testkit"
)

// TestSecureMetricsNeedATokenAndARight reads the metrics of a webhook with the permissions in the rendered chart, as clients with
// and without the permission that the chart renders for them.
func TestSecureMetricsNeedATokenAndARight(t *testing.T) {
	c := testkit.Cluster(t)
	p := startWebhook(t, c, "--metrics-secure", "--pprof")
	k := testkit.Client(t, c.User)
	grant := func(role string, subject rbacv1.Subject) {
		name := "secure-" + role
		testkit.Create(t, k, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: fromChart[rbacv1.ClusterRole](t, "ClusterRole", role).Rules})
		testkit.Create(t, k, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{subject},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		})
	}
	token := func(account string) string {
		testkit.Create(t, k, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: account}})
		got, err := kubernetes.NewForConfigOrDie(c.RESTConfig()).CoreV1().ServiceAccounts(p.namespace).
			CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Status.Token
	}
	permitted, other := token("prometheus"), token("other")
	tests := []struct{ name, token, want string }{
		{"no token", "", "401 invalid bearer token"},
		{"a token that is not valid", "guess", "401 invalid bearer token"},
		{"a token without the right", other, "403 the user is not permitted to get /metrics"},
		{"a token with the right", permitted, "200 "},
	}

	// As long as the program may not review tokens, the response only refers to the log.
	testkit.Eventually(t, "metrics are served", func(ctx context.Context) error {
		if got := readMetrics(ctx, "https://"+p.metrics, permitted); !strings.HasPrefix(got, "503 cannot review the bearer token") {
			return fmt.Errorf("without the right to review: got %s", got)
		}
		return nil
	})
	grant("assay-metrics-review", rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "webhook-" + p.namespace})
	grant("assay-metrics-reader", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: p.namespace, Name: "prometheus"})
	testkit.Eventually(t, "the roles are active", func(ctx context.Context) error {
		if got := readMetrics(ctx, "https://"+p.metrics, permitted); !strings.HasPrefix(got, "200 ") {
			return fmt.Errorf("got %s", got)
		}
		return nil
	})
	for _, test := range tests {
		if got := readMetrics(t.Context(), "https://"+p.metrics, test.token); !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: got %.200s, want %s", test.name, got, test.want)
		}
	}
	if got := readMetrics(t.Context(), "http://"+p.metrics, permitted); strings.HasPrefix(got, "200 ") {
		t.Error("metrics are served without TLS")
	}
	if got := readMetrics(t.Context(), "https://"+p.metrics, permitted); !strings.Contains(got, "assay_webhook_reviews_total") {
		t.Errorf("the metrics are not there: %.200s", got)
	} else if strings.Contains(got, "nfd_master_build_info") {
		t.Error("the webhook has a metric that an alert takes for a running controller")
	}
	// Profiles contain what is in memory: the permission to read metrics is not enough.
	const profile = "/debug/pprof/goroutine?debug=1"
	if got := get(t.Context(), "https://"+p.metrics+profile, permitted); !strings.HasPrefix(got, "403 the user is not permitted to get /debug/pprof") {
		t.Errorf("a client that may read metrics gets %.200s", got)
	}
	testkit.Create(t, k, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "profiles-reader"}, Rules: []rbacv1.PolicyRule{{
		NonResourceURLs: []string{"/debug/pprof"}, Verbs: []string{"get"},
	}}})
	testkit.Create(t, k, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "profiles-reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "profiles-reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: p.namespace, Name: "other"}},
	})
	testkit.Eventually(t, "the role is active", func(ctx context.Context) error {
		if got := get(ctx, "https://"+p.metrics+profile, other); !strings.HasPrefix(got, "200 goroutine profile") {
			return fmt.Errorf("got %.200s", got)
		}
		return nil
	})
}

// readMetrics returns the status of /metrics and the body of a response, or the error.
func readMetrics(ctx context.Context, url, token string) string {
	return get(ctx, url+"/metrics", token)
}

// get returns the status and the body of a response, or the error.
func get(ctx context.Context, url, token string) string {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}} // #nosec G402 -- self-signed
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}

func TestMetricsFlagsAreChecked(t *testing.T) {
	for name, test := range map[string]struct {
		flags processFlags
		want  string
	}{
		"NoTLS":         {processFlags{metricsCertDir: "/x"}, "--metrics-cert-dir needs --metrics-secure"},
		"NoCertificate": {processFlags{metricsSecure: true, metricsCertDir: "/nowhere"}, "--metrics-cert-dir: stat /nowhere/tls.crt"},
		"Profiles":      {processFlags{profiles: true}, "--pprof needs --metrics-secure"},
		"SelfSigned":    {processFlags{metricsSecure: true}, ""},
		"Plain":         {processFlags{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := test.flags.metrics()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), test.want)) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}

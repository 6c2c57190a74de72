package doctor

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/cmd/assay/cluster"
)

// A rejection in mutating admission does not prove that the API server can reach the webhook in validating admission.
func TestARejectionByTheEarlyWebhookProvesNothingOfAnother(t *testing.T) {
	service := func(name, bundle string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{
			CABundle: []byte(bundle), Service: &admissionregistrationv1.ServiceReference{Namespace: "assay-system", Name: name},
		}
	}
	address := func(url string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{URL: &url}
	}
	for name, test := range map[string]struct {
		validating, early admissionregistrationv1.WebhookClientConfig
		want              Level
	}{
		"Same server":   {address("https://a:1/review"), address("https://a:1/review/early"), OK},
		"Other address": {address("https://b:1/review"), address("https://a:1/review/early"), Warning},
		"By Service":    {address("https://b:1/review"), service("assay-webhook", "a"), Warning},
	} {
		t.Run(name, func(t *testing.T) {
			e := &examination{c: answering(t, test.validating, test.early)}
			if err := e.webhook(t.Context()); err != nil {
				t.Fatal(err)
			}
			var got []Finding
			for _, f := range e.found {
				if strings.Contains(f.Message, "CA bundle of Mutating") {
					continue // the CA bundle in this test contains no certificate
				}
				got = append(got, f)
			}
			if len(got) != 1 || got[0].Level != test.want {
				t.Errorf("got %v, want one finding of level %s", got, test.want)
			}
		})
	}
	a, b, c := service("assay-webhook", "a"), service("assay-webhook", "b"), service("other", "a")
	if !sameServer(&a, &a) || sameServer(&a, &b) || sameServer(&a, &c) || sameServer(&a, nil) {
		t.Error("another CA bundle or Service counts as the same server")
	}
}

// answering returns a client for an API server whose early webhook rejects the dry run.
func answering(t *testing.T, validating, early admissionregistrationv1.WebhookClientConfig) *cluster.Client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch {
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusBadRequest)
			answer = metav1.Status{Message: `admission webhook "early.rules.assay.dev" denied the request: unknown name`}
		case strings.HasSuffix(r.URL.Path, "/validatingwebhookconfigurations"):
			answer = admissionregistrationv1.ValidatingWebhookConfigurationList{Items: []admissionregistrationv1.ValidatingWebhookConfiguration{{
				ObjectMeta: metav1.ObjectMeta{Name: "assay"},
				Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: rulesHook, ClientConfig: validating}},
			}}}
		case strings.HasSuffix(r.URL.Path, "/mutatingwebhookconfigurations"):
			answer = admissionregistrationv1.MutatingWebhookConfigurationList{Items: []admissionregistrationv1.MutatingWebhookConfiguration{{
				ObjectMeta: metav1.ObjectMeta{Name: "assay"},
				Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: earlyHook, ClientConfig: early}},
			}}}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(s.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], "+
		"clusters: [{name: c, cluster: {server: \""+s.URL+"\"}}]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("doctor", pflag.ContinueOnError)
	f := &cluster.Flags{}
	f.Register(flags)
	if err := flags.Set("kubeconfig", kubeconfig); err != nil {
		t.Fatal(err)
	}
	c, err := f.Connect()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

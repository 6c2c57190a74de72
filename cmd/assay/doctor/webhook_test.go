package doctor

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/assay-project/assay/cmd/assay/internal/cluster"
)

// A rejection in mutating admission does not show that the API server calls the webhook in validating admission: only its warning does.
func TestARejectionByTheEarlyWebhookProvesNothingOfTheOther(t *testing.T) {
	for name, test := range map[string]struct {
		warning string
		want    Level
		text    string
	}{
		"Warned":          {`299 - "spec.rules[0]: the rule has no output"`, OK, "warned about one without outputs"},
		"Silent":          {"", Error, "a dry run of a rule without outputs was accepted without its warning"},
		"AnothersWarning": {`299 - "this API is deprecated"`, Error, "without its warning"},
	} {
		t.Run(name, func(t *testing.T) {
			e := &examination{c: answering(t, test.warning)}
			if err := e.webhook(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(e.found) != 1 || e.found[0].Level != test.want || !strings.Contains(e.found[0].Message, test.text) {
				t.Errorf("got %v, want one finding of level %s with %q", e.found, test.want, test.text)
			}
		})
	}
}

// answering returns a client of an API server whose early webhook rejects an invalid rule, and that answers with a warning to others.
func answering(t *testing.T, warning string) *cluster.Client {
	t.Helper()
	hook := admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://a:1/review")}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch {
		case r.Method == http.MethodPost:
			if rule, _ := io.ReadAll(r.Body); !strings.Contains(string(rule), "assay.dev/doctor") {
				w.Header().Set("Warning", warning)
				w.WriteHeader(http.StatusCreated)
				break
			}
			w.WriteHeader(http.StatusBadRequest)
			answer = metav1.Status{Message: `admission webhook "early.rules.assay.dev" denied the request: unknown name`}
		case strings.HasSuffix(r.URL.Path, "/validatingwebhookconfigurations"):
			answer = admissionregistrationv1.ValidatingWebhookConfigurationList{Items: []admissionregistrationv1.ValidatingWebhookConfiguration{{
				ObjectMeta: metav1.ObjectMeta{Name: "assay"},
				Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: rulesHook, ClientConfig: hook}},
			}}}
		case strings.HasSuffix(r.URL.Path, "/mutatingwebhookconfigurations"):
			answer = admissionregistrationv1.MutatingWebhookConfigurationList{Items: []admissionregistrationv1.MutatingWebhookConfiguration{{
				ObjectMeta: metav1.ObjectMeta{Name: "assay"},
				Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: earlyHook, ClientConfig: hook}},
			}}}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(s.Close)
	return clientOf(t, s.URL)
}

// clientOf returns a client of an API server without authentication.
func clientOf(t *testing.T, url string) *cluster.Client {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], "+
		"clusters: [{name: c, cluster: {server: \""+url+"\"}}]}"), 0o600); err != nil {
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

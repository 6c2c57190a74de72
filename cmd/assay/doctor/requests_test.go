package doctor

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// lists returns an examination of an API server that has these lists, by the end of their path.
func lists(t *testing.T, of map[string]any) *examination {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := of[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(s.Close)
	return &examination{c: clientOf(t, s.URL)}
}

// A configuration that the webhook has not filled does not reject pods: they start without the selector, on any node.
func TestReportsAnEmptyWebhookOfSelectors(t *testing.T) {
	const name = "assay-feature-requests"
	url := admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://a:1/selectors")}
	for test, tc := range map[string]struct {
		items []admissionregistrationv1.MutatingWebhookConfiguration
		want  string
	}{
		"None":  {nil, ""},
		"Other": {[]admissionregistrationv1.MutatingWebhookConfiguration{{ObjectMeta: metav1.ObjectMeta{Name: "other"}}}, ""},
		"Empty": {[]admissionregistrationv1.MutatingWebhookConfiguration{{ObjectMeta: metav1.ObjectMeta{Name: name}}}, "is empty: pods, DaemonSets and Jobs with the label"},
		"Filled": {[]admissionregistrationv1.MutatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.MutatingWebhook{{ClientConfig: url}},
		}}, ""},
		"NoBundle": {[]admissionregistrationv1.MutatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.MutatingWebhook{{}},
		}}, "MutatingWebhookConfiguration assay-feature-requests has no CA bundle"},
	} {
		t.Run(test, func(t *testing.T) {
			e := lists(t, map[string]any{"mutatingwebhookconfigurations": admissionregistrationv1.MutatingWebhookConfigurationList{Items: tc.items}})
			if err := e.selectors(t.Context()); err != nil {
				t.Fatal(err)
			}
			e.shows(t, Error, tc.want)
		})
	}
}

// The webhook warns when such a rule is applied; the class can be created later.
func TestReportsResourcesThatADeviceClassClaims(t *testing.T) {
	class := func(resource string) any {
		return resourcev1.DeviceClassList{Items: []resourcev1.DeviceClass{{
			ObjectMeta: metav1.ObjectMeta{Name: "gpus"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: &resource},
		}}}
	}
	rules := nfdv1alpha1.NodeFeatureRuleList{Items: []nfdv1alpha1.NodeFeatureRule{{
		ObjectMeta: metav1.ObjectMeta{Name: "licenses"},
		Spec: nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{
			{ExtendedResources: map[string]string{"example.com/gpu": "1", "seats": "2"}},
		}},
	}}}
	for resource, want := range map[string]string{
		"example.com/gpu":                  "NodeFeatureRule licenses writes the extended resource example.com/gpu, which DeviceClass gpus claims",
		"feature.node.kubernetes.io/seats": "writes the extended resource seats, which DeviceClass gpus claims",
		"example.com/other":                "",
	} {
		e := lists(t, map[string]any{"deviceclasses": class(resource), "nodefeaturerules": rules})
		if err := e.claims(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.shows(t, Warning, want)
	}
	e := lists(t, nil) // before Kubernetes 1.34
	if err := e.claims(t.Context()); err != nil || len(e.found) > 0 {
		t.Errorf("a cluster without DeviceClasses: %v, %v", e.found, err)
	}
}

// shows checks that the examination found one thing of this level with this message; empty: nothing.
func (e *examination) shows(t *testing.T, level Level, want string) {
	t.Helper()
	if want == "" {
		if len(e.found) > 0 {
			t.Errorf("found %v", e.found)
		}
		return
	}
	if len(e.found) != 1 || e.found[0].Level != level || !strings.Contains(e.found[0].Message, want) {
		t.Errorf("found %v, want %q", e.found, want)
	}
}

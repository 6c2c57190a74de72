package webhook_test

import (
	"context"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/assay-project/assay/webhook"
)

// validatings and mutatings store how often a configuration was patched; one that is not in them does not exist.
type (
	validatings map[string]int64
	mutatings   map[string]int64
)

func patched(known map[string]int64, kind, name string) (metav1.ObjectMeta, error) {
	if _, ok := known[name]; !ok {
		return metav1.ObjectMeta{}, apierrors.NewNotFound(schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: kind}, name)
	}
	known[name]++
	return metav1.ObjectMeta{Name: name, Generation: known[name]}, nil
}

func (v validatings) Patch(_ context.Context, name string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	meta, err := patched(v, "validatingwebhookconfigurations", name)
	return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta}, err
}

func (m mutatings) Patch(_ context.Context, name string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	meta, err := patched(m, "mutatingwebhookconfigurations", name)
	return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta}, err
}

// TestMissingConfigurationHidesNoOther: Install stopped at the first configuration that was missing, and left the others without the CA.
func TestMissingConfigurationHidesNoOther(t *testing.T) {
	validating := validatings{webhook.ConfigurationName: 6}
	mutating := mutatings{webhook.SchedulingConfigurationName: 4}
	written, err := webhook.Install(t.Context(), validating, mutating, webhook.ConfigurationOptions{Scheduling: true})
	for _, missing := range []string{`validatingwebhookconfigurations.admissionregistration.k8s.io "assay-scheduling" not found`,
		`mutatingwebhookconfigurations.admissionregistration.k8s.io "assay" not found`} {
		if err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("the error does not name %s: %v", missing, err)
		}
	}
	if len(written) != 2 || written["ValidatingWebhookConfiguration assay"] != 7 || written["MutatingWebhookConfiguration assay-scheduling"] != 5 {
		t.Errorf("it has updated %v", written)
	}
}

// TestNamespacesRestrictTheReviewsOfPods: --webhook-namespaces adds its terms to those of the scheduling webhooks, and to no other.
func TestNamespacesRestrictTheReviewsOfPods(t *testing.T) {
	o := webhook.ConfigurationOptions{Namespace: "assay-system", Service: "assay-webhook", TimeoutSeconds: 7, Namespaces: &metav1.LabelSelector{
		MatchLabels: map[string]string{"team": "a"},
	}}
	mutating, validating := webhook.SchedulingConfigurations(o)
	for _, s := range []*metav1.LabelSelector{mutating.Webhooks[0].NamespaceSelector, mutating.Webhooks[1].NamespaceSelector, validating.Webhooks[0].NamespaceSelector} {
		if s.MatchLabels["team"] != "a" || len(s.MatchExpressions) == 0 {
			t.Errorf("a webhook has the selector %v", s)
		}
	}
	for _, h := range webhook.Configuration(o).Webhooks {
		if h.NamespaceSelector != nil || *h.TimeoutSeconds != 7 {
			t.Errorf("%s has the selector %v and the timeout %d", h.Name, h.NamespaceSelector, *h.TimeoutSeconds)
		}
	}
}

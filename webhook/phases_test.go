package webhook_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/webhook"
)

// admit sends a manifest to a path as an API server does and returns the response.
func admit(t *testing.T, h http.Handler, path, manifest string) *admissionv1.AdmissionResponse {
	t.Helper()
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request:  request(t, []byte(manifest)),
	})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var out admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || out.Response == nil {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return out.Response
}

// Both phases of admission need one review of a rule: its templates are read once. Another spec, another name and another apply get
// a review of their own.
func TestTheReviewOfMutatingAdmissionServesValidatingAdmission(t *testing.T) {
	const based = `{basedOn: [{name: base}], rules: [{name: a, labels: {a: "1"}}]}`
	read := 0
	h := newServer(t, func(o *webhook.Options) {
		o.Known.AllTemplates = true
		o.Known.Templates = func(string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) { read++; return nil, nil }
	}).Handler()
	for _, step := range []struct {
		name, path, manifest string
		reads                int
	}{
		{"Mutating", webhook.EarlyReviewPath, ruleYAML(based), 1},
		{"AnotherSpec", webhook.ReviewPath, ruleYAML(strings.Replace(based, `"1"`, `"2"`, 1)), 1},
		{"AnotherName", webhook.ReviewPath, strings.Replace(ruleYAML(based), "name: r}", "name: other}", 1), 1},
		{"Validating", webhook.ReviewPath, ruleYAML(based), 0},
		{"ValidatingAgain", webhook.ReviewPath, ruleYAML(based), 1},
	} {
		before := read
		got := admit(t, h, step.path, step.manifest)
		if !got.Allowed {
			t.Errorf("%s: rejected: %s", step.name, got.Result.Message)
		}
		if warned := len(got.Warnings) > 0; warned != (step.path == webhook.ReviewPath) {
			t.Errorf("%s: warnings %q", step.name, got.Warnings)
		}
		if n := read - before; n != step.reads {
			t.Errorf("%s: %d reads of templates, want %d", step.name, n, step.reads)
		}
	}
}

// What a review that is used again says does not depend on the phase.
func TestPhasesFindTheSame(t *testing.T) {
	for _, file := range append(list(t, "testdata/wrong/*.yaml"), list(t, "testdata/good/*.yaml")...) {
		manifest := string(read(t, file))
		alone, both := newServer(t, nil).Handler(), newServer(t, nil).Handler()
		want := admit(t, alone, webhook.ReviewPath, manifest)
		if first := admit(t, both, webhook.EarlyReviewPath, manifest); first.Allowed != want.Allowed {
			t.Errorf("%s: mutating admission allows it: %v, validating admission: %v", file, first.Allowed, want.Allowed)
		}
		got := admit(t, both, webhook.ReviewPath, manifest)
		if got.Allowed != want.Allowed || !slices.Equal(got.Warnings, want.Warnings) {
			t.Errorf("%s: got %v %q, want %v %q", file, got.Allowed, got.Warnings, want.Allowed, want.Warnings)
		}
	}
}

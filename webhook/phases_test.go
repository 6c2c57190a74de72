package webhook_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// TestPhasesFindTheSame: mutating admission rejects what validating admission rejects.
func TestPhasesFindTheSame(t *testing.T) {
	for _, file := range append(list(t, "testdata/wrong/*.yaml"), list(t, "testdata/good/*.yaml")...) {
		manifest := string(read(t, file))
		h := newServer(t, nil).Handler()
		early, late := admit(t, h, webhook.EarlyReviewPath, manifest), admit(t, h, webhook.ReviewPath, manifest)
		if early.Allowed != late.Allowed {
			t.Errorf("%s: mutating admission allows it: %v, validating admission: %v", file, early.Allowed, late.Allowed)
		}
	}
}

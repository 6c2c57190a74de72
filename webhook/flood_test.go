package webhook_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/assay-project/assay/webhook"
)

// updateOfFeature returns the request of an update of a NodeFeature from few bytes to more than n.
func updateOfFeature(n int) *admissionv1.AdmissionRequest {
	object := func(value string) runtime.RawExtension {
		return runtime.RawExtension{Raw: []byte(`{"apiVersion":"nfd.k8s-sigs.io/v1alpha1","kind":"NodeFeature",
  "metadata":{"name":"n","namespace":"default","labels":{"nfd.node.kubernetes.io/node-name":"n"}},
  "spec":{"features":{"attributes":{"a.b":{"elements":{"c":"` + value + `"}}}}}}`)}
	}
	return &admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Update, Namespace: "default", Name: "n",
		Kind:     metav1.GroupVersionKind{Group: "nfd.k8s-sigs.io", Version: "v1alpha1", Kind: "NodeFeature"},
		Resource: metav1.GroupVersionResource{Group: "nfd.k8s-sigs.io", Version: "v1alpha1", Resource: "nodefeatures"},
		Object:   object(strings.Repeat("x", n)), OldObject: object("x"),
	}
}

// TestReviewsOfFeaturesDelayNoRule fills the webhook with reviews of NodeFeatures that do not end, by number and by memory. A small rule is
// reviewed, and a large one is rejected: with failure policy Ignore, an HTTP error would store it.
func TestReviewsOfFeaturesDelayNoRule(t *testing.T) {
	for name, size := range map[string]int{"Number": 100, "Memory": 6 << 20} {
		t.Run(name, func(t *testing.T) {
			ends, entered := make(chan struct{}), make(chan struct{}, 100)
			h := newServer(t, func(o *webhook.Options) {
				o.FeatureRoom = func(string, string, string, int) error {
					entered <- struct{}{}
					<-ends
					return nil
				}
			}).Handler()
			var flood sync.WaitGroup
			for range 16 {
				flood.Go(func() { post(t, h, updateOfFeature(size)) })
			}
			<-entered
			<-entered // the minimum number of reviews at a time; the others wait
			code, answer := post(t, h, request(t, []byte(ruleYAML(`{rules: [{name: broken, labels: {a: "{nope}"}}]}`))))
			if code != http.StatusOK || answer.Response.Allowed || !strings.Contains(answer.Response.Result.Message, "nope") {
				t.Errorf("a small rule is not reviewed: %d %+v", code, answer)
			}
			large := strings.Repeat("x", 600_000)
			code, answer = post(t, h, request(t, []byte(ruleYAML(`{rules: [{name: broken, labels: {a: "{nope}", b: "`+large+`"}}]}`))))
			if code != http.StatusOK || answer.Response.Allowed {
				t.Errorf("a large rule passes: %d %+v", code, answer)
			}
			close(ends)
			flood.Wait()
		})
	}
}

// TestAReviewWithoutAnObjectIsRefused: only a request to delete an object has none.
func TestAReviewWithoutAnObjectIsRefused(t *testing.T) {
	s := newServer(t, nil)
	for operation, allowed := range map[admissionv1.Operation]bool{admissionv1.Create: false, admissionv1.Update: false, admissionv1.Delete: true} {
		req := request(t, []byte(ruleYAML(`{rules: [{name: a, labels: {a: "1"}}]}`)))
		req.Operation = operation
		for _, raw := range [][]byte{nil, []byte("null")} {
			req.Object.Raw = raw
			if got := s.Review(t.Context(), req); got.Allowed != allowed {
				t.Errorf("%s of the object %q: allowed %t, want %t: %+v", operation, raw, got.Allowed, allowed, got.Result)
			}
		}
	}
}

package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/webhook"
)

// post sends a review of validating admission like an API server with a timeout of one second.
func post(t *testing.T, h http.Handler, req *admissionv1.AdmissionRequest) (code int, answer *admissionv1.AdmissionReview) {
	t.Helper()
	return postTo(t, h, webhook.ReviewPath, req)
}

// postTo is like post for any path.
func postTo(t *testing.T, h http.Handler, path string, req *admissionv1.AdmissionRequest) (code int, answer *admissionv1.AdmissionReview) {
	t.Helper()
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}, Request: req,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, path+"?timeout=1s", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code == http.StatusOK {
		answer = &admissionv1.AdmissionReview{}
		if err := json.Unmarshal(w.Body.Bytes(), answer); err != nil {
			t.Fatal(err)
		}
	}
	return w.Code, answer
}

// TestReviewsThatCannotBeFinishedAreRejected sends more reviews than can run, none of which finishes. With failure policy Ignore,
// an HTTP error would accept all of them.
func TestReviewsThatCannotBeFinishedAreRejected(t *testing.T) {
	ends := make(chan struct{})
	h := newServer(t, func(o *webhook.Options) {
		o.Known.DefaultTemplate = "slow"
		o.Known.Templates = func(string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
			<-ends
			return nil, nil
		}
	}).Handler()
	t.Cleanup(func() { close(ends) }) // after the reviews, which run in parallel
	large := strings.Repeat("x", 100_000)
	for i := range 60 { // far more than can run at the same time
		req := request(t, []byte(ruleYAML(`{rules: [{name: a, labels: {a: "`+large[:1500*i]+`"}}]}`)))
		t.Run("", func(t *testing.T) {
			t.Parallel()
			_, answer := post(t, h, req)
			if answer == nil || answer.Response == nil {
				t.Fatal("there is no answer")
			}
			r := answer.Response
			if r.Allowed || r.UID != req.UID || r.Result.Code != http.StatusTooManyRequests || r.Result.Details.RetryAfterSeconds != 1 {
				t.Errorf("got %+v", r)
			}
			if want := "the Assay webhook is overloaded and could not review the object in time; try again, and if that fails too, increase webhook.timeoutSeconds"; r.Result.Message != want {
				t.Errorf("the user reads %q, want %q", r.Result.Message, want)
			}
		})
	}
	pod := &admissionv1.AdmissionRequest{UID: "pod"}
	pod.Resource.Version, pod.Resource.Resource = "v1", "pods"
	t.Run("PodsPass", func(t *testing.T) {
		t.Parallel()
		if code, answer := post(t, h, pod); code == http.StatusOK && !answer.Response.Allowed {
			t.Errorf("a pod is rejected: %+v", answer.Response)
		}
	})
}

// TestAnEarlyReviewThatCannotBeFinishedIsLeftToTheOther: mutating admission has half the time, and a rule that takes longer than that could
// never be applied.
func TestAnEarlyReviewThatCannotBeFinishedIsLeftToTheOther(t *testing.T) {
	var again atomic.Bool // the second review finishes
	ends := make(chan struct{})
	h := newServer(t, func(o *webhook.Options) {
		o.Known.DefaultTemplate = "slow"
		o.Known.Templates = func(string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
			if !again.Swap(true) {
				<-ends
			}
			return &nfdv1alpha1.NodeFeatureRuleSpec{}, nil
		}
	}).Handler()
	t.Cleanup(func() { close(ends) })
	broken := request(t, []byte(ruleYAML(`{rules: [{name: broken, labels: {a: "{nope}"}}]}`)))
	if code, answer := postTo(t, h, webhook.EarlyReviewPath, broken); code != http.StatusOK || !answer.Response.Allowed || answer.Response.UID != broken.UID {
		t.Errorf("mutating admission: %d %+v", code, answer)
	}
	if code, answer := post(t, h, broken); code != http.StatusOK || answer.Response.Allowed || !strings.Contains(answer.Response.Result.Message, "nope") {
		t.Errorf("validating admission: %d %+v", code, answer)
	}
}

// TestThePreviewLeavesTimeForTheAnswer: a valid rule is not rejected because its warnings about nodes take too long.
func TestThePreviewLeavesTimeForTheAnswer(t *testing.T) {
	var end time.Time
	s := newServer(t, func(o *webhook.Options) {
		o.Cluster = previewer(func(ctx context.Context) { end, _ = ctx.Deadline() })
	})
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	s.Review(ctx, request(t, []byte(ruleYAML(`{rules: [{name: a, labels: {a: "1"}}]}`))))
	if late, _ := ctx.Deadline(); end.IsZero() || !end.Before(late) {
		t.Errorf("the preview may take until %v, and the review until %v", end, late)
	}
}

// previewer is a cluster that calls a function with the context of a preview.
type previewer func(context.Context)

func (f previewer) Preview(ctx context.Context, _ *rules.RuleSet) (webhook.Preview, bool) {
	f(ctx)
	return webhook.Preview{}, false
}

func TestRulesWithoutRoomAreRejected(t *testing.T) {
	room, now := 5000, 0
	s := newServer(t, func(o *webhook.Options) {
		o.Room = func(name string) (int, int) {
			if name != "r" {
				t.Errorf("asked for %q", name)
			}
			return room, now
		}
	})
	small := ruleYAML(`{rules: [{name: a, labels: {a: "1"}}]}`)
	large := ruleYAML(`{rules: [{name: a, labels: {a: "1", b: "1", c: "1", d: "1", e: "1", f: "1"}}]}`)
	if got := s.Review(t.Context(), request(t, []byte(small))); !got.Allowed {
		t.Errorf("there is room, and it is rejected: %+v", got.Result)
	}
	got := s.Review(t.Context(), request(t, []byte(large)))
	const want = "spec.rules: Forbidden: take 5112 bytes of memory when they are compiled, and the other rules of the cluster leave 5000 of 16777216 bytes; delete"
	if got.Allowed || !strings.Contains(got.Result.Message, want) {
		t.Errorf("got %+v, want %s", got.Result, want)
	}
	room, now = -1, rules.MaxSize
	if got := s.Review(t.Context(), update(t, large, small)); !got.Allowed {
		t.Errorf("it becomes smaller, and is rejected: %+v", got.Result)
	}
}

package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

const (
	// answerMargin is the time before the API server gives up at which a review is answered, finished or not; of short deadlines it is a
	// quarter. An answer that is late does not count, and an unreviewed object passes where the configuration says Ignore.
	answerMargin = 500 * time.Millisecond
)

// turnAway answers a request whose review has failed. If the server is overloaded it rejects the object: an HTTP error is a failed
// call, which lets the object pass where the configuration says Ignore. Pods and workloads of others may pass: without a review they
// are scheduled without the features they ask for, while a rejection would stop everything that makes pods.
func (s *Server) turnAway(w http.ResponseWriter, body []byte, err error, start time.Time) {
	h := (*httpError)(nil)
	if errors.As(err, &h) && h.code == http.StatusServiceUnavailable {
		if review := headOf(body); review != nil {
			s.reply(context.Background(), w, review, tooMany(review.Request), start)
			return
		}
	}
	s.fail(w, err, start)
}

// tooMany rejects a request that there is no time for. Clients of the API server try again by themselves.
func tooMany(req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: req.UID, Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
		Message: "the Assay webhook is overloaded and could not review the object in time; try again",
		Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
	}}
}

// headOf returns what the beginning of a body says about a review of one of our kinds; nil if it does not say which review it is.
func headOf(body []byte) *admissionv1.AdmissionReview {
	review := &admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{}}
	review.APIVersion, review.Kind = admissionv1.SchemeGroupVersion.String(), "AdmissionReview"
	d := json.NewDecoder(bytes.NewReader(body))
	if !enter(d, "request") {
		return nil
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil
		}
		switch key {
		case "uid":
			var uid string
			err = d.Decode(&uid)
			review.Request.UID = types.UID(uid)
		case "resource":
			err = d.Decode(&review.Request.Resource)
		default:
			var skip json.RawMessage
			err = d.Decode(&skip)
		}
		if group := review.Request.Resource.Group; err != nil || group != "" {
			ours := group == nfdv1alpha1.GroupName || group == assayv1alpha1.GroupName
			if review.Request.UID == "" || !ours {
				return nil
			}
			return review
		}
	}
	return nil
}

// enter moves a decoder into the object under a key.
func enter(d *json.Decoder, name string) bool {
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return false
		}
		if key == name {
			t, err := d.Token()
			return err == nil && t == json.Delim('{')
		}
		var skip json.RawMessage
		if d.Decode(&skip) != nil {
			return false
		}
	}
	return false
}

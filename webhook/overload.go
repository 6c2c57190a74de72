package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

const (
	// answerMargin is the time before the API server's timeout at which a review is answered, whether it has finished or not; for
	// short timeouts it is a half. A late response does not count, and with failure policy Ignore an unreviewed object is accepted. On a
	// machine with too few processors, an answer takes hundreds of milliseconds until it has arrived.
	answerMargin = time.Second
	// headSize is the number of bytes in which the head of a review is: API servers write the objects last.
	headSize = 4 << 10
	// headTime is the time in which these bytes must arrive.
	headTime = 100 * time.Millisecond
)

// isBulk reports whether a review is large, or of what nodes publish: there are as many of these as nodes.
func isBulk(body []byte) bool {
	if len(body) > reviewChunk {
		return true
	}
	head := headOf(body)
	return head != nil && (head.Request.Resource.Resource == "nodefeatures" || head.Request.Resource.Resource == "nodefeaturesets")
}

// readHead reads the beginning of a body that does not fit into memory.
func readHead(w http.ResponseWriter, r *http.Request) []byte {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(headTime)) // only writers in tests do not support it
	head := make([]byte, headSize)
	n, _ := io.ReadFull(r.Body, head)
	return head[:n]
}

// turnAway answers a request whose review has failed. If the server is overloaded, turnAway rejects the object: an HTTP error would
// be a failed call, after which failure policy Ignore accepts the object. Pods and workloads are accepted: without a review they
// are scheduled without the required features, while a rejection would block everything that creates pods.
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

// tooMany rejects a request because of overload. Clients of the API server retry automatically.
func tooMany(req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: req.UID, Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
		Message: "the Assay webhook is overloaded and could not review the object in time; try again, " +
			"and if that fails too, increase webhook.timeoutSeconds",
		Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
	}}
}

// headOf returns the metadata of a review from the beginning of its body; nil if it is not for one of our kinds or has no UID.
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

// enter moves a decoder into the object at a key.
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

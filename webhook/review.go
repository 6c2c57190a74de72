package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"runtime/debug"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/assay-project/assay/internal/intake"
)

// defaultDeadline is the maximum duration of a review whose request has no timeout.
const defaultDeadline = 10 * time.Second

// httpError writes the response to a request that is not a review.
type httpError struct {
	code int
	text string
}

func (e *httpError) Error() string { return e.text }

func badRequest(format string, args ...any) error {
	return &httpError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// serveReview reads an AdmissionReview and writes the response. For other bodies it writes an HTTP error that describes what was
// expected and contains nothing of the request.
func (s *Server) serveReview(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	limit := deadline(r)
	ctx, cancel := context.WithTimeout(r.Context(), limit-min(answerMargin, limit/2))
	defer cancel()
	switch r.URL.Path {
	case EarlyReviewPath:
		ctx = context.WithValue(ctx, earlyKey{}, true)
	case SelectorPath:
		ctx = context.WithValue(ctx, selectorKey{}, true)
	}
	body, release, err := s.read(ctx, w, r)
	if err != nil {
		s.turnAway(w, body, err, start)
		return
	}
	defer intake.Arrived(ctx)()
	review, response, err := s.answer(ctx, w, body, release)
	if err != nil {
		s.turnAway(w, body, err, start)
		return
	}
	s.reply(ctx, w, review, response, start)
}

// reply writes a review as the response.
func (s *Server) reply(ctx context.Context, w http.ResponseWriter, review *admissionv1.AdmissionReview, response *admissionv1.AdmissionResponse, start time.Time) {
	w.Header().Set("Content-Type", "application/json")
	err := json.NewEncoder(w).Encode(&admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: response})
	if err != nil {
		s.opts.Report(fmt.Errorf("answer a review: %w", err))
	}
	if !early(ctx) || !response.Allowed { // an allowed object is reviewed again in validating admission
		s.opts.Observe(s.kind(review.Request), result(response), time.Since(start))
	}
}

// earlyKey marks the context of a review in mutating admission, which runs before the API server validates the schema.
type earlyKey struct{}

// selectorKey marks the context of a review that only adds labels of requests to node selectors.
type selectorKey struct{}

// early reports whether this is the review in mutating admission: it rejects the same objects as the other review, and has warnings
// for these only.
func early(ctx context.Context) bool { return ctx.Value(earlyKey{}) != nil }

// answer reviews a body when its turn comes. A review that runs when its time ends continues, keeps its turn and memory, and its result is
// dropped: the object is rejected, or in mutating admission allowed, since validating admission has more time for it. The limits of the
// parts and of the compiled size of an object bound how long that can take.
func (s *Server) answer(ctx context.Context, w http.ResponseWriter, body []byte, release func()) (*admissionv1.AdmissionReview, *admissionv1.AdmissionResponse, error) {
	turns := s.turns
	if isBulk(body) {
		turns = s.bulk
	}
	if err := turns.Acquire(ctx, 1); err != nil {
		release()
		return nil, nil, overloaded(w)
	}
	type answer struct {
		review   *admissionv1.AdmissionReview
		response *admissionv1.AdmissionResponse
		err      error
	}
	done := make(chan answer, 1)
	go func() {
		defer release()
		defer turns.Release(1)
		var a answer
		if a.review, a.err = decodeReview(body); a.err == nil {
			a.response = s.Review(ctx, a.review.Request)
		}
		done <- a
	}()
	select {
	case a := <-done:
		return a.review, a.response, a.err
	case <-ctx.Done():
		if review := headOf(body); early(ctx) && review != nil {
			return review, &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}, nil
		}
		return nil, nil, overloaded(w)
	}
}

// overloaded writes the response to a client whose review could not start in time.
func overloaded(w http.ResponseWriter) error {
	w.Header().Set("Retry-After", "1")
	return &httpError{http.StatusServiceUnavailable, "too many reviews at once"}
}

// Review reviews one request. It does not panic for any request.
func (s *Server) Review(ctx context.Context, req *admissionv1.AdmissionRequest) (response *admissionv1.AdmissionResponse) {
	defer func() {
		if p := recover(); p != nil {
			s.opts.Report(fmt.Errorf("review of %s: %v\n%s", req.Resource.Resource, p, debug.Stack()))
			response = internal(req, errors.New("the review failed; see Assay's log"))
		}
	}()
	list := s.reviewers
	if ctx.Value(selectorKey{}) != nil {
		list = s.selectors
	}
	review, ok := list[resource{req.Resource.Group, req.Resource.Resource}]
	if !ok || req.SubResource != "" {
		return &admissionv1.AdmissionResponse{UID: req.UID, Allowed: true} // not one of our kinds: the webhook configuration is too broad
	}
	if (req.Operation == admissionv1.Create || req.Operation == admissionv1.Update) && noObject(req.Object.Raw) {
		return internal(req, errors.New("the AdmissionReview has no object to review"))
	}
	v, err := review(ctx, req)
	if err != nil {
		return internal(req, err)
	}
	if early(ctx) && len(v.Errors) == 0 {
		v.Warnings = nil
	}
	return v.response(req)
}

// noObject reports whether a request has no object.
func noObject(raw []byte) bool { return len(raw) == 0 || string(raw) == "null" }

// kind returns the resource of a request for metrics: "other" for all resources of other groups, since a client can send any name.
func (s *Server) kind(req *admissionv1.AdmissionRequest) string {
	for _, list := range []map[resource]reviewer{s.reviewers, s.selectors} {
		if _, ours := list[resource{req.Resource.Group, req.Resource.Resource}]; ours {
			return req.Resource.Resource
		}
	}
	return "other"
}

// read returns the body of the request within the limits of size and time. Its memory is reserved until release is called.
func (s *Server) read(ctx context.Context, w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, nil, &httpError{http.StatusMethodNotAllowed, "send an AdmissionReview with POST"}
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return nil, nil, &httpError{http.StatusUnsupportedMediaType, "send an AdmissionReview as application/json"}
	}
	switch {
	case r.ContentLength < 0:
		return nil, nil, &httpError{http.StatusLengthRequired, "send the length of the AdmissionReview"}
	case r.ContentLength > maxBody:
		return nil, nil, &httpError{http.StatusRequestEntityTooLarge, fmt.Sprintf("an AdmissionReview has at most %d bytes", maxBody)}
	}
	bodies := s.large
	if r.ContentLength <= reviewChunk {
		bodies = s.small
	}
	body, release, err = bodies.Read(ctx, w, r, nil)
	switch {
	case errors.Is(err, intake.ErrBusy):
		if len(body) == 0 {
			body = readHead(w, r)
		}
		return body, nil, overloaded(w)
	case err != nil:
		return nil, nil, badRequest("the AdmissionReview ended early")
	}
	return body, release, nil
}

// decodeReview decodes an AdmissionReview, without its objects, which share the memory of the body. It only accepts
// admission.k8s.io/v1, which every API server that can serve our CRDs supports.
func decodeReview(body []byte) (*admissionv1.AdmissionReview, error) {
	rest, object, old := openReview(body)
	review := &admissionv1.AdmissionReview{}
	if err := utiljson.Unmarshal(rest, review); err != nil {
		return nil, badRequest("not an AdmissionReview: the body is not JSON of that shape")
	}
	want := admissionv1.SchemeGroupVersion.String()
	if review.Kind != "AdmissionReview" || review.APIVersion != want {
		return nil, badRequest("not an AdmissionReview of %s", want)
	}
	if review.Request == nil || review.Request.UID == "" {
		return nil, badRequest("an AdmissionReview without a request")
	}
	review.Request.Object.Raw, review.Request.OldObject.Raw = object, old
	return review, nil
}

func (s *Server) fail(w http.ResponseWriter, err error, start time.Time) {
	code := http.StatusInternalServerError
	var h *httpError
	if errors.As(err, &h) {
		code = h.code
	}
	http.Error(w, err.Error(), code)
	s.opts.Observe("other", "failed", time.Since(start))
}

// deadline returns the API server's timeout.
func deadline(r *http.Request) time.Duration {
	if d, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil && d > 0 {
		return min(d, writeTimeout)
	}
	return defaultDeadline
}

func internal(req *admissionv1.AdmissionRequest, err error) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: req.UID, Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError,
		Message: err.Error(),
	}}
}

func result(r *admissionv1.AdmissionResponse) string {
	switch {
	case !r.Allowed && r.Result != nil && (r.Result.Code == http.StatusInternalServerError || r.Result.Code == http.StatusTooManyRequests):
		return "failed"
	case !r.Allowed:
		return "denied"
	case len(r.Warnings) > 0:
		return "warned"
	}
	return "allowed"
}

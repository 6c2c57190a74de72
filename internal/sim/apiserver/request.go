package apiserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// call is a parsed request.
type call struct {
	method      string
	resource    *Resource
	namespace   string
	name        string
	subresource string
	query       url.Values
	body        []byte
	object      Object // the body, if it was never encoded
	contentType string
	metadata    bool // the response only contains metadata
	quiet       bool // the response does not contain the object
	by          string
}

// parse parses a request; nil if the path is not that of a resource.
func (s *Server) parse(r *http.Request, by string) (*call, error) {
	c := &call{method: r.Method, query: r.URL.Query(), contentType: r.Header.Get("Content-Type"), by: by}
	c.metadata = strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		c.body = body
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var group, version string
	switch {
	case parts[0] == "api" && len(parts) > 2:
		version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		group, version, parts = parts[1], parts[2], parts[3:]
	default:
		return nil, nil
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		c.namespace, parts = parts[1], parts[2:]
	}
	for _, known := range s.resources {
		if known.Group == group && known.Version == version && known.Name == parts[0] {
			c.resource = known
		}
	}
	if c.resource == nil || len(parts) > 3 {
		return nil, nil
	}
	if len(parts) > 1 {
		c.name = parts[1]
	}
	if len(parts) > 2 {
		c.subresource = parts[2]
	}
	return c, nil
}

// decode returns the object in the body.
func (c *call) decode() (Object, error) {
	if c.object != nil {
		return c.object, nil
	}
	o, err := Decode(c.body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return o, nil
}

// response is the response to a request.
type response struct {
	code   int
	header http.Header
	body   []byte
	watch  *Watch // the body streams its events
}

func (r *response) write(to *http.Request) *http.Response {
	header := http.Header{"Content-Type": {"application/json"}}
	for k, v := range r.header {
		header[k] = v
	}
	out := &http.Response{
		StatusCode: r.code, Status: fmt.Sprintf("%d %s", r.code, http.StatusText(r.code)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header, Request: to,
	}
	if r.watch != nil {
		out.Body, out.ContentLength = r.watch, -1
		return out
	}
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(r.body)), int64(len(r.body))
	return out
}

func ok(v any) *response { return &response{code: http.StatusOK, body: encode(v)} }

// fail responds with the Status of an error.
func fail(err error) *response {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewBadRequest(err.Error())
	}
	out := status.Status()
	out.Kind, out.APIVersion = "Status", "v1"
	return &response{code: int(out.Code), body: encode(out)}
}

// failed responds with a status code without a reason.
func failed(code int, message string) *response {
	return fail(&apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reasons[code], Message: message,
	}})
}

var reasons = map[int]metav1.StatusReason{
	http.StatusConflict:            metav1.StatusReasonConflict,
	http.StatusGone:                metav1.StatusReasonExpired,
	http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:      metav1.StatusReasonTimeout,
}

// serve executes a call.
func (s *Server) serve(c *call) *response {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out Object
	var err error
	switch d := s.defined[c.resource]; {
	case d != nil && d.absent:
		return &response{code: http.StatusNotFound, body: []byte("404 page not found\n")}
	case c.subresource != "" && (c.subresource != "status" || !c.resource.Status):
		return s.unknown(c)
	case c.method == http.MethodGet && c.name == "" && c.query.Get("watch") != "":
		return s.watch(c)
	case c.method == http.MethodGet && c.name == "":
		return s.list(c)
	case c.method == http.MethodGet:
		out, err = s.get(c)
	case c.method == http.MethodPost && c.name == "":
		out, err = s.create(c)
	case c.method == http.MethodPut && c.name != "":
		out, err = s.update(c)
	case c.method == http.MethodPatch && c.name != "":
		out, err = s.patch(c)
	case c.method == http.MethodDelete && c.name != "":
		out, err = s.remove(c)
	default:
		return s.unknown(c)
	}
	if unsupported, is := err.(errUnsupported); is { //nolint:errorlint // as above
		s.unsupported = append(s.unsupported, string(unsupported))
	}
	if err != nil {
		return fail(err)
	}
	answer := &response{code: http.StatusOK}
	switch {
	case c.quiet:
	case c.metadata:
		answer.body = encode(partial(out))
	case out["kind"] == "Status":
		answer.body = encode(out)
	default:
		answer.body = s.encode(out)
	}
	if c.method == http.MethodPost {
		answer.code = http.StatusCreated
	}
	return answer
}

// errUnsupported means that the model does not support something, which a test must not rely on.
type errUnsupported string

func (e errUnsupported) Error() string { return "the model does not support " + string(e) }

func (s *Server) unknown(c *call) *response {
	text := fmt.Sprintf("%s %s/%s %s?%s", c.method, c.resource.Name, c.subresource, c.name, c.query.Encode())
	s.unsupported = append(s.unsupported, text)
	return failed(http.StatusNotImplemented, errUnsupported(text).Error())
}

// partial returns the metadata of an object as PartialObjectMetadata.
func partial(o Object) Object {
	return Object{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o["metadata"]}
}

package watchhealth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RoundTripper returns a transport that sends requests with next and monitors watches.
func (m *Monitor) RoundTripper(next http.RoundTripper) http.RoundTripper { return &transport{m, next} }

type transport struct {
	monitor *Monitor
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !isWatch(r) {
		return t.next.RoundTrip(r)
	}
	ctx, cancel := context.WithCancel(r.Context())
	s := t.monitor.begin(r, cancel)
	if t.monitor.takeRelist(s, r.URL.Query().Get("sendInitialEvents") == "true") {
		cancel()
		t.monitor.answered(s, "the objects are listed again")
		return gone(r), nil
	}
	resp, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		if s.frozen.Load() {
			err = unanswered(t.monitor.opts.Silence)
		}
		t.monitor.answered(s, err.Error())
		t.monitor.end(s, r.Context().Err() == nil)
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		t.monitor.answered(s, "")
	} else {
		t.monitor.answered(s, "the answer is "+resp.Status)
	}
	resp.Body = &body{ReadCloser: resp.Body, monitor: t.monitor, stream: s, caller: r.Context()}
	return resp, nil
}

// gone returns the answer to a watch that cannot continue, after which clients list all objects.
func gone(r *http.Request) *http.Response {
	status := apierrors.NewResourceExpired("the definition of the resource has changed").ErrStatus
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	data, _ := json.Marshal(status) // a struct of strings always marshals
	return &http.Response{
		Status: "410 Gone", StatusCode: http.StatusGone, Proto: r.Proto, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(data)), ContentLength: int64(len(data)), Request: r,
	}
}

// WrappedRoundTripper returns the underlying transport, for client-go.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

func isWatch(r *http.Request) bool {
	if r.Method != http.MethodGet || !strings.Contains(r.URL.RawQuery, "watch=") {
		return false
	}
	w := r.URL.Query().Get("watch")
	return w == "true" || w == "1"
}

// body is the response body of a watch.
type body struct {
	io.ReadCloser
	monitor *Monitor
	stream  *stream
	caller  context.Context //nolint:containedctx // of the request that this is the answer to
	over    sync.Once
}

// Read implements io.Reader. It reports a broken stream as one that the server has closed: clients then continue from the last
// event, while after any other error they list all objects again.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.stream.hear(b.monitor.opts.Clock)
	}
	if err == nil {
		return n, nil
	}
	b.end()
	switch {
	case errors.Is(err, io.EOF) || b.caller.Err() != nil:
		return n, err
	case b.stream.frozen.Load():
		return n, io.EOF
	}
	return n, io.ErrUnexpectedEOF
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.end()
	b.stream.cancel()
	return b.ReadCloser.Close()
}

func (b *body) end() {
	b.over.Do(func() { b.monitor.end(b.stream, b.caller.Err() == nil) })
}

// unanswered is the error of a watch request without a response. It is a timeout, after which clients retry and do not list all
// objects.
type unanswered time.Duration

// Error implements error.
func (u unanswered) Error() string { return "no answer within " + time.Duration(u).String() }

// Timeout and Temporary implement net.Error.
func (unanswered) Timeout() bool   { return true }
func (unanswered) Temporary() bool { return true }

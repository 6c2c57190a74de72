package extender_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/assay-project/assay/extender"
)

// unsent is a ResponseWriter whose client resets the stream while the answer is being sent: as in HTTP/2, Write returns then, and the
// connection may still read the answer.
type unsent struct {
	*httptest.ResponseRecorder
	reading []byte
}

func (u *unsent) Write(answer []byte) (int, error) {
	u.reading = answer
	return 0, errors.New("the stream was reset")
}

// TestALaterRequestDoesNotOverwriteAnAnswer: an answer that is still being sent must not become that to another request.
func TestALaterRequestDoesNotOverwriteAnAnswer(t *testing.T) {
	d, request := benchRequest(t, 100)
	s, err := extender.New(d, extender.Options{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	other := body(t, extenderv1.ExtenderArgs{Pod: pod("ml", nil, nil), NodeNames: &[]string{strings.Repeat("x", 200)}})
	for _, verb := range []string{"/filter", "/prioritize", "/preempt"} {
		for range 100 {
			ask := func(w http.ResponseWriter, body []byte) {
				s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, verb, bytes.NewReader(body)))
			}
			given := &unsent{ResponseRecorder: httptest.NewRecorder()}
			ask(given, request)
			want := bytes.Clone(given.reading)
			ask(httptest.NewRecorder(), other)
			ask(&unsent{ResponseRecorder: httptest.NewRecorder()}, other)
			if !bytes.Equal(given.reading, want) {
				t.Fatalf("%s: the answer\n%s\nhas become\n%s", verb, want, given.reading)
			}
		}
	}
}

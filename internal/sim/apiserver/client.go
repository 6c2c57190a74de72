package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Arrived returns a channel that receives a value after a request of any client has arrived. It has a single reader.
func (s *Server) Arrived() <-chan struct{} { return s.arrived }

// Client is the connection of one program to a server. Requests wait until one of the methods of Request answers them. It
// implements http.RoundTripper, and is safe for concurrent use.
type Client struct {
	name   string
	server *Server

	mu      sync.Mutex
	pending []*Request // sorted
	watches []*Watch   // sorted
	gone    bool
	direct  bool
	told    map[int64]time.Time // see Told
}

// NewClient returns the connection of a program with the given name.
func (s *Server) NewClient(name string) *Client {
	return &Client{name: name, server: s, told: map[int64]time.Time{}}
}

// Direct answers all requests immediately. Events still wait.
func (c *Client) Direct() *Client {
	c.direct = true
	return c
}

// Request is a request that waits for its response.
type Request struct {
	client *Client
	call   *call
	text   string // see String
	http   *http.Request
	answer chan result
	done   *response // the request was executed, and its response is pending
}

type result struct {
	response *http.Response
	err      error
}

var errGone = errors.New("connection refused: the program has ended")

// RoundTrip implements http.RoundTripper. It answers discovery requests immediately.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	server, direct := c.server, c.direct
	c.mu.Unlock()
	if answer := server.discover(r.URL.Path); answer != nil {
		return answer.write(r), nil
	}
	parsed, err := server.parse(r, c.name)
	if err != nil {
		return nil, err
	}
	if parsed == nil {
		server.mu.Lock()
		server.unsupported = append(server.unsupported, r.Method+" "+r.URL.String())
		server.mu.Unlock()
		return failed(http.StatusNotFound, "the model has no "+r.URL.Path).write(r), nil
	}
	if parsed.resource.Name == "events" && parsed.method != http.MethodGet && !direct {
		return accepted(parsed).write(r), nil
	}
	req := &Request{client: c, call: parsed, text: parsed.String(), http: r, answer: make(chan result, 1)}
	c.mu.Lock()
	if c.gone {
		c.mu.Unlock()
		return nil, errGone
	}
	c.pending = append(c.pending, req)
	slices.SortStableFunc(c.pending, func(a, b *Request) int {
		return cmp.Or(cmp.Compare(a.text, b.text), bytes.Compare(a.call.body, b.call.body))
	})
	c.mu.Unlock()
	if direct {
		req.Answer()
	}
	select {
	case server.arrived <- struct{}{}:
	default:
	}
	select {
	case a := <-req.answer:
		if a.response != nil {
			a.response.Header.Set("Date", server.time().Format(http.TimeFormat))
		}
		return a.response, a.err
	case <-r.Context().Done():
		c.forget(req)
		return nil, r.Context().Err()
	}
}

// accepted answers the write of an Event, which is not kept: whether a program that stops sends its last ones is not determined.
func accepted(c *call) *response {
	o, err := Decode(c.body)
	if err != nil {
		return fail(apierrors.NewBadRequest(err.Error()))
	}
	o["kind"], o["apiVersion"] = c.resource.Kind, c.resource.groupVersion().String()
	return &response{code: http.StatusCreated, body: encode(o)}
}

func (c *Client) forget(req *Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.pending, req)
	if i < 0 {
		return false
	}
	c.pending = slices.Delete(c.pending, i, i+1)
	return true
}

// Pending returns the waiting requests, sorted.
func (c *Client) Pending() []*Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.pending)
}

// Watches returns the open watches, sorted.
func (c *Client) Watches() []*Watch {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches = slices.DeleteFunc(c.watches, func(w *Watch) bool { return !w.Open() })
	return slices.Clone(c.watches)
}

// Told returns when a watch has delivered the deletion of an object, by its revision; zero: none has. A client can also learn of a deletion
// from a list that lacks the object: it then does not know its last state.
func (c *Client) Told(deletion int64) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told[deletion]
}

// Close makes all requests fail, including later ones, and ends the watches: the program has crashed.
func (c *Client) Close() {
	c.mu.Lock()
	c.gone = true
	c.mu.Unlock()
	c.Reconnect(c.server)
}

// Reconnect makes all requests fail, ends the watches, and sends later requests to another server.
func (c *Client) Reconnect(s *Server) {
	c.mu.Lock()
	pending, watches := c.pending, c.watches
	c.server, c.pending, c.watches = s, nil, nil
	c.mu.Unlock()
	for _, r := range pending {
		r.answer <- result{err: errGone}
	}
	for _, w := range watches {
		w.End(io.EOF)
	}
}

// String returns the request on one line, without its body.
func (r *Request) String() string { return r.text }

func (c *call) String() string {
	verb := strings.ToLower(c.method)
	if c.query.Get("watch") != "" {
		verb = "watch"
	} else if c.name == "" && verb == "get" {
		verb = "list"
	}
	out := verb + " " + c.resource.Name
	if c.subresource != "" {
		out += "/" + c.subresource
	}
	if c.metadata {
		out += " (metadata)"
	}
	out += " " + key(c.namespace, c.name)
	for _, k := range []string{"labelSelector", "fieldSelector", "resourceVersion", "limit", "sendInitialEvents"} {
		if v := c.query.Get(k); v != "" {
			out += fmt.Sprintf(" %s=%s", k, v)
		}
	}
	return strings.TrimSpace(out)
}

// Body returns the body of the request.
func (r *Request) Body() []byte { return r.call.body }

// Writes reports whether the request changes an object.
func (r *Request) Writes() bool { return r.call.method != http.MethodGet }

// Execute executes the request. Its response is pending until Answer delivers it or Lose drops it.
func (r *Request) Execute() {
	if r.done == nil {
		r.done = r.client.server.serve(r.call)
	}
}

// Target returns the resource and the name that the request is about.
func (r *Request) Target() (resource, name string) { return r.call.resource.Name, r.call.name }

// Executed reports whether the request was executed.
func (r *Request) Executed() bool { return r.done != nil }

// Answer executes the request if necessary, and delivers the response. It returns the status code.
func (r *Request) Answer() int {
	r.Execute()
	if !r.client.forget(r) {
		return 0
	}
	if w := r.done.watch; w != nil {
		w.client = r.client
		w.ctx = r.http.Context()
		w.to, _ = w.ctx.Value(decodedKey{}).(*decoded)
		r.client.mu.Lock()
		r.client.watches = append(r.client.watches, w)
		slices.SortStableFunc(r.client.watches, func(a, b *Watch) int { return cmp.Compare(a.name, b.name) })
		r.client.mu.Unlock()
	}
	r.answer <- result{response: r.done.write(r.http)} //nolint:bodyclose // the client closes it
	return r.done.code
}

// Fail responds with an error without executing the request. A positive retryAfter, in seconds, is part of the response.
func (r *Request) Fail(code, retryAfter int) {
	if !r.client.forget(r) {
		return
	}
	answer := failed(code, "simulated failure")
	if retryAfter > 0 {
		answer.header = http.Header{"Retry-After": {fmt.Sprint(retryAfter)}}
	}
	r.answer <- result{response: answer.write(r.http)} //nolint:bodyclose // the client closes it
}

// Lose breaks the connection, whether or not the request was executed.
func (r *Request) Lose() {
	if r.client.forget(r) {
		r.answer <- result{err: errors.New("connection reset by peer")}
	}
}

// Do carries out a request at once, as a user or another program would, and returns the status code and the error. A body of a PATCH is a
// merge patch. It panics if the model does not know the request.
func (s *Server) Do(by, method, path string, body any) (code int, failure []byte) {
	r, err := http.NewRequestWithContext(context.Background(), method, "http://model"+path, nil)
	if err != nil {
		panic(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	c, err := s.parse(r, by)
	if err != nil || c == nil {
		panic(fmt.Sprintf("%s %s: %v", method, path, err))
	}
	c.quiet = true
	if o, is := body.(Object); is {
		c.object = deepCopy(o)
	} else if body != nil {
		c.body = encode(body)
	}
	out := s.serve(c)
	return out.code, out.body
}

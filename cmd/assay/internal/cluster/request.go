package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	topologyv1alpha2 "github.com/assay-project/assay/api/topology/v1alpha2"
)

const (
	// pageSize is the maximum number of objects per request: 500 NodeFeatures of large servers take 60 MB.
	pageSize = "500"
	// maxBody is the maximum size of a response in bytes.
	maxBody = 256 << 20
	// maxRetries is the maximum number of times that a request is sent again because the API server asks for it, as it does while it
	// starts. kubectl sends it 10 times.
	maxRetries = 10
	// maxLists is the maximum number of times that a list is read from its beginning, because the API server no longer has the state of
	// its first page.
	maxLists = 3
)

// errNotFound reports that an object does not exist.
var errNotFound = errors.New("not found")

// errExpired reports that the API server no longer has the state from which a list is read page by page.
var errExpired = errors.New("the API server no longer has the state of the first page of the list; try again")

// IsNotFound reports whether an error means that an object does not exist.
func IsNotFound(err error) bool { return errors.Is(err, errNotFound) }

// absentKind is the error for a kind that the cluster does not serve. IsNotFound is true for it.
type absentKind string

func (a absentKind) Error() string { return string(a) }

// Is implements the interface of errors.Is.
func (a absentKind) Is(target error) bool { return target == errNotFound }

// IsAbsentKind reports whether an error means that the cluster does not serve a kind.
func IsAbsentKind(err error) bool {
	var a absentKind
	return errors.As(err, &a)
}

// errAbsentKind is an absentKind before its path is known.
const errAbsentKind = absentKind("the cluster does not have the kind")

// absent returns the error for a path whose kind the cluster does not serve, with what installs the kind.
func absent(path string) error {
	parts := strings.Split(path, "/") // /apis/GROUP/VERSION/…/RESOURCE
	resource, fix := kind(path), "it is not enabled, or needs another version of Kubernetes"
	if len(parts) > 3 && parts[1] == "apis" {
		resource += "." + parts[2]
		switch parts[2] {
		case nfdv1alpha1.GroupVersion.Group:
			fix = "install Assay or NFD first"
		case assayv1alpha1.GroupVersion.Group:
			fix = "install Assay first, or its CustomResourceDefinitions"
		case topologyv1alpha2.GroupVersion.Group:
			fix = "set topology.enabled and topology.createCRD of the chart"
		}
	}
	return absentKind(fmt.Sprintf("the cluster does not have the kind %s: %s", resource, fix))
}

// forbidden is the API server's message about a request that the user may not send.
type forbidden string

func (f forbidden) Error() string { return string(f) }

// IsForbidden reports whether an error means that the user may not read something.
func IsForbidden(err error) bool {
	var f forbidden
	return errors.As(err, &f)
}

// get returns an object, and nil with an error: nothing can be read of an object that does not exist or cannot be read.
func get[T any](ctx context.Context, c *Client, path, name string) (*T, error) {
	out := new(T)
	switch err := c.read(ctx, path+"/"+url.PathEscape(name), nil, out); {
	case IsAbsentKind(err):
		return nil, absent(path)
	case IsNotFound(err):
		return nil, fmt.Errorf("%s %q %w", kind(path), name, err)
	case err != nil:
		return nil, err
	}
	return out, nil
}

// listIfAny returns no objects if the cluster does not have the kind.
func listIfAny[T any](ctx context.Context, c *Client, path string) ([]T, error) {
	out, err := list[T](ctx, c, path, nil)
	if IsNotFound(err) {
		return nil, nil
	}
	return out, err
}

func list[T any](ctx context.Context, c *Client, path string, query url.Values) ([]T, error) {
	if query == nil {
		query = url.Values{}
	}
	query.Set("limit", pageSize)
	var out []T
	for lists := 1; ; {
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []T             `json:"items"`
		}
		if err := c.read(ctx, path, query, &page); err != nil {
			if errors.Is(err, errExpired) && lists < maxLists {
				lists++
				out = nil
				query.Del("continue")
				continue
			}
			if IsNotFound(err) {
				err = absent(path)
			}
			return nil, err
		}
		out = append(out, page.Items...)
		if page.Metadata.Continue == "" {
			return out, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

func kind(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

func (c *Client) read(ctx context.Context, path string, query url.Values, out any) error {
	code, body, err := c.send(ctx, http.MethodGet, path, query, "", nil)
	switch {
	case err != nil:
		return err
	case code != http.StatusOK:
		return refused(code, body)
	}
	return json.Unmarshal(body, out)
}

// send sends a request and returns the status code and the body of the response.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, contentType string, content []byte) (int, []byte, error) {
	a, err := c.exchange(ctx, method, path, query, contentType, content)
	if err != nil {
		return 0, nil, err
	}
	return a.code, a.body, nil
}

// answer is a response of the API server.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// exchange is send with the headers of the response. It sends a request again after the time that an overloaded or starting API server
// names.
func (c *Client) exchange(ctx context.Context, method, path string, query url.Values, contentType string, content []byte) (*answer, error) {
	for retries := 0; ; retries++ {
		a, err := c.once(ctx, method, path, query, contentType, content)
		if err != nil || retries == maxRetries || a.code != http.StatusTooManyRequests && a.code < http.StatusInternalServerError {
			return a, err
		}
		seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
		if err != nil {
			return a, nil //nolint:nilerr // it does not ask for it
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Duration(seconds) * time.Second):
		}
	}
}

// once sends a request once.
func (c *Client) once(ctx context.Context, method, path string, query url.Values, contentType string, content []byte) (*answer, error) {
	u := *c.base
	u.Path = strings.TrimSuffix(u.Path, "/") + path
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.agent)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		c.date.Store(date.Unix())
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if len(body) > maxBody {
		return nil, fmt.Errorf("the response of the API server is larger than %d MiB", maxBody>>20)
	}
	return &answer{resp.StatusCode, resp.Header, body}, nil
}

// Now returns the time of the last response by the API server's clock, for comparison with Leases. Before the first response, it
// returns the local time.
func (c *Client) Now() time.Time {
	if seconds := c.date.Load(); seconds != 0 {
		return time.Unix(seconds, 0)
	}
	return time.Now()
}

// refused returns the error for a response with an error status.
func refused(code int, body []byte) error {
	var status metav1.Status
	_ = json.Unmarshal(body, &status)
	switch {
	case code == http.StatusNotFound && status.Details == nil: // not by a handler of objects
		return errAbsentKind
	case code == http.StatusNotFound:
		return errNotFound
	case code == http.StatusGone:
		return errExpired
	case code == http.StatusUnauthorized:
		return errors.New("unauthorized: the credentials of the kubeconfig are missing or have expired")
	case code == http.StatusForbidden && status.Message != "":
		return forbidden(status.Message) // such as: nodes is forbidden: User "x" cannot list resource "nodes" …
	case status.Message != "":
		return fmt.Errorf("the API server returned: %s", status.Message)
	}
	return fmt.Errorf("the API server returned %d %s", code, http.StatusText(code))
}

// unreachable returns a one-line error for a cluster that does not respond.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return fmt.Errorf("cannot reach the API server %s: there is no host %s", c.base, dns.Name)
	case errors.As(err, &op) && op.Timeout() || errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("cannot reach the API server %s: it does not answer", c.base)
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("cannot reach the API server %s: %w", c.base, op.Err)
	}
	return fmt.Errorf("cannot talk to the API server %s: %w", c.base, err)
}

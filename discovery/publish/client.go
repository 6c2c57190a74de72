package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// Client sends requests to an API server: for a few kinds, most of them for metadata only. It is safe for concurrent
// use.
type Client struct {
	base string
	http *http.Client
}

const (
	// requestTimeout is the timeout of a request. The API server's own timeout is a minute; a worker need not wait as long.
	requestTimeout = 30 * time.Second
	// maxResponseBytes is the maximum size of a response; etcd rejects objects of more than 1.5 MiB, and JSON can double the size.
	maxResponseBytes = 8 << 20
	// maxErrorBytes is the maximum size of an error response that is not a Status.
	maxErrorBytes = 64 << 10

	// metadataOnly requests an object without its spec, which the server need not send and the client need not decode.
	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)

// NewClient returns a client for the given configuration. It does not connect yet.
func NewClient(c *Config) (*Client, error) {
	base, err := url.Parse(c.Server)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("API server address %q: not a URL with a host", c.Server)
	}
	transport, err := c.transport()
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", c.Server, err)
	}
	return &Client{base: strings.TrimRight(c.Server, "/"), http: &http.Client{Transport: transport}}, nil
}

// NodeUID returns the UID of a Node. It needs the permission to get it, which a worker with a bound token does not have.
func (c *Client) NodeUID(ctx context.Context, node string) (string, error) {
	meta, err := c.metadata(ctx, "/api/v1/nodes/"+url.PathEscape(node))
	if err != nil {
		return "", fmt.Errorf("look up node %q: %w", node, err)
	}
	return string(meta.uid), nil
}

// ofCache is a query that allows the API server to answer a read from its cache, which can be a little old.
const ofCache = "?resourceVersion=0"

// create sends a new object, and patch a merge patch.
func (c *Client) create(ctx context.Context, path string, strict bool, body []byte) (metadata, error) {
	var m metav1.PartialObjectMetadata
	err := c.do(ctx, http.MethodPost, validated(path, strict), metadataOnly, "application/json", body, &m)
	return metadataOf(&m.ObjectMeta), err
}

func (c *Client) patch(ctx context.Context, path string, strict bool, body []byte) (metadata, error) {
	var m metav1.PartialObjectMetadata
	err := c.do(ctx, http.MethodPatch, validated(path, strict), metadataOnly, "application/merge-patch+json", body, &m)
	return metadataOf(&m.ObjectMeta), err
}

func (c *Client) metadata(ctx context.Context, path string) (metadata, error) {
	var m metav1.PartialObjectMetadata
	err := c.do(ctx, http.MethodGet, path, metadataOnly, "", nil, &m)
	return metadataOf(&m.ObjectMeta), err
}

// leaseHolder returns the holder of a Lease, from the API server's cache.
func (c *Client) leaseHolder(ctx context.Context, namespace, name string) (string, error) {
	var lease struct {
		Spec struct {
			HolderIdentity string `json:"holderIdentity"`
		} `json:"spec"`
	}
	path := "/apis/coordination.k8s.io/v1/namespaces/" + url.PathEscape(namespace) + "/leases/" + url.PathEscape(name)
	err := c.do(ctx, http.MethodGet, path+ofCache, "application/json", "", nil, &lease)
	return lease.Spec.HolderIdentity, err
}

// exists returns nil if the API server's cache has a NodeFeatureSet.
func (c *Client) exists(ctx context.Context, namespace, name string) error {
	_, err := c.metadata(ctx, nodeFeatureSet(namespace, name)+ofCache)
	return err
}

// set reads a NodeFeatureSet, from the API server's cache: its content never changes.
func (c *Client) set(ctx context.Context, namespace, name string) (*nfdv1alpha1.Features, error) {
	var set assayv1alpha1.NodeFeatureSet
	if err := c.do(ctx, http.MethodGet, nodeFeatureSet(namespace, name)+ofCache, "application/json", "", nil, &set); err != nil {
		return nil, err
	}
	return &set.Spec.Features, featureset.Verify(name, &set.Spec.Features)
}

func (c *Client) createSet(ctx context.Context, namespace string, body []byte) error {
	var m metav1.PartialObjectMetadata
	return c.do(ctx, http.MethodPost, nodeFeatureSet(namespace, ""), metadataOnly, "application/json", body, &m)
}

func nodeFeatureSet(namespace, name string) string {
	path := "/apis/" + assayv1alpha1.GroupVersion.String() + "/namespaces/" + url.PathEscape(namespace) + "/" + assayv1alpha1.NodeFeatureSetResource.Resource
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	return path
}

// validated requests strict field validation from the API server.
func validated(path string, strict bool) string {
	if strict {
		return path + "?fieldValidation=Strict"
	}
	return path
}

func nodeFeature(namespace, name string) string {
	path := "/apis/" + nfdv1alpha1.GroupVersion.String() + "/namespaces/" + url.PathEscape(namespace) + "/" + nfdv1alpha1.NodeFeatureResource.Resource
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	return path
}

// do sends one request and decodes the response to out.
func (c *Client) do(ctx context.Context, method, path, accept, contentType string, body []byte, out any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := c.send(ctx, method, path, accept, contentType, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	// A longer response is truncated, and then fails to decode.
	if err := json.NewDecoder(io.LimitReader(res.Body, maxResponseBytes)).Decode(out); err != nil {
		return fmt.Errorf("decode response to %s %s: %w", method, path, err)
	}
	// Read to the end so that the connection can be reused.
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, maxErrorBytes))
	return err
}

// send sends one request and returns the response if it is successful. The caller closes its body.
func (c *Client) send(ctx context.Context, method, path, accept, contentType string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		defer res.Body.Close()
		return nil, statusError(res)
	}
	return res, nil
}

// StatusError is an error response of the API server.
type StatusError struct {
	Code    int
	Reason  string
	Message string
	// RetryAfter is the delay that the server requests; 0 if it requests none.
	RetryAfter time.Duration
}

func (e *StatusError) Error() string {
	if e.Message != "" {
		return e.Message
	}
	return fmt.Sprintf("API server answered %d %s", e.Code, http.StatusText(e.Code))
}

func statusError(res *http.Response) error {
	e := &StatusError{Code: res.StatusCode}
	var s metav1.Status
	if json.NewDecoder(io.LimitReader(res.Body, maxErrorBytes)).Decode(&s) == nil {
		e.Reason, e.Message = string(s.Reason), s.Message
	}
	if n, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && n > 0 {
		e.RetryAfter = min(time.Duration(n)*time.Second, maxBackoff)
	}
	return e
}

func hasCode(err error, code int) bool {
	var e *StatusError
	return errors.As(err, &e) && e.Code == code
}

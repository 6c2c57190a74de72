package nodefeature

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/poison"
)

// Direct returns a constructor of informers that decode the events of watches of NodeFeatures themselves. client-go scans the JSON of
// each event about ten times, which was a quarter of the CPU time of a restart of the controller with 1,000 nodes.
func Direct(config *rest.Config, next NewInformer) (NewInformer, error) {
	kinds := runtime.NewScheme()
	metav1.AddToGroupVersion(kinds, metav1.Unversioned) // errors
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath = &nfdv1alpha1.GroupVersion, "/apis"
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.NegotiatedSerializer = serializer.NewCodecFactory(kinds).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("create a client for watches of NodeFeatures: %w", err)
	}
	return func(lw cache.ListerWatcher, object runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
		if _, ok := object.(*NodeFeature); ok {
			lw = direct{lw, client}
		}
		return next(lw, object, resync, indexers)
	}, nil
}

// direct watches with a client of its own.
type direct struct {
	cache.ListerWatcher
	client rest.Interface
}

// ListWithContext returns the unmodified list.
func (d direct) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return cache.ToListerWithContext(d.ListerWatcher).ListWithContext(ctx, options)
}

// WatchWithContext opens a watch of all NodeFeatures. As in client-go, a connection that breaks is a watch that ends.
func (d direct) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	body, err := d.client.Get().Resource("nodefeatures").
		SpecificallyVersionedParams(&options, metav1.ParameterCodec, metav1.Unversioned).Stream(ctx)
	switch {
	case err == nil:
		report := apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")
		return watch.NewStreamWatcher(&events{body: body, lines: bufio.NewReader(body)}, report), nil
	case utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err):
		return watch.NewEmptyWatch(), nil
	}
	return nil, err
}

// IsWatchListSemanticsUnSupported is the method by which client-go checks for streaming support.
func (d direct) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(d.ListerWatcher)
}

// events decodes a watch, of which each event is a line of JSON. It implements watch.Decoder.
type events struct {
	body  io.Closer
	lines *bufio.Reader
}

// Close implements watch.Decoder.
func (e *events) Close() { _ = e.body.Close() }

// Decode implements watch.Decoder. Each event is a string of its own, which nothing overwrites while parts of it are in use.
func (e *events) Decode() (watch.EventType, runtime.Object, error) {
	line, err := e.lines.ReadString('\n')
	if err != nil {
		if errors.Is(err, io.EOF) && line != "" {
			err = io.ErrUnexpectedEOF
		}
		return "", nil, err
	}
	var kind watch.EventType
	var decoded runtime.Object
	err = poison.Text(line, func(line string) (err error) {
		kind, decoded, err = decodeEvent(line)
		return err
	})
	return kind, decoded, err
}

// decodeEvent decodes an event. The result keeps no part of the line.
func decodeEvent(line string) (watch.EventType, runtime.Object, error) {
	var name, object string
	err := facts.Members(line, func(member, value string) (err error) {
		switch member {
		case "type":
			name, err = facts.String(value)
		case "object":
			object = value
		}
		return err
	})
	if err != nil {
		return "", nil, fmt.Errorf("decode watch event: %w", err)
	}
	for _, kind := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark} {
		if name == string(kind) {
			f, err := decodeObject(object)
			return kind, f, err
		}
	}
	if name != string(watch.Error) {
		return "", nil, fmt.Errorf("decode watch event: invalid type %q", name)
	}
	status := &metav1.Status{}
	if err := json.Unmarshal([]byte(object), status); err != nil {
		return "", nil, fmt.Errorf("decode watch event: %w", err)
	}
	return watch.Error, status, nil
}

// metadata is that of an object without managed fields, which are most of it and are not cached.
type metadata struct {
	*metav1.ObjectMeta
	ManagedFields ignored `json:"managedFields"`
}

type ignored struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (ignored) UnmarshalJSON([]byte) error { return nil }

// decodeObject decodes a NodeFeature, which keeps no part of its JSON.
func decodeObject(text string) (*NodeFeature, error) {
	f := &NodeFeature{}
	err := facts.Members(text, func(member, value string) error {
		switch member {
		case "metadata":
			return json.Unmarshal([]byte(value), &metadata{ObjectMeta: &f.ObjectMeta})
		case "spec":
			return f.Spec.decode(value)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("decode NodeFeature: %w", err)
	}
	return f, nil
}

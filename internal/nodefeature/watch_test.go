package nodefeature

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// streamed is a NodeFeature as an API server sends it in one line.
const streamed = `{"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature", "metadata": {"name": "n1", "namespace": "assay-system",` +
	` "uid": "u", "resourceVersion": "7", "generation": 2, "creationTimestamp": "2026-11-23T10:00:00Z", "labels": {"l": "ö\n"},` +
	` "annotations": {"a": "b"}, "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "w"}],` +
	` "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}]}, "spec": {"labels": {"x": "y"}, "featureSets": ["s-v1-0"],` +
	` "features": {"attributes": {"a.b": {"elements": {"name": "value"}}}, "flags": {"c.d": {"elements": {"flag": {}}}}},` +
	` "encodedInstances": "{\"network.virtual\":[{\"plain\":\"veth0\",\"escaped\":\"\\u00e4\"}]}"}}`

func decoderOf(text string) *events {
	body := io.NopCloser(strings.NewReader(text))
	return &events{body: body, lines: bufio.NewReaderSize(body, 16)} // the minimum: a line is longer
}

func TestEventsAreWhatTheirJSONIs(t *testing.T) {
	var want NodeFeature
	if err := json.Unmarshal([]byte(streamed), &want); err != nil {
		t.Fatal(err)
	}
	want.TypeMeta, want.ManagedFields = metav1.TypeMeta{}, nil
	kinds := []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark}
	var text strings.Builder
	for _, kind := range kinds {
		text.WriteString(`{"type":"` + string(kind) + `","object":` + streamed + "}\n")
	}
	d := decoderOf(text.String())
	for _, kind := range kinds {
		got, object, err := d.Decode()
		if err != nil || got != kind {
			t.Fatalf("%s, %v, want %s", got, err, kind)
		}
		f := object.(*NodeFeature)
		if !f.Spec.Features.Same(want.Spec.Features.Facts) || f.Spec.Features.Bytes != want.Spec.Features.Bytes || f.Spec.Features.Err != nil {
			t.Errorf("features %v, want %v", f.Spec.Features.Features(), want.Spec.Features.Features())
		}
		text, err := json.Marshal(f.Spec.Features)
		if err != nil || !strings.Contains(string(text), `"plain":"veth0"`) {
			t.Errorf("features %s, %v", text, err)
		}
		f.Spec.Features = want.Spec.Features
		if !equality.Semantic.DeepEqual(f, &want) {
			t.Errorf("got %+v\nwant %+v", f, &want)
		}
	}
	if _, _, err := d.Decode(); !errors.Is(err, io.EOF) {
		t.Errorf("error %v at the end", err)
	}
}

func TestEventsThatAreNoObjects(t *testing.T) {
	_, object, err := decoderOf(`{"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}` + "\n").Decode()
	if err != nil || !apierrors.IsResourceExpired(apierrors.FromObject(object)) {
		t.Errorf("%+v, %v, want an expired resourceVersion", object, err)
	}
	for text, want := range map[string]string{
		`{"type": "ADDED", "object": ` + streamed:                            "unexpected EOF",
		`{"type": "RENAMED", "object": ` + streamed + "}\n":                  `invalid type "RENAMED"`,
		`{"type": "ADDED", "object": {"metadata": {"name": 1}}}` + "\n":      "decode NodeFeature",
		`{"type": "ADDED", "object": {"spec": {"labels": {"a": 1}}}}` + "\n": "decode NodeFeature",
		`{"type": "ERROR", "object": 1}` + "\n":                              "decode watch event",
		`{"type": 1, "object": {}}` + "\n":                                   "decode watch event",
		`{"type": "ADDED", "object": ` + streamed + "} trailing\n":           "decode watch event",
		"not JSON\n":               "decode watch event",
		`{"type": "ADDED"}` + "\n": "decode NodeFeature",
		`{"type": "ERROR"}` + "\n": "decode watch event",
		`{"type": "ADDED", "object": {"metadata": {"name": "unfinished"}` + "\n": "decode watch event",
	} {
		if _, object, err := decoderOf(text).Decode(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, error %v, want %q", text, object, err, want)
		}
	}
	// As before, features that cannot be read are an error of the object, and not of the watch.
	_, object, err = decoderOf(`{"type": "ADDED", "object": {"metadata": {"name": "n1"}, "spec": {"features": []}}}` + "\n").Decode()
	if f, ok := object.(*NodeFeature); err != nil || !ok || f.Spec.Features.Err == nil || f.Name != "n1" {
		t.Errorf("%+v, %v, want an object with an error", object, err)
	}
}

// TestAnEventKeepsItsValuesAfterTheNext decodes two events, and reads the first one afterwards: an attribute that has one distinct value
// once got the value of the next event.
func TestAnEventKeepsItsValuesAfterTheNext(t *testing.T) {
	event := func(model string) string {
		return `{"type": "ADDED", "object": {"metadata": {"name": "` + model + `"}, "spec": {"labels": {"model": "` + model + `"}, "featureSets": ["` + model + `"],` +
			` "features": {"instances": {"vendor.card": {"elements": [{"attributes": {"card": "` + model + `"}}]}}},` +
			` "encodedInstances": "{\"vendor.port\":[{\"plain\":\"port-` + model + `\"}]}"}}}` + "\n"
	}
	models := []string{"model-0001", "model-1029", "model-0300"}
	var stream strings.Builder
	for _, model := range models {
		stream.WriteString(event(model))
	}
	d := decoderOf(stream.String())
	var read []*NodeFeature
	for range models {
		_, object, err := d.Decode()
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, object.(*NodeFeature))
	}
	for i, f := range read {
		card, _ := f.Spec.Features.Feature("vendor.card").Instances.Get(0, "card")
		port, _ := f.Spec.Features.Feature("vendor.port").Instances.Get(0, "plain")
		port = strings.TrimPrefix(port, "port-") // an equal column would be shared
		for what, got := range map[string]string{"name": f.Name, "label": f.Spec.Labels["model"], "set": f.Spec.FeatureSets[0], "card": card, "port": port} {
			if got != models[i] {
				t.Errorf("%s of object %d is %q, want %q", what, i, got, models[i])
			}
		}
	}
}

// TestWatchesOfItsOwn watches a server through the constructor of informers that Direct returns.
func TestWatchesOfItsOwn(t *testing.T) {
	var query, path string
	answer := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"type": "ADDED", "object": `+streamed+"}\n")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query, path = r.URL.RawQuery, r.URL.Path
		answer(w, r)
	}))
	defer server.Close()
	var lw cache.ListerWatcher
	inner := Paged(0)
	constructor, err := Direct(&rest.Config{Host: server.URL}, func(of cache.ListerWatcher, o runtime.Object, _ time.Duration, i cache.Indexers) cache.SharedIndexInformer {
		lw = of
		return inner(of, o, 0, i)
	})
	if err != nil {
		t.Fatal(err)
	}
	given := &cache.ListWatch{}
	if constructor(given, &metav1.PartialObjectMetadata{}, 0, nil); lw != cache.ListerWatcher(given) {
		t.Error("informers of other kinds have a watch of their own")
	}
	constructor(given, &NodeFeature{}, 0, nil)
	open := func() (watch.Interface, error) {
		return cache.ToWatcherWithContext(lw).WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "5", AllowWatchBookmarks: true})
	}

	w, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if e := <-w.ResultChan(); e.Type != watch.Added || e.Object.(*NodeFeature).Name != "n1" {
		t.Errorf("event %+v", e)
	}
	if _, more := <-w.ResultChan(); more {
		t.Error("the watch goes on after the server has ended it")
	}
	if path != "/apis/nfd.k8s-sigs.io/v1alpha1/nodefeatures" || !strings.Contains(query, "watch=true") ||
		!strings.Contains(query, "resourceVersion=5") || !strings.Contains(query, "allowWatchBookmarks=true") {
		t.Errorf("request %s?%s", path, query)
	}

	answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusGone)
		_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}`)
	}
	if _, err := open(); !apierrors.IsResourceExpired(err) {
		t.Errorf("error %v, want an expired resourceVersion", err)
	}

	answer = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	w, err = open()
	if err != nil {
		t.Fatalf("a connection that breaks: %v, want a watch that ends, after which informers watch again and do not list", err)
	}
	if _, more := <-w.ResultChan(); more {
		t.Error("the watch of a broken connection has an event")
	}
}

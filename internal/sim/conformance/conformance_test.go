// Package conformance compares the model of the API server with a real one.
package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/assay-project/assay/internal/sim/apiserver"
	"github.com/assay-project/assay/internal/testkit"
)

// scripts and length are the number of scripts, and of operations of each.
const (
	scripts = 14
	length  = 60
)

// patience is the time to wait for what a watch must say.
const patience = time.Minute

type object = map[string]any

// kind is a resource that scripts are about.
type kind struct {
	path       string // with %s for the namespace
	apiVersion string
	name       string
	status     bool
	content    func(r *rand.Rand) object
	state      func(r *rand.Rand) object
}

var kinds = []kind{
	{
		path: "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/%s/nodefeatures", apiVersion: "nfd.k8s-sigs.io/v1alpha1", name: "NodeFeature",
		content: func(r *rand.Rand) object {
			return object{"spec": object{"features": object{"flags": object{}, "instances": object{}, "attributes": object{
				"test.attr": object{"elements": object{"a": fmt.Sprint(r.IntN(3))}},
			}}}}
		},
	},
	{
		path: "/apis/nfd.k8s-sigs.io/v1alpha1/nodefeaturerules", apiVersion: "nfd.k8s-sigs.io/v1alpha1", name: "NodeFeatureRule", status: true,
		content: func(r *rand.Rand) object {
			return object{"spec": object{"rules": []any{object{"name": "rule", "labels": object{"a": fmt.Sprint(r.IntN(3))}}}}}
		},
		state: func(r *rand.Rand) object { return object{"status": object{"matchedNodes": r.IntN(3)}} },
	},
	{
		path: "/apis/assay.dev/v1alpha1/namespaces/%s/nodefeaturesets", apiVersion: "assay.dev/v1alpha1", name: "NodeFeatureSet", status: true,
		content: func(r *rand.Rand) object {
			return object{"spec": object{"features": object{"attributes": object{
				"test.attr": object{"elements": object{"a": fmt.Sprint(r.IntN(3))}},
			}}}}
		},
		state: func(r *rand.Rand) object { return object{"status": object{"nodes": r.IntN(3)}} },
	},
	{
		path: "/apis/assay.dev/v1alpha1/namespaces/%s/nodefeaturerequests", apiVersion: "assay.dev/v1alpha1", name: "NodeFeatureRequest", status: true,
		content: func(r *rand.Rand) object {
			return object{"spec": object{"grace": fmt.Sprintf("%dm", 1+r.IntN(3)), "onLoss": "Taint"}}
		},
		state: func(r *rand.Rand) object { return object{"status": object{"matchingNodes": r.IntN(3)}} },
	},
	{
		path: "/api/v1/nodes", apiVersion: "v1", name: "Node", status: true,
		content: func(r *rand.Rand) object {
			// The first taint is what an API server adds to new Nodes.
			return object{"spec": object{"taints": []any{
				object{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
				object{"key": "example.com/a", "effect": "PreferNoSchedule", "value": fmt.Sprint(r.IntN(3))},
			}}}
		},
		state: func(r *rand.Rand) object {
			amounts := object{"example.com/a": []string{"1", "1000m", "2k"}[r.IntN(3)]}
			return object{"status": object{"capacity": amounts, "allocatable": amounts}}
		},
	},
	{
		path: "/api/v1/namespaces/%s/configmaps", apiVersion: "v1", name: "ConfigMap",
		content: func(r *rand.Rand) object { return object{"data": object{"a": fmt.Sprint(r.IntN(3))}} },
	},
	{
		path: "/apis/coordination.k8s.io/v1/namespaces/%s/leases", apiVersion: "coordination.k8s.io/v1", name: "Lease",
		content: func(r *rand.Rand) object { return object{"spec": object{"holderIdentity": fmt.Sprint(r.IntN(3))}} },
	},
}

// side is one of the two servers.
type side struct {
	http *http.Client
	host string
	// names are short names of UIDs and resourceVersions, in the order of their appearance.
	names map[string]string
	last  map[string]object // by path: the object as last seen
}

func (s *side) do(ctx context.Context, method, path, contentType, accept string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Accept", accept)
	return s.http.Do(r)
}

func (s *side) name(prefix, value string) string {
	if s.names[prefix+value] == "" {
		n := 0
		for k := range s.names {
			if strings.HasPrefix(k, prefix) {
				n++
			}
		}
		s.names[prefix+value] = fmt.Sprint(prefix, n+1)
	}
	return s.names[prefix+value]
}

// comparable returns an answer without what two servers cannot have in common.
func (s *side) comparable(v any) any {
	switch v := v.(type) {
	case object:
		out := object{}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			switch e := v[k]; k {
			case "managedFields", "remainingItemCount", "selfLink":
			case "resourceVersion": // an API server writes an object whose managers alone have changed
			case "creationTimestamp", "deletionTimestamp":
				if e != nil {
					out[k] = "(time)"
				}
			case "uid":
				out[k] = s.name("uid ", fmt.Sprint(e))
			default:
				out[k] = s.comparable(e)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = s.comparable(v[i])
		}
		return out
	}
	return v
}

// answer is what is compared of an answer.
func (s *side) answer(code int, o object) any {
	if o["kind"] == "Status" {
		return object{"code": code, "status": o["status"], "reason": o["reason"]}
	}
	return object{"code": code, "object": s.comparable(o)}
}

// script is a sequence of operations, the same for both servers.
type script struct {
	*rand.Rand
	*testing.T
	kind      kind
	namespace string
	collect   string
}

// run runs a script, and returns its history.
func (c *script) run(s *side) (history []any) {
	version := c.version(s)
	watch, err := s.do(c.Context(), http.MethodGet, c.collect+"?watch=true&labelSelector=test%3D"+c.namespace+"&resourceVersion="+version, "application/json", "application/json", nil)
	if err != nil {
		c.Fatal(err)
	}
	defer watch.Body.Close()
	for range length {
		history = append(history, c.operation(s)...)
	}
	for i := range 4 { // so that the watch says when all is over
		s.send(c.T, http.MethodDelete, c.path(i), nil)
		o := s.send(c.T, http.MethodPatch, c.path(i), object{"metadata": object{"finalizers": nil}})
		_ = o
		history = append(history, s.send(c.T, http.MethodGet, c.path(i), nil))
	}
	s.send(c.T, http.MethodPost, c.collect, c.object(9))
	s.send(c.T, http.MethodDelete, c.path(9), nil)
	return append(history, c.events(s, watch.Body)...)
}

func (c *script) path(i int) string { return c.collect + "/" + c.objectName(i) }

func (c *script) objectName(i int) string { return fmt.Sprintf("%s-%d", c.namespace, i) }

// version returns the version of the collection.
func (c *script) version(s *side) string {
	resp, err := s.do(c.Context(), http.MethodGet, c.collect, "application/json", "application/json", nil)
	if err != nil {
		c.Fatal(err)
	}
	defer resp.Body.Close()
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		c.Fatal(err)
	}
	return list.Metadata.ResourceVersion
}

// object returns a new object.
func (c *script) object(i int) object {
	o := c.kind.content(c.Rand)
	o["apiVersion"], o["kind"] = c.kind.apiVersion, c.kind.name
	o["metadata"] = object{"name": c.objectName(i), "labels": object{"test": c.namespace}}
	if c.kind.name == "Node" { // or the controller manager adds it
		o["metadata"].(object)["annotations"] = object{"node.alpha.kubernetes.io/ttl": "0"}
	}
	return o
}

// operation does one thing, and returns the answer.
func (c *script) operation(s *side) []any {
	i := c.IntN(3)
	path := c.path(i)
	last := s.last[path]
	version := func() any { // of the object as last seen, of nothing, or none
		switch known, _ := last["metadata"].(object); c.IntN(4) {
		case 0:
			return nil
		case 1:
			return "1"
		default:
			return known["resourceVersion"]
		}
	}
	change := c.object(i)
	switch op := c.IntN(12); op {
	case 0, 1:
		if c.IntN(3) == 0 {
			change["metadata"].(object)["finalizers"] = []any{"example.com/wait"}
		}
		return []any{"create", s.send(c.T, http.MethodPost, c.collect, change)}
	case 2:
		return []any{"get", s.send(c.T, http.MethodGet, path, nil)}
	case 3:
		change["metadata"].(object)["resourceVersion"] = version()
		if change["metadata"].(object)["resourceVersion"] == nil {
			delete(change["metadata"].(object), "resourceVersion")
		}
		if c.kind.name == "Lease" && s.send(c.T, http.MethodGet, path, nil).(object)["code"] == http.StatusNotFound {
			return nil // an API server creates leases by PUT
		}
		return []any{"put", s.send(c.T, http.MethodPut, path, change)}
	case 4, 5:
		delete(change["metadata"].(object), "labels")
		change["metadata"].(object)["resourceVersion"] = version()
		change["metadata"].(object)["annotations"] = object{"example.com/a": []any{nil, "1", "2"}[c.IntN(3)]}
		if change["metadata"].(object)["resourceVersion"] == nil {
			delete(change["metadata"].(object), "resourceVersion")
		}
		return []any{"patch", s.send(c.T, http.MethodPatch, path, change)}
	case 6, 7:
		if !c.kind.status {
			return nil
		}
		state := c.kind.state(c.Rand)
		state["metadata"] = object{"labels": object{"example.com/b": fmt.Sprint(c.IntN(3))}}
		return []any{"patch status", s.send(c.T, http.MethodPatch, path+"/status", state)}
	case 8:
		options := object{"kind": "DeleteOptions", "apiVersion": "v1"}
		if known, _ := last["metadata"].(object); c.IntN(2) == 0 && known != nil {
			options["preconditions"] = object{"uid": known["uid"], "resourceVersion": known["resourceVersion"]}
		}
		return []any{"delete", s.send(c.T, http.MethodDelete, path, options)}
	case 9:
		return []any{"finish", s.send(c.T, http.MethodPatch, path, object{"metadata": object{"finalizers": nil}})}
	case 10:
		return []any{"list", c.list(s, c.IntN(3))}
	default: // leaves the selection, and comes back
		return []any{"relabel", s.send(c.T, http.MethodPatch, path, object{"metadata": object{"labels": object{"test": []any{c.namespace, "no"}[c.IntN(2)]}}})}
	}
}

// list returns the selected objects, page by page. How many pages there are is not compared: the watch cache of an API server may announce
// another one that is empty.
func (c *script) list(s *side, limit int) (items []any) {
	query := fmt.Sprintf("?labelSelector=test%%3D%s&limit=%d", c.namespace, limit)
	for next := ""; ; {
		resp, err := s.do(c.Context(), http.MethodGet, c.collect+query+"&continue="+url.QueryEscape(next), "application/json", "application/json", nil)
		if err != nil {
			c.Fatal(err)
		}
		var page struct {
			Metadata struct{ Continue string }
			Items    []any
		}
		err = json.NewDecoder(resp.Body).Decode(&page)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			c.Fatalf("list: %s, %v", resp.Status, err)
		}
		items = append(items, s.comparable(page.Items).([]any)...)
		if next = page.Metadata.Continue; next == "" {
			return items
		}
	}
}

// send sends a request, and returns what is compared of its answer.
func (s *side) send(t *testing.T, method, path string, body object) any {
	t.Helper()
	contentType, accept := "application/json", "application/json"
	if method == http.MethodPatch {
		contentType = "application/merge-patch+json"
	}
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := s.do(t.Context(), method, path, contentType, accept, data)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var o object
	if err := json.Unmarshal(answer, &o); err != nil {
		t.Fatalf("%s %s: %s: %v", method, path, answer, err)
	}
	if m, _ := o["metadata"].(object); m["name"] != nil && o["kind"] != "Status" {
		at, _, _ := strings.Cut(path, "?")
		at = strings.TrimSuffix(at, "/status")
		if !strings.HasSuffix(at, "/"+m["name"].(string)) {
			at += "/" + m["name"].(string)
		}
		s.last[at] = o
	}
	return s.answer(resp.StatusCode, o)
}

// events returns what a watch says, up to the deletion of the last object.
func (c *script) events(s *side, body io.ReadCloser) (out []any) {
	stop := time.AfterFunc(patience, func() { body.Close() })
	defer stop.Stop()
	lines := bufio.NewReader(body)
	last := map[string]any{}
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			c.Fatalf("%v; events so far: %v", err, out)
		}
		var event object
		if err := json.Unmarshal(line, &event); err != nil {
			c.Fatal(err)
		}
		o := event["object"].(object)
		said := []any{event["type"], s.comparable(o)}
		name := o["metadata"].(object)["name"].(string)
		if event["type"] != "MODIFIED" || !cmp.Equal(said[1], last[name]) { // see comparable
			out = append(out, said)
		}
		last[name] = said[1]
		if event["type"] == "DELETED" && name == c.objectName(9) {
			return out
		}
	}
}

func TestModelAgreesWithAPIServer(t *testing.T) {
	config := testkit.Cluster(t).User.RESTConfig()
	config.QPS = -1
	real, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for i := range scripts {
		k := kinds[i%len(kinds)]
		t.Run(fmt.Sprintf("%s-%d", k.name, i), func(t *testing.T) {
			namespace := testkit.Namespace(t, testkit.Client(t, testkit.Cluster(t).User))
			c := script{T: t, kind: k, namespace: namespace, collect: k.path}
			if strings.Contains(k.path, "%s") {
				c.collect = fmt.Sprintf(k.path, namespace)
			}
			c.Rand = rand.New(rand.NewPCG(uint64(i), 0))
			want := c.run(&side{http: real, host: config.Host, names: map[string]string{}, last: map[string]object{}})

			model := apiserver.New(apiserver.Resources()...)
			client := model.NewClient("script").Direct()
			c.Rand = rand.New(rand.NewPCG(uint64(i), 0))
			got := c.run(&side{http: &http.Client{Transport: delivering{client}}, host: "http://model", names: map[string]string{}, last: map[string]object{}})
			for _, text := range model.Unsupported() {
				t.Errorf("unsupported: %s", text)
			}
			for i := range want {
				if diff := cmp.Diff(want[i], got[i]); diff != "" {
					t.Fatalf("entry %d, after %v: - API server, + model:\n%s", i, want[:i], diff)
				}
			}
		})
	}
}

// delivering is a client of the model that gets all events at once.
type delivering struct{ *apiserver.Client }

// RoundTrip implements http.RoundTripper.
func (d delivering) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := d.Client.RoundTrip(r)
	for _, w := range d.Watches() {
		for w.Next() != "" {
			w.Deliver()
		}
	}
	return resp, err
}

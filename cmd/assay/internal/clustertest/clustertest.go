// Package clustertest serves objects to commands in tests, as an API server would.
package clustertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-project/assay/rules/facts"
)

// Denied is the message about a path that the user may not read.
type Denied string

// Serve serves objects by path; nil: there is none. Lists at other paths are empty.
func Serve(t *testing.T, objects map[string]any) (kubeconfig string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o, ok := objects[r.URL.Path]
		if ok && o == nil {
			http.NotFound(w, r)
			return
		}
		if message, ok := o.(Denied); ok {
			w.WriteHeader(http.StatusForbidden)
			o = Object{"kind": "Status", "message": message}
		}
		if !ok {
			if strings.Contains(r.URL.Path, "/pods/") || strings.Contains(r.URL.Path, "/resourceclaims/") || strings.HasSuffix(r.URL.Path, "/assay-feature-request") {
				http.NotFound(w, r)
				return
			}
			o = map[string]any{"items": []any{}}
		}
		_ = json.NewEncoder(w).Encode(o)
	}))
	t.Cleanup(s.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: %q}}]
`, s.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// Object is a JSON object of the API.
type Object = map[string]any

// List returns a list of objects.
func List(items ...any) Object { return Object{"items": items} }

// Features returns the NodeFeature of a node that has CPU flags.
func Features(node string, flags ...string) Object {
	elements := Object{}
	for _, f := range flags {
		elements[f] = Object{}
	}
	return Object{
		"metadata": Object{"name": node, "namespace": "assay-system", "labels": Object{"nfd.node.kubernetes.io/node-name": node}},
		"spec": Object{"features": Object{
			"flags": Object{"cpu.cpuid": Object{"elements": elements}}, "attributes": Object{}, "instances": Object{},
		}},
	}
}

// Node returns a Node.
func Node(name string) Object { return Object{"metadata": Object{"name": name}} }

// The paths of API groups.
const (
	NFD   = "/apis/nfd.k8s-sigs.io/v1alpha1/"
	Assay = "/apis/assay.dev/v1alpha1/"
)

// Cluster returns three nodes with AVX, of which b also has AMX.
func Cluster() map[string]any {
	needs := func(flag string) Object {
		return Object{"assay.dev/required-features": "matchFeatures: [{feature: cpu.cpuid, matchExpressions: {" + flag + ": {op: Exists}}}]"}
	}
	return map[string]any{
		"/api/v1/nodes":                         List(Node("a"), Node("b"), Node("c")),
		NFD + "nodefeatures":                    List(Features("a", "AVX"), Features("b", "AVX", "AMX"), Features("c", "AVX")),
		"/api/v1/namespaces/ml/pods/possible":   Object{"metadata": Object{"namespace": "ml", "name": "possible", "annotations": needs("AMX")}},
		"/api/v1/namespaces/ml/pods/impossible": Object{"metadata": Object{"namespace": "ml", "name": "impossible", "annotations": needs("FP64")}},
		"/api/v1/namespaces/default/pods/plain": Object{"metadata": Object{"namespace": "default", "name": "plain"}},
	}
}

// DevicesOverTheLimit is what the command line says about the node of poolOverTheLimit.
const DevicesOverTheLimit = "rules read at most 2048 devices of a node, and none of these pools: of the DRA driver a.example.com: large"

// PoolOverTheLimit returns a node with a pool of more devices than rules read, and a rule that counts its devices.
func PoolOverTheLimit() map[string]any {
	pool := func(name, driver string, count int) Object {
		devices := make([]Object, count)
		for i := range devices {
			devices[i] = Object{"name": fmt.Sprint("d-", i)}
		}
		return Object{"metadata": Object{"name": name}, "spec": Object{
			"driver": driver, "nodeName": "a", "pool": Object{"name": name, "generation": 1, "resourceSliceCount": 1}, "devices": devices,
		}}
	}
	return map[string]any{
		"/api/v1/nodes": List(Node("a")), "/api/v1/nodes/a": Node("a"), NFD + "nodefeatures": List(Features("a", "X")),
		NFD + "nodefeaturerules": List(Object{"metadata": Object{"name": "r", "uid": "u"}, "spec": Object{"rules": []Object{{
			"name": "r", "labels": Object{"example.com/devices": "{matched.dra.device.len()}"},
			"matchFeatures": []Object{{"feature": "dra.device", "matchExpressions": Object{"device.name": Object{"op": "Exists"}}}},
		}}}}),
		"/apis/resource.k8s.io/v1/resourceslices": List(pool("large", "a.example.com", facts.MaxDevices+1), pool("small", "b.example.com", 3)),
	}
}

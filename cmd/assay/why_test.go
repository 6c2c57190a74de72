package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/rules/facts"
)

// denied is the message about a path that the user may not read.
type denied string

// fakeAPI serves objects by path; nil: there is none. Lists at other paths are empty.
func fakeAPI(t *testing.T, objects map[string]any) (kubeconfig string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o, ok := objects[r.URL.Path]
		if ok && o == nil {
			http.NotFound(w, r)
			return
		}
		if message, ok := o.(denied); ok {
			w.WriteHeader(http.StatusForbidden)
			o = object{"kind": "Status", "message": message}
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

type object = map[string]any

func list(items ...any) object { return object{"items": items} }

func fakeFeatures(node string, flags ...string) object {
	elements := object{}
	for _, f := range flags {
		elements[f] = object{}
	}
	return object{
		"metadata": object{"name": node, "namespace": "assay-system", "labels": object{"nfd.node.kubernetes.io/node-name": node}},
		"spec": object{"features": object{
			"flags": object{"cpu.cpuid": object{"elements": elements}}, "attributes": object{}, "instances": object{},
		}},
	}
}

func fakeNode(name string) object { return object{"metadata": object{"name": name}} }

const nfdAPI, assayAPI = "/apis/nfd.k8s-sigs.io/v1alpha1/", "/apis/assay.dev/v1alpha1/"

// fakeCluster returns three nodes with AVX, of which b also has AMX.
func fakeCluster() map[string]any {
	needs := func(flag string) object {
		return object{"assay.dev/required-features": "matchFeatures: [{feature: cpu.cpuid, matchExpressions: {" + flag + ": {op: Exists}}}]"}
	}
	return map[string]any{
		"/api/v1/nodes":                         list(fakeNode("a"), fakeNode("b"), fakeNode("c")),
		nfdAPI + "nodefeatures":                 list(fakeFeatures("a", "AVX"), fakeFeatures("b", "AVX", "AMX"), fakeFeatures("c", "AVX")),
		"/api/v1/namespaces/ml/pods/possible":   object{"metadata": object{"namespace": "ml", "name": "possible", "annotations": needs("AMX")}},
		"/api/v1/namespaces/ml/pods/impossible": object{"metadata": object{"namespace": "ml", "name": "impossible", "annotations": needs("FP64")}},
		"/api/v1/namespaces/default/pods/plain": object{"metadata": object{"namespace": "default", "name": "plain"}},
	}
}

// devicesOverTheLimit is what the command line says about the node of poolOverTheLimit.
const devicesOverTheLimit = "rules read at most 2048 devices of a node, and none of these pools: of the DRA driver a.example.com: large"

// poolOverTheLimit returns a node with a pool of more devices than rules read, and a rule that counts its devices.
func poolOverTheLimit() map[string]any {
	pool := func(name, driver string, count int) object {
		devices := make([]object, count)
		for i := range devices {
			devices[i] = object{"name": fmt.Sprint("d-", i)}
		}
		return object{"metadata": object{"name": name}, "spec": object{
			"driver": driver, "nodeName": "a", "pool": object{"name": name, "generation": 1, "resourceSliceCount": 1}, "devices": devices,
		}}
	}
	return map[string]any{
		"/api/v1/nodes": list(fakeNode("a")), "/api/v1/nodes/a": fakeNode("a"), nfdAPI + "nodefeatures": list(fakeFeatures("a", "X")),
		nfdAPI + "nodefeaturerules": list(object{"metadata": object{"name": "r", "uid": "u"}, "spec": object{"rules": []object{{
			"name": "r", "labels": object{"example.com/devices": "{matched.dra.device.len()}"},
			"matchFeatures": []object{{"feature": "dra.device", "matchExpressions": object{"device.name": object{"op": "Exists"}}}},
		}}}}),
		"/apis/resource.k8s.io/v1/resourceslices": list(pool("large", "a.example.com", facts.MaxDevices+1), pool("small", "b.example.com", 3)),
	}
}

// runCommand runs the program and returns its output and exit code.
func runCommand(t *testing.T, kubeconfig string, args ...string) (out string, code int) {
	t.Helper()
	var b strings.Builder
	cmd := newCommand("assay")
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	cmd.SetArgs(append(args, "--kubeconfig", kubeconfig))
	code = exitCode(cmd.ExecuteContext(t.Context()))
	return b.String(), code
}

func TestWhyPod(t *testing.T) {
	api := fakeCluster()
	gone := fakeNode("c")
	gone["status"] = object{"conditions": []any{object{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"}}}
	api["/api/v1/nodes"] = list(fakeNode("a"), fakeNode("b"), gone)
	api[assayAPI+"nodefeatureschedulingpolicies"] = list(object{
		"metadata": object{"name": "fresh"}, "spec": object{"namespaceSelector": object{}, "staleAfter": "1m", "onStale": "Reject"},
	})
	api["/api/v1/namespaces"] = list(object{"metadata": object{"name": "batch", "labels": object{"assay.dev/scheduling": "enabled"}}})
	api["/api/v1/namespaces/batch/pods/any"] = object{"metadata": object{"namespace": "batch", "name": "any"}}
	kubeconfig := fakeAPI(t, api)
	for name, test := range map[string]struct {
		args []string
		want string
		code int
	}{
		"possible": {[]string{"ml/possible"}, `annotation assay.dev/required-features: not served: the default scheduler does not check it unless the extender is attached to it.
Pod ml/possible requires features with annotation assay.dev/required-features.
1 of 3 nodes meet the requirements: b
2 nodes: node feature requirement not met: cpu.cpuid/AMX
    a, c
`, 0},
		"in a namespace as in kubectl": {[]string{"possible", "-n", "ml"}, `annotation assay.dev/required-features: not served: the default scheduler does not check it unless the extender is attached to it.
Pod ml/possible requires features with annotation assay.dev/required-features.
1 of 3 nodes meet the requirements: b
2 nodes: node feature requirement not met: cpu.cpuid/AMX
    a, c
`, 0},
		"impossible": {[]string{"ml/impossible"}, `annotation assay.dev/required-features: not served: the default scheduler does not check it unless the extender is attached to it.
Pod ml/impossible requires features with annotation assay.dev/required-features.
0 of 3 nodes meet the requirements
3 nodes: node feature requirement not met: cpu.cpuid/FP64 (no node has it)
    a, b, c
The closest node, a, lacks cpu.cpuid/FP64.
`, 1},
		"each node": {[]string{"ml/possible", "-o", "wide"}, `annotation assay.dev/required-features: not served: the default scheduler does not check it unless the extender is attached to it.
Pod ml/possible requires features with annotation assay.dev/required-features.
1 of 3 nodes meet the requirements: b
2 nodes: node feature requirement not met: cpu.cpuid/AMX
    a, c

NODE  LACKS
a     cpu.cpuid/AMX
b     -
c     cpu.cpuid/AMX
`, 0},
		"one node": {[]string{"ml/possible", "--node", "c"}, `annotation assay.dev/required-features: not served: the default scheduler does not check it unless the extender is attached to it.
Pod ml/possible requires features with annotation assay.dev/required-features.
1 of 3 nodes meet the requirements: b
2 nodes: node feature requirement not met: cpu.cpuid/AMX
    a, c

Node c:
  required  annotation assay.dev/required-features  not met: cpu.cpuid/AMX is missing
`, 0},
		"stale": {[]string{"batch/any", "--node", "c", "-o", "wide"}, `NodeFeatureSchedulingPolicy fresh: not served: the default scheduler does not check it unless the extender is attached to it.
Pod batch/any requires features with policy fresh.
2 of 3 nodes meet the requirements: a, b
1 node: node feature requirement not met: its features are stale
    c

Node c:
  required  policy fresh  not met: its features were last known AGE ago; at most 1m0s are allowed

NODE  LACKS
a     -
b     -
c     its features are stale
`, 0},
		"plain": {[]string{"plain"}, "Pod default/plain requires no features, labels or resources: all 3 nodes can run it.\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			out, code := runCommand(t, kubeconfig, append([]string{"why", "pod"}, test.args...)...)
			out = regexp.MustCompile(`known \S+ ago`).ReplaceAllString(out, "known AGE ago")
			if diff := cmp.Diff(test.want, out); diff != "" || code != test.code {
				t.Errorf("exit code %d, want %d (-want +got):\n%s", code, test.code, diff)
			}
		})
	}
}

func TestPodsAreLookedForWhereKubectlDoes(t *testing.T) {
	kubeconfig := fakeAPI(t, fakeCluster())
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	in := strings.Replace(string(text), "context: {cluster: c}", "context: {cluster: c, namespace: ml}", 1)
	if err := os.WriteFile(kubeconfig, []byte(in), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := runCommand(t, kubeconfig, "why", "pod", "possible"); code != 0 || !strings.Contains(out, "Pod ml/possible requires") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// TestWhySaysFirstWhatHasNoEffect checks the first line about pods with misspelled keys, and about requirements that nothing serves.
func TestWhySaysFirstWhatHasNoEffect(t *testing.T) {
	const amx = "matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AMX: {op: Exists}}}]"
	for name, test := range map[string]struct {
		meta  object
		first string
	}{
		"not served": {object{"annotations": object{"assay.dev/required-features": amx}}, "annotation assay.dev/required-features: not served: "},
		"misspelled": {object{"annotations": object{"assay.dev/required-feature": amx}},
			"metadata.annotations[assay.dev/required-feature] has no meaning on pods; did you mean assay.dev/required-features?"},
		"annotation as label": {object{"labels": object{"assay.dev/required-features": "amx"}},
			"metadata.labels[assay.dev/required-features] has no effect here: it belongs into annotations"},
		"label as annotation": {object{"annotations": object{"assay.dev/feature-requests": "amx"}},
			"metadata.annotations[assay.dev/feature-requests] has no meaning on pods; did you mean assay.dev/feature-request, in labels?"},
	} {
		t.Run(name, func(t *testing.T) {
			api := fakeCluster()
			test.meta["namespace"], test.meta["name"] = "ml", "p"
			api["/api/v1/namespaces/ml/pods/p"] = object{"metadata": test.meta, "spec": object{"schedulerName": "default-scheduler"}}
			if out, _ := runCommand(t, fakeAPI(t, api), "why", "pod", "ml/p"); !strings.HasPrefix(out, test.first) {
				t.Errorf("got %q, want it to begin with %q", out, test.first)
			}
			var printed struct{ Warnings []string }
			out, _ := runCommand(t, fakeAPI(t, api), "why", "pod", "ml/p", "-o", "json")
			if err := json.Unmarshal([]byte(out), &printed); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if warned := len(printed.Warnings) == 1 && strings.HasPrefix(printed.Warnings[0], test.first); warned != strings.HasPrefix(test.first, "metadata.") {
				t.Errorf("-o json has the warnings %q", printed.Warnings)
			}
		})
	}
}

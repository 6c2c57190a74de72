package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/cmd/assay/internal/clustertest"
)

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
	api := clustertest.Cluster()
	gone := clustertest.Node("c")
	gone["status"] = clustertest.Object{"conditions": []any{clustertest.Object{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"}}}
	api["/api/v1/nodes"] = clustertest.List(clustertest.Node("a"), clustertest.Node("b"), gone)
	api[clustertest.Assay+"nodefeatureschedulingpolicies"] = clustertest.List(clustertest.Object{
		"metadata": clustertest.Object{"name": "fresh"}, "spec": clustertest.Object{"namespaceSelector": clustertest.Object{}, "staleAfter": "1m", "onStale": "Reject"},
	})
	api["/api/v1/namespaces"] = clustertest.List(clustertest.Object{"metadata": clustertest.Object{"name": "batch", "labels": clustertest.Object{"assay.dev/scheduling": "enabled"}}})
	api["/api/v1/namespaces/batch/pods/any"] = clustertest.Object{"metadata": clustertest.Object{"namespace": "batch", "name": "any"}}
	kubeconfig := clustertest.Serve(t, api)
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
	kubeconfig := clustertest.Serve(t, clustertest.Cluster())
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
		meta  clustertest.Object
		first string
	}{
		"not served": {clustertest.Object{"annotations": clustertest.Object{"assay.dev/required-features": amx}}, "annotation assay.dev/required-features: not served: "},
		"misspelled": {clustertest.Object{"annotations": clustertest.Object{"assay.dev/required-feature": amx}},
			"metadata.annotations[assay.dev/required-feature] has no meaning on pods; did you mean assay.dev/required-features?"},
		"annotation as label": {clustertest.Object{"labels": clustertest.Object{"assay.dev/required-features": "amx"}},
			"metadata.labels[assay.dev/required-features] has no effect here: it belongs into annotations"},
		"label as annotation": {clustertest.Object{"annotations": clustertest.Object{"assay.dev/feature-requests": "amx"}},
			"metadata.annotations[assay.dev/feature-requests] has no meaning on pods; did you mean assay.dev/feature-request, in labels?"},
	} {
		t.Run(name, func(t *testing.T) {
			api := clustertest.Cluster()
			test.meta["namespace"], test.meta["name"] = "ml", "p"
			api["/api/v1/namespaces/ml/pods/p"] = clustertest.Object{"metadata": test.meta, "spec": clustertest.Object{"schedulerName": "default-scheduler"}}
			if out, _ := runCommand(t, clustertest.Serve(t, api), "why", "pod", "ml/p"); !strings.HasPrefix(out, test.first) {
				t.Errorf("got %q, want it to begin with %q", out, test.first)
			}
			var printed struct{ Warnings []string }
			out, _ := runCommand(t, clustertest.Serve(t, api), "why", "pod", "ml/p", "-o", "json")
			if err := json.Unmarshal([]byte(out), &printed); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if warned := len(printed.Warnings) == 1 && strings.HasPrefix(printed.Warnings[0], test.first); warned != strings.HasPrefix(test.first, "metadata.") {
				t.Errorf("-o json has the warnings %q", printed.Warnings)
			}
		})
	}
}

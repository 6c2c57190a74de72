package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-project/assay/cmd/assay/internal/clustertest"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules/keys"
)

// A key that the controller keeps although no rule sets it must not be attributed to another client.
func TestExplainNamesTheRuleOfAKeptKey(t *testing.T) {
	r := &record.Record{Whole: true}
	r.Add(record.Owner{ID: "uid-1", Name: "gpu"}, record.KeyOf(keys.Label, "example.com/gpu"))
	r.Add(record.Owner{ID: "uid-2", Name: "old"}, record.KeyOf(keys.Taint, "example.com/old:NoSchedule"))
	node := clustertest.Object{
		"metadata": clustertest.Object{
			"name": "a", "labels": clustertest.Object{"example.com/gpu": "true", "example.com/lost": "true", "example.com/rack": "7"},
			"annotations": clustertest.Object{
				"nfd.node.kubernetes.io/feature-labels": "example.com/gpu,example.com/lost",
				"nfd.node.kubernetes.io/taints":         "example.com/old=:NoSchedule",
			},
		},
		"spec": clustertest.Object{"taints": []clustertest.Object{{"key": "example.com/old", "effect": "NoSchedule"}}},
	}
	objects := map[string]any{
		"/api/v1/nodes/a":                    node,
		clustertest.NFD + "nodefeatures":     clustertest.List(),
		clustertest.NFD + "nodefeaturerules": clustertest.List(clustertest.Object{"metadata": clustertest.Object{"name": "gpu", "uid": "uid-1"}, "spec": clustertest.Object{"rules": []clustertest.Object{}}}),
		"/api/v1/namespaces/assay-system/configmaps/assay-kept-rules": clustertest.Object{
			"metadata": clustertest.Object{"name": "assay-kept-rules"}, "data": clustertest.Object{record.DataKey: r.Encode()},
		},
	}
	kubeconfig := clustertest.Serve(t, objects)
	explain := func(key string, want ...string) {
		t.Helper()
		out, code := runCommand(t, kubeconfig, "explain", "a", key)
		if code != 0 {
			t.Errorf("%s: exit code %d", key, code)
		}
		for _, text := range want {
			if !strings.Contains(out, text) {
				t.Errorf("%s: %q is missing in:\n%s", key, text, out)
			}
		}
	}
	explain("example.com/gpu", "written by Assay; no rule or NodeFeature gives it now", "set by NodeFeatureRule gpu\n", "no replica of the controller holds Lease")
	explain("example.com/old", "set by NodeFeatureRule old, which was deleted\n")
	explain("example.com/lost", "set by an unknown rule: the record in ConfigMap assay-system/assay-kept-rules does not have the key")
	explain("example.com/rack", "set by another client")
}

// TestExplainSaysWhichLossTaintedANode: no rule sets the taint, and its value names the object.
func TestExplainSaysWhichLossTaintedANode(t *testing.T) {
	request := clustertest.Object{"metadata": clustertest.Object{"namespace": "training", "name": "rdma"}, "spec": clustertest.Object{"onLoss": "Taint"}}
	kubeconfig := clustertest.Serve(t, map[string]any{
		"/api/v1/nodes/a": clustertest.Object{
			"metadata": clustertest.Object{"name": "a", "annotations": clustertest.Object{"nfd.node.kubernetes.io/taints": "example.com/lost=training.rdma:NoExecute"}},
			"spec":     clustertest.Object{"taints": []clustertest.Object{{"key": "example.com/lost", "value": "training.rdma", "effect": "NoExecute"}}},
		},
		clustertest.NFD + "nodefeatures":                         clustertest.List(),
		clustertest.NFD + "nodefeaturerules":                     clustertest.List(),
		"/apis/assay.dev/v1alpha1/nodefeaturerequests":           clustertest.List(clustertest.Object{"metadata": clustertest.Object{"namespace": "a", "name": "b"}, "spec": clustertest.Object{}}, request),
		"/apis/assay.dev/v1alpha1/nodefeatureschedulingpolicies": clustertest.List(),
		"/api/v1/events": clustertest.List(clustertest.Object{"message": "Added the taint example.com/lost=training.rdma:NoExecute: the node has lacked a link"}),
	})
	out, code := runCommand(t, kubeconfig, "explain", "a", "example.com/lost")
	for _, text := range []string{"written by Assay, not by a rule: onLoss of NodeFeatureRequest training/rdma", "LossTaintAdded: Added the taint", "lacked a link"} {
		if code != 0 || !strings.Contains(out, text) {
			t.Errorf("exit code %d, %q is missing in:\n%s", code, text, out)
		}
	}
}

// What the controller keeps on a node is there already for a rule that gives it, and goes with the rule that gave it.
func TestDiffKnowsKeptKeys(t *testing.T) {
	r := &record.Record{Whole: true}
	r.Add(record.Owner{ID: "uid-1", Name: "gpu"}, record.KeyOf(keys.Label, "example.com/gpu"))
	r.Add(record.Owner{ID: "uid-2", Name: "gone"}, record.KeyOf(keys.Label, "example.com/old"))
	const needs = `matchFeatures: [{feature: cpu.cpuid, matchExpressions: {%s: {op: Exists}}}]`
	rule := func(key, flag string) clustertest.Object {
		return clustertest.Object{
			"metadata": clustertest.Object{"name": "gpu", "uid": "uid-1"},
			"spec": clustertest.Object{"rules": []clustertest.Object{{"name": "gpu", "labels": clustertest.Object{key: "true"}, "matchFeatures": []clustertest.Object{{
				"feature": "cpu.cpuid", "matchExpressions": clustertest.Object{flag: clustertest.Object{"op": "Exists"}},
			}}}}},
		}
	}
	node := clustertest.Object{"metadata": clustertest.Object{
		"name": "a", "labels": clustertest.Object{"example.com/gpu": "true", "example.com/old": "true"},
		"annotations": clustertest.Object{"nfd.node.kubernetes.io/feature-labels": "example.com/gpu,example.com/old"},
	}}
	kubeconfig := clustertest.Serve(t, map[string]any{
		"/api/v1/nodes":                      clustertest.List(node),
		clustertest.NFD + "nodefeatures":     clustertest.List(clustertest.Features("a", "AVX")), // the flag that the rule needs has vanished
		clustertest.NFD + "nodefeaturerules": clustertest.List(rule("example.com/gpu", "GPU")),
		"/api/v1/namespaces/assay-system/configmaps/assay-kept-rules": clustertest.Object{
			"metadata": clustertest.Object{"name": "assay-kept-rules"}, "data": clustertest.Object{record.DataKey: r.Encode()},
		},
	})
	file := func(name, key, flag string) string {
		path := filepath.Join(t.TempDir(), "rule.yaml")
		text := fmt.Sprintf("apiVersion: nfd.k8s-sigs.io/v1alpha1\nkind: NodeFeatureRule\nmetadata: {name: %s}\nspec: {rules: [{name: r, labels: {%s: \"true\"}, "+needs+"}]}\n",
			name, key, flag)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, test := range map[string]struct {
		args []string
		want string
		code int
	}{
		"TheRuleIsDeleted":          {[]string{"--remove", "gpu"}, "- label example.com/gpu=true", 1},
		"TheRuleChanges":            {[]string{file("gpu", "example.com/other", "GPU")}, "- label example.com/gpu=true", 1},
		"AnotherRuleGivesIt":        {[]string{file("new", "example.com/gpu", "AVX")}, "nothing would change on 1 node", 0},
		"AnotherRuleGivesSomething": {[]string{file("new", "example.com/new", "AVX")}, "+ label example.com/new=true\n    on a\n1 change on", 1},
	} {
		t.Run(name, func(t *testing.T) {
			out, code := runCommand(t, kubeconfig, append([]string{"diff"}, test.args...)...)
			if code != test.code || !strings.Contains(out, test.want) || strings.Contains(out, "example.com/old") {
				t.Errorf("exit code %d, want %d; want %q without example.com/old:\n%s", code, test.code, test.want, out)
			}
		})
	}
}

// TestTaintsAreDisabledByAFlag: without an installation the flag had no effect, and migrate check listed taints that are not written.
func TestTaintsAreDisabledByAFlag(t *testing.T) {
	kubeconfig := clustertest.Serve(t, map[string]any{
		"/api/v1/nodes":                  clustertest.List(clustertest.Object{"metadata": clustertest.Object{"name": "a"}}),
		clustertest.NFD + "nodefeatures": clustertest.List(clustertest.Features("a", "AVX")),
		clustertest.NFD + "nodefeaturerules": clustertest.List(clustertest.Object{"metadata": clustertest.Object{"name": "slow"}, "spec": clustertest.Object{
			"rules": []clustertest.Object{{"name": "r", "taints": []clustertest.Object{{"key": "example.com/slow", "effect": "NoSchedule"}}}},
		}}),
	})
	for flag, code := range map[string]int{"--enable-taints=true": 1, "--enable-taints=false": 0} {
		out, got := runCommand(t, kubeconfig, "migrate", "check", flag)
		if got != code || strings.Contains(out, "taint example.com/slow:NoSchedule") != (code == 1) {
			t.Errorf("%s: exit code %d, want %d:\n%s", flag, got, code, out)
		}
	}
}

// Of rules that the cluster does not have yet, eval says which outputs the Node lacks.
func TestEvalSaysHowTheNodeDiffers(t *testing.T) {
	kubeconfig := clustertest.Serve(t, map[string]any{
		"/api/v1/nodes/a": clustertest.Object{"metadata": clustertest.Object{
			"name": "a", "labels": clustertest.Object{"example.com/same": "1", "example.com/other": "old"},
		}},
		clustertest.NFD + "nodefeatures": clustertest.List(clustertest.Features("a", "AVX")),
	})
	path := filepath.Join(t.TempDir(), "rule.yaml")
	if err := os.WriteFile(path, []byte(`apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: new}
spec: {rules: [{name: r, labels: {example.com/same: "1", example.com/other: "1", example.com/new: "1"}}]}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := runCommand(t, kubeconfig, "eval", path, "--node", "a", "-q")
	for _, want := range []string{"same=1   from new/r\n", "other=1  from new/r; the Node has old instead\n", "new=1    from new/r; the Node does not have it\n"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, %q is missing in:\n%s", code, want, out)
		}
	}
}

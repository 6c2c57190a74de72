package main

import (
	"strings"
	"testing"

	"github.com/assay-project/assay/controller/provenance/record"
	"github.com/assay-project/assay/rules"
)

// A key that the controller keeps although no rule sets it must not be attributed to another client.
func TestExplainNamesTheRuleOfAKeptKey(t *testing.T) {
	r := &record.Record{Whole: true}
	r.Add(record.Giver{ID: "uid-1", Name: "gpu"}, record.KeyOf(rules.KindLabel, "example.com/gpu"))
	r.Add(record.Giver{ID: "uid-2", Name: "old"}, record.KeyOf(rules.KindTaint, "example.com/old:NoSchedule"))
	node := object{
		"metadata": object{
			"name": "a", "labels": object{"example.com/gpu": "true", "example.com/lost": "true", "example.com/rack": "7"},
			"annotations": object{
				"nfd.node.kubernetes.io/feature-labels": "example.com/gpu,example.com/lost",
				"nfd.node.kubernetes.io/taints":         "example.com/old=:NoSchedule",
			},
		},
		"spec": object{"taints": []object{{"key": "example.com/old", "effect": "NoSchedule"}}},
	}
	objects := map[string]any{
		"/api/v1/nodes/a":           node,
		nfdAPI + "nodefeatures":     list(),
		nfdAPI + "nodefeaturerules": list(object{"metadata": object{"name": "gpu", "uid": "uid-1"}, "spec": object{"rules": []object{}}}),
		"/api/v1/namespaces/assay-system/configmaps/assay-kept-rules": object{
			"metadata": object{"name": "assay-kept-rules"}, "data": object{record.DataKey: r.Encode()},
		},
	}
	kubeconfig := fakeAPI(t, objects)
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
	explain("example.com/gpu", "written by Assay; no rule gives it now", "given by NodeFeatureRule gpu\n", "removalGracePeriod")
	explain("example.com/old", "given by NodeFeatureRule old, which was deleted\n")
	explain("example.com/lost", "given by an unknown rule: the record in ConfigMap assay-system/assay-kept-rules does not have the key")
	explain("example.com/rack", "set by another client")

	objects["/api/v1/events"] = list(object{
		"message": "held for 5m0s unless confirmed: too many nodes lose labels or resources at once: label example.com/gpu (given by gpu)",
	})
	explain("example.com/gpu", "RemovalHeld: held for 5m0s unless confirmed: too many nodes lose labels")
}

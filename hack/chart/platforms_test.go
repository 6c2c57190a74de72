package chart

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAgentsLeaveOutNodesThatRunNone checks where the pods of the DaemonSets run: not on Windows, and not on nodes that run no DaemonSets,
// where a pod would be pending forever. A node selector of the values is an additional one, and required terms replace the default ones.
func TestAgentsLeaveOutNodesThatRunNone(t *testing.T) {
	defaults := map[string]any{"nodeSelectorTerms": []any{map[string]any{"matchExpressions": []any{
		map[string]any{"key": "eks.amazonaws.com/compute-type", "operator": "NotIn", "values": []any{"fargate"}},
		map[string]any{"key": "type", "operator": "NotIn", "values": []any{"virtual-kubelet"}},
	}}}}
	own := map[string]any{"nodeSelectorTerms": []any{map[string]any{"matchExpressions": []any{map[string]any{"key": "gpu", "operator": "Exists"}}}}}
	for name, test := range map[string]struct {
		values             string
		selector, required map[string]any
	}{
		"Default":  {"", map[string]any{"kubernetes.io/os": "linux"}, defaults},
		"Selector": {"nodeSelector: {pool: gpu}", map[string]any{"kubernetes.io/os": "linux", "pool": "gpu"}, defaults},
		"PodAffinity": {"affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}",
			map[string]any{"kubernetes.io/os": "linux"}, defaults},
		"Required": {"affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: gpu, operator: Exists}]}]}}}",
			map[string]any{"kubernetes.io/os": "linux"}, own},
	} {
		t.Run(name, func(t *testing.T) {
			comma := ""
			if test.values != "" {
				comma = ", "
			}
			all := objects(t, mustRender(t, set(t, "{worker: {enabled: true"+comma+test.values+"}, topology: {enabled: true"+comma+test.values+"}}")))
			found := 0
			for _, object := range all {
				if object["kind"] != "DaemonSet" {
					continue
				}
				found++
				if diff := cmp.Diff(test.selector, at(object, "spec.template.spec.nodeSelector")); diff != "" {
					t.Errorf("%s: node selector (-want +got):\n%s", identity(object), diff)
				}
				got := at(object, "spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution")
				if diff := cmp.Diff(test.required, got); diff != "" {
					t.Errorf("%s: required (-want +got):\n%s", identity(object), diff)
				}
			}
			if found != 2 {
				t.Errorf("got %d DaemonSets, want those of worker and topology", found)
			}
		})
	}
}

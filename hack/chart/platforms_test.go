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

// TestOpenShiftAdmitsThePods renders the chart for OpenShift: the pods that mount directories of the node get constraints with exactly what they
// need, and OpenShift chooses the users of all others, hooks included, for which it has no constraints with user 65532 by default.
func TestOpenShiftAdmitsThePods(t *testing.T) {
	all := objects(t, mustRender(t, set(t, "{openshift: {enabled: true}, "+allParts+"}")))
	checkFields(t, all, map[string]any{
		"SecurityContextConstraints/assay-worker-openshift runAsUser":                map[string]any{"type": "MustRunAs", "uid": 65532.0},
		"SecurityContextConstraints/assay-worker-openshift allowHostDirVolumePlugin": true,
		"SecurityContextConstraints/assay-worker-openshift allowPrivilegedContainer": false,
		"SecurityContextConstraints/assay-topology-openshift runAsUser":              map[string]any{"type": "MustRunAs", "uid": 0.0},
		"ClusterRole/assay-worker-openshift rules.0.resourceNames":                   []any{"assay-worker-openshift"},
		"RoleBinding/assay-worker-openshift subjects.0.name":                         "assay-worker",
		"RoleBinding/assay-topology-openshift subjects.0.name":                       "assay-topology",
	})
	pods := 0
	for _, object := range all {
		metadata, spec := pod(t, object)
		if spec == nil {
			continue
		}
		pods++
		component := metadata.Labels["app.kubernetes.io/component"]
		mounts := component == "worker" || component == "topology"
		if user := spec.SecurityContext.RunAsUser; mounts != (user != nil) {
			t.Errorf("%s: the user is set: %t, want %t", identity(object), user != nil, mounts)
		}
	}
	if pods < 7 {
		t.Errorf("there are %d pods", pods)
	}
	for _, object := range objects(t, mustRender(t, nil)) {
		if object["kind"] == "SecurityContextConstraints" {
			t.Errorf("%s: on a cluster without this API", identity(object))
		}
	}
}

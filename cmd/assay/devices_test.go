package main

import (
	"strings"
	"sync/atomic"
	"testing"
)

// slicesRead is a list of ResourceSlices that counts how often it is read.
type slicesRead struct{ times atomic.Int32 }

func (s *slicesRead) MarshalJSON() ([]byte, error) {
	s.times.Add(1)
	return []byte(`{"items": [{"metadata": {"name": "a-1"}, "spec": {"driver": "gpu.example.com", "nodeName": "a",
		"pool": {"name": "a", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "gpu-0"}]}}]}`), nil
}

// A cluster with thousands of nodes has megabytes of ResourceSlices.
func TestResourceSlicesAreReadOnlyIfSomethingReadsDevices(t *testing.T) {
	rule := func(feature, element string) object {
		return object{"metadata": object{"name": "r", "uid": "u"}, "spec": object{"rules": []object{{
			"name": "r", "labels": object{"gpu": "true"},
			"matchFeatures": []object{{"feature": feature, "matchExpressions": object{element: object{"op": "Exists"}}}},
		}}}}
	}
	for name, test := range map[string]struct {
		rule object
		args []string
		want bool
	}{
		"explain":                         {rule("cpu.model", "family"), []string{"explain", "a"}, false},
		"explain, a rule reads devices":   {rule("dra.device", "device.name"), []string{"explain", "a"}, true},
		"in another case":                 {rule("DRA.Device", "device.name"), []string{"explain", "a"}, true},
		"eval":                            {rule("cpu.model", "family"), []string{"eval", "--node", "a", "--from-cluster"}, false},
		"features shows those that exist": {rule("cpu.model", "family"), []string{"features"}, true},
		"rules in a Secret may read them": {object{"metadata": object{"name": "r", "uid": "u"}, "spec": object{"rulesFrom": []object{
			{"secretKeyRef": object{"name": "s", "key": "k"}},
		}}}, []string{"explain", "a"}, true},
	} {
		read := &slicesRead{}
		kubeconfig := fakeAPI(t, map[string]any{
			"/api/v1/nodes": list(fakeNode("a")), "/api/v1/nodes/a": fakeNode("a"), nfdAPI + "nodefeatures": list(fakeFeatures("a", "X")),
			nfdAPI + "nodefeaturerules": list(test.rule), "/apis/resource.k8s.io/v1/resourceslices": read,
		})
		out, _ := runCommand(t, kubeconfig, test.args...)
		if got := read.times.Load() > 0; got != test.want {
			t.Errorf("%s: read %t, want %t\n%s", name, got, test.want, out)
		}
		if strings.HasPrefix(test.args[0], "explain") && test.want && test.rule["spec"].(object)["rules"] != nil && !strings.Contains(out, "gpu=true") {
			t.Errorf("%s: the devices give no label:\n%s", name, out)
		}
	}
}

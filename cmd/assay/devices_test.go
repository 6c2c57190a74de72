package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/clustertest"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/settings"
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
	rule := func(feature, element string) clustertest.Object {
		return clustertest.Object{"metadata": clustertest.Object{"name": "r", "uid": "u"}, "spec": clustertest.Object{"rules": []clustertest.Object{{
			"name": "r", "labels": clustertest.Object{"gpu": "true"},
			"matchFeatures": []clustertest.Object{{"feature": feature, "matchExpressions": clustertest.Object{element: clustertest.Object{"op": "Exists"}}}},
		}}}}
	}
	file := filepath.Join(t.TempDir(), "devices.yaml")
	err := os.WriteFile(file, []byte(`{apiVersion: nfd.k8s-sigs.io/v1alpha1, kind: NodeFeatureRule, metadata: {name: file}, spec: {rules: [
		{name: r, labels: {gpu: "true"}, matchFeatures: [{feature: dra.device, matchExpressions: {device.name: {op: Exists}}}]}]}}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		rule clustertest.Object
		args []string
		want bool
	}{
		"explain":                                {rule("cpu.model", "family"), []string{"explain", "a"}, false},
		"explain, a rule reads devices":          {rule("dra.device", "device.name"), []string{"explain", "a"}, true},
		"in another case":                        {rule("DRA.Device", "device.name"), []string{"explain", "a"}, true},
		"eval":                                   {rule("cpu.model", "family"), []string{"eval", "--node", "a", "--from-cluster"}, false},
		"features shows those that exist":        {rule("cpu.model", "family"), []string{"features"}, true},
		"explain with a file that reads devices": {rule("cpu.model", "family"), []string{"explain", "a", "-f", file}, true},
		"diff with a file that reads devices":    {rule("cpu.model", "family"), []string{"diff", file}, true},
		"rules in a Secret may read them": {clustertest.Object{"metadata": clustertest.Object{"name": "r", "uid": "u"}, "spec": clustertest.Object{"rulesFrom": []clustertest.Object{
			{"secretKeyRef": clustertest.Object{"name": "s", "key": "k"}},
		}}}, []string{"explain", "a"}, true},
	} {
		read := &slicesRead{}
		kubeconfig := clustertest.Serve(t, map[string]any{
			"/api/v1/nodes": clustertest.List(clustertest.Node("a")), "/api/v1/nodes/a": clustertest.Node("a"), clustertest.NFD + "nodefeatures": clustertest.List(clustertest.Features("a", "X")),
			clustertest.NFD + "nodefeaturerules": clustertest.List(test.rule), "/apis/resource.k8s.io/v1/resourceslices": read,
		})
		out, _ := runCommand(t, kubeconfig, test.args...)
		if got := read.times.Load() > 0; got != test.want {
			t.Errorf("%s: read %t, want %t\n%s", name, got, test.want, out)
		}
		if (test.args[0] == "explain" || test.args[0] == "diff") && test.want && test.rule["spec"].(clustertest.Object)["rules"] != nil && !strings.Contains(out, "gpu=true") {
			t.Errorf("%s: the devices give no label:\n%s", name, out)
		}
	}
}

// assay doctor reads one node after another: it compared all but the last one with what rules give without devices.
func TestDevicesOfNodesThatAreReadOneAfterAnother(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		node := strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "spec.nodeName=")
		_, _ = fmt.Fprintf(w, `{"items": [{"metadata": {"name": %[1]q}, "spec": {"driver": "gpu.example.com", "nodeName": %[1]q,
			"pool": {"name": %[1]q, "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "gpu-0"}]}}]}`, node)
	}))
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("{current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: %q}}]}", server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := (&cluster.Flags{Kubeconfig: kubeconfig}).Connect()
	if err != nil {
		t.Fatal(err)
	}
	w := world.New(settings.Default(), "assay-system")
	for _, node := range []string{"a", "b"} {
		if err := w.ReadCluster(t.Context(), c, world.Want{Node: node, Devices: true}, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	w.Settle(io.Discard)
	for _, node := range []string{"a", "b"} {
		if f := w.Fleet.Input(node).Facts.Feature("dra.device"); f == nil || f.Instances.Len() != 1 {
			t.Errorf("the devices of node %s are unknown", node)
		}
	}
}

// A pool with more devices than rules read gave no label, and only a metric counted its slices.
func TestAPoolOverTheLimitIsExplained(t *testing.T) {
	out, _ := runCommand(t, clustertest.Serve(t, clustertest.PoolOverTheLimit()), "explain", "a")
	for _, want := range []string{"example.com/devices=3", "! " + clustertest.DevicesOverTheLimit} {
		if !strings.Contains(out, want) {
			t.Errorf("explain has no %q:\n%s", want, out)
		}
	}
}

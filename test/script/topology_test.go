//go:build linux

package script_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/internal/testkit"
)

const publishedTopology = `
apiVersion: topology.node.k8s.io/v1alpha2
kind: NodeResourceTopology
metadata: {name: numa-1}
topologyPolicies: [SingleNUMANodeContainerLevel]
attributes:
- {name: nodeTopologyPodsFingerprint, value: pfp0v001ef46db3751d8e999}
- {name: nodeTopologyPodsFingerprintMethod, value: all}
- {name: topologyManagerPolicy, value: single-numa-node}
- {name: topologyManagerScope, value: container}
zones:
- {name: node-0, type: Node, costs: [{name: node-0, value: 10}, {name: node-1, value: 21}], resources: [
    {name: cpu, capacity: "8", allocatable: "7", available: "3"}, {name: memory, capacity: "17179869184", allocatable: "16106127360", available: "1610612736"}]}
- {name: node-1, type: Node, costs: [{name: node-0, value: 21}, {name: node-1, value: 10}], resources: [
    {name: cpu, capacity: "8", allocatable: "8", available: "0"}, {name: vendor.com/nic, capacity: "2", allocatable: "2", available: "1"}]}
`

// TestTopology shows a node's topology, why a pod does not fit, and the fingerprint, from a real API server.
func TestTopology(t *testing.T) {
	c := testkit.Cluster(t)
	client := testkit.Client(t, c.User)
	assay := testkit.Program(t, "assay")
	run := func(want int, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), assay, append([]string{"topology"}, args...)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want {
			t.Fatalf("assay topology %s: exit code %d, want %d, %v\n%s", strings.Join(args, " "), code, want, err, out)
		}
		return string(out)
	}
	if got := run(1); !strings.Contains(got, "does not have the kind noderesourcetopologies.topology.node.k8s.io: set topology.enabled") {
		t.Errorf("without the kind: %s", got)
	}
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(charts.TopologyCRD(), &definition.Object); err != nil {
		t.Fatal(err)
	}
	testkit.Create(t, client, definition)
	testkit.Eventually(t, "the kind is served", func(ctx context.Context) error {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(publishedTopology), &object.Object); err != nil {
			return err
		}
		return ctrlclient.IgnoreAlreadyExists(client.Create(ctx, object))
	})
	node := testkit.Node(t, client, "numa-1")
	before := node.DeepCopy()
	node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("15"), "memory": resource.MustParse("16Gi"), "vendor.com/nic": resource.MustParse("2")}
	node.Status.Capacity = node.Status.Allocatable
	if err := client.Status().Patch(t.Context(), node, ctrlclient.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	namespace := testkit.Namespace(t, client)
	requests := corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi"), "vendor.com/nic": resource.MustParse("1")}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "train-0", Namespace: namespace},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"never": "bound"},
			Containers:   []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests}}},
		},
	}
	testkit.Eventually(t, "create a pod", func(ctx context.Context) error { return client.Create(ctx, pod) })

	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 0, `NODE    POLICY            SCOPE      ZONES  cpu      memory        vendor.com/nic
numa-1  single-numa-node  container  2      3/7 0/8  1.5Gi/15Gi -  - 1/2
`},
		{[]string{"numa-1"}, 0, `numa-1
  nodeTopologyPodsFingerprint: pfp0v001ef46db3751d8e999
  nodeTopologyPodsFingerprintMethod: all
  topologyManagerPolicy: single-numa-node
  topologyManagerScope: container
  ZONE    RESOURCE        AVAILABLE  ALLOCATABLE  CAPACITY
  node-0  cpu             3          7            8
          memory          1.5Gi      15Gi         16Gi
  node-1  cpu             0          8            8
          vendor.com/nic  1          2            2
  DISTANCE  node-0  node-1
  node-0    10      21
  node-1    21      10
`},
		{[]string{"why", "train-0", "-n", namespace, "--node", "numa-1"}, 1, `no   numa-1: container main fits no zone
       node-0: vendor.com/nic: 1 requested, the zone has none
       node-1: cpu: 2 requested, 0 available; memory: 1Gi requested, the zone has none
`},
		{[]string{"fingerprint", "numa-1"}, 0, `published                    pfp0v001ef46db3751d8e999  method all
informerMode Dedicated       pfp0v001ef46db3751d8e999  same
informerMode Shared          pfp0v001ef46db3751d8e999  same
pods that the kubelet lists  pfp0v001ef46db3751d8e999  same
`},
	} {
		if diff := cmp.Diff(tt.want, run(tt.code, tt.args...)); diff != "" {
			t.Errorf("assay topology %v (-want +got):\n%s", tt.args, diff)
		}
	}
	if got := run(1, "numa-2"); !strings.Contains(got, "no NodeResourceTopology is published") {
		t.Errorf("of a node without one: %s", got)
	}
	if got := run(0, "numa-1", "-o", "jsonpath={.zones[1].resources[1].available}"); got != "1" {
		t.Errorf("JSONPath: %q", got)
	}
	var list v1alpha2.NodeResourceTopologyList
	if err := yaml.Unmarshal([]byte("items: "+run(0, "-o", "json")), &list); err != nil || len(list.Items) != 1 {
		t.Errorf("%v: %s", err, fmt.Sprint(list))
	}
}

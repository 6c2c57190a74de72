package numa_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/cmd/assay/internal/numa"
)

func parse[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// published is a topology with two zones: 4 and 2 CPUs, 8 and 1 GiB, a GPU in node-1.
func published(t *testing.T, policy, scope string) *v1alpha2.NodeResourceTopology {
	return parse[v1alpha2.NodeResourceTopology](t, `
metadata: {name: n1}
attributes: [{name: topologyManagerPolicy, value: `+policy+`}, {name: topologyManagerScope, value: `+scope+`}]
zones:
- {name: node-0, type: Node, resources: [{name: cpu, capacity: 8, allocatable: 6, available: 4}, {name: memory, capacity: 8Gi, allocatable: 8Gi, available: 8Gi}]}
- {name: node-1, type: Node, resources: [{name: cpu, capacity: 8, allocatable: 6, available: 2}, {name: memory, capacity: 8Gi, allocatable: 8Gi, available: 1Gi}, {name: v/gpu, capacity: 1, allocatable: 1, available: 1}]}
- {name: socket-0, type: Socket}`)
}

func TestWhy(t *testing.T) {
	node := parse[corev1.Node](t, `{metadata: {name: n1}, status: {allocatable: {cpu: 12, memory: 16Gi, v/gpu: 1, v/free: 5, ephemeral-storage: 1Gi}}}`)
	const guaranteed, burstable, bestEffort = "Guaranteed", "Burstable", "BestEffort"
	for name, tt := range map[string]struct {
		pod, qos, policy, scope string
		fits                    bool
		want                    string // reason and zones
	}{
		"FitsOneZone":          {`containers: [{name: a, resources: {requests: {cpu: 3, memory: 1Gi}}}]`, guaranteed, "single-numa-node", "pod", true, "the pod fits node-0"},
		"FitsNone":             {`containers: [{name: a, resources: {requests: {cpu: 3, memory: 1Gi, v/gpu: 1}}}]`, guaranteed, "single-numa-node", "pod", false, "the pod fits no zone; node-0 v/gpu: 1 requested, the zone has none; node-1 cpu: 3 requested, 2 available"},
		"PodScopeAddsUp":       {`containers: [{name: a, resources: {requests: {cpu: 3}}}, {name: b, resources: {requests: {cpu: 2}}}]`, guaranteed, "single-numa-node", "pod", false, "the pod fits no zone; node-0 cpu: 5 requested, 4 available; node-1 cpu: 5 requested, 2 available"},
		"ContainerScope":       {`containers: [{name: a, resources: {requests: {cpu: 3}}}, {name: b, resources: {requests: {cpu: 2}}}]`, guaranteed, "single-numa-node", "container", true, "the containers fit: a in node-0, b in node-1"},
		"ContainersShareZones": {`containers: [{name: a, resources: {requests: {cpu: 3}}}, {name: b, resources: {requests: {cpu: 2}}}, {name: c, resources: {requests: {cpu: 2}}}]`, guaranteed, "single-numa-node", "container", false, "container c fits no zone; node-0 cpu: 2 requested, 1 available; node-1 cpu: 2 requested, 0 available"},
		"LargeInitContainer":   {`{initContainers: [{name: i, resources: {requests: {cpu: 5}}}], containers: [{name: a, resources: {requests: {cpu: 1}}}]}`, guaranteed, "single-numa-node", "pod", false, "the pod fits no zone; node-0 cpu: 5 requested, 4 available; node-1 cpu: 5 requested, 2 available"},
		"InitContainerAlone":   {`{initContainers: [{name: i, resources: {requests: {cpu: 5}}}], containers: [{name: a, resources: {requests: {cpu: 1}}}]}`, guaranteed, "single-numa-node", "container", false, "init container i fits no zone; node-0 cpu: 5 requested, 4 available; node-1 cpu: 5 requested, 2 available"},
		"BurstableCPUs":        {`containers: [{name: a, resources: {requests: {cpu: 10, v/gpu: 1}}}]`, burstable, "single-numa-node", "pod", true, "the pod fits node-1"},
		"BestEffort":           {`containers: [{name: a}]`, bestEffort, "single-numa-node", "pod", true, "the pod is BestEffort and requests no devices"},
		"BestEffortDevice":     {`containers: [{name: a, resources: {requests: {v/gpu: 2}}}]`, bestEffort, "single-numa-node", "pod", false, "the pod fits no zone; node-0 v/gpu: 2 requested, the zone has none; node-1 v/gpu: 2 requested, 1 available"},
		"DeviceOfTheWholeNode": {`containers: [{name: a, resources: {requests: {v/free: 4, ephemeral-storage: 1Mi}}}]`, burstable, "single-numa-node", "pod", true, "the pod fits node-0, node-1"},
		"AbsentHugepages":      {`containers: [{name: a, resources: {requests: {hugepages-2Mi: 2Mi}}}]`, guaranteed, "single-numa-node", "pod", false, "the pod fits no zone; node-0 hugepages-2Mi: the node has none; node-1 hugepages-2Mi: the node has none"},
		"AnotherPolicy":        {`containers: [{name: a, resources: {requests: {cpu: 10}}}]`, guaranteed, "restricted", "pod", true, "topologyManagerPolicy is restricted: the plug-in filters by single-numa-node only"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := parse[corev1.Pod](t, "status: {qosClass: "+tt.qos+"}")
			pod.Spec = *parse[corev1.PodSpec](t, tt.pod)
			v := numa.Why(pod, node, published(t, tt.policy, tt.scope))
			got := v.Reason
			for _, z := range v.Zones {
				got += "; " + z.Zone + " " + strings.Join(z.Missing, ", ")
			}
			if v.Fits != tt.fits || got != tt.want {
				t.Errorf("fits %t: %s\nwant %t: %s", v.Fits, got, tt.fits, tt.want)
			}
		})
	}
	if v := numa.Why(&corev1.Pod{}, node, nil); !v.Fits {
		t.Errorf("a node without a topology: %+v", v)
	}
}

// TestCompareFingerprints uses a finished Job's pod and one that starts. The published one is a value of podfingerprint v0.3.0.
func TestCompareFingerprints(t *testing.T) {
	topology := published(t, "single-numa-node", "pod")
	topology.Attributes = append(topology.Attributes,
		v1alpha2.Attribute{Name: "nodeTopologyPodsFingerprint", Value: "pfp0v0017c50b124f287d020"},
		v1alpha2.Attribute{Name: "nodeTopologyPodsFingerprintMethod", Value: "all"})
	pods := func(more ...string) []corev1.Pod {
		var list []corev1.Pod
		for _, text := range append([]string{
			`{metadata: {namespace: default, name: besteffort}, status: {phase: Running}}`, `{metadata: {namespace: default, name: excl}, status: {phase: Running}}`,
		}, more...) {
			list = append(list, *parse[corev1.Pod](t, text))
		}
		return list
	}
	c := numa.Compare(topology, pods())
	if c.Dedicated != c.Published || c.Shared != c.Published || c.Kubelet != c.Published || !c.Matches() || len(c.Pods) > 0 {
		t.Errorf("the same pods: %+v", c)
	}
	c = numa.Compare(topology, pods(`{metadata: {namespace: ml, name: job}, status: {phase: Succeeded}}`))
	if c.Dedicated == c.Published || c.Shared != c.Published || c.Kubelet != c.Published || !c.Matches() {
		t.Errorf("a finished pod: %+v", c)
	}
	if diff := cmp.Diff([]string{"ml/job is Succeeded: schedulers with informerMode Dedicated count it until it is deleted"}, c.Pods); diff != "" {
		t.Error(diff)
	}
	c = numa.Compare(topology, pods(`{metadata: {namespace: ml, name: new}, status: {phase: Pending}}`))
	if c.Dedicated != c.Published || c.Kubelet == c.Published || len(c.Pods) != 1 {
		t.Errorf("a pod that starts: %+v", c)
	}
	c = numa.Compare(topology, pods(`{metadata: {namespace: ml, name: other}, status: {phase: Running}}`))
	if c.Matches() {
		t.Errorf("a pod that the kubelet does not know: %+v", c)
	}
	// With the other method only pods with exclusive resources count: neither of the first two.
	topology.Attributes[3].Value = "with-exclusive-resources"
	exclusive := `{metadata: {namespace: default, name: c}, spec: {containers: [{resources: {requests: {cpu: 2}}}]}, status: {phase: Running, qosClass: Guaranteed}}`
	shared := `{metadata: {namespace: default, name: d}, spec: {containers: [{resources: {requests: {cpu: 500m}}}]}, status: {phase: Running, qosClass: Burstable}}`
	device := `{metadata: {namespace: default, name: e}, spec: {containers: [{resources: {requests: {v/gpu: 1}}}]}, status: {phase: Running, qosClass: BestEffort}}`
	with, without := numa.Compare(topology, pods(exclusive, shared, device)), numa.Compare(topology, pods(exclusive, device))
	alone := numa.Compare(topology, pods(exclusive))
	if with.Dedicated != without.Dedicated || with.Dedicated == alone.Dedicated {
		t.Errorf("exclusive resources: %s, without the shared pod %s, without the device %s", with.Dedicated, without.Dedicated, alone.Dedicated)
	}
}

func TestProblems(t *testing.T) {
	good := published(t, "single-numa-node", "pod")
	if p, _ := numa.Problem(good); p != "" {
		t.Errorf("problem %q", p)
	}
	noMemory := published(t, "single-numa-node", "pod")
	for i := range noMemory.Zones {
		if len(noMemory.Zones[i].Resources) > 1 {
			noMemory.Zones[i].Resources = noMemory.Zones[i].Resources[:1]
		}
	}
	if p, fix := numa.Problem(noMemory); !strings.Contains(p, "no zone has allocatable memory") || !strings.Contains(fix, "memoryManagerPolicy: Static") {
		t.Errorf("problem %q, fix %q", p, fix)
	}
	noMemory.Attributes[0].Value = "best-effort"
	if p, _ := numa.Problem(noMemory); p != "" {
		t.Errorf("problem %q with another policy", p)
	}
	many := published(t, "none", "pod")
	for len(many.Zones) < 9 {
		many.Zones = append(many.Zones, many.Zones[0])
	}
	if p, _ := numa.Problem(many); !strings.Contains(p, "9 zones, and the scheduler plug-in handles 8") {
		t.Errorf("problem %q", p)
	}
	many.Attributes = append(many.Attributes, v1alpha2.Attribute{Name: "topologyManagerMaxNUMANodes", Value: "16"})
	if p, _ := numa.Problem(many); p != "" {
		t.Errorf("problem %q with a larger maximum", p)
	}
}

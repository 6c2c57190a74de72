package topology

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/podres"
)

// machine returns the machine of an archive.
func machine(t *testing.T, archive string) *Machine {
	t.Helper()
	m, unread, err := read(t, archive)
	if err != nil || len(unread) > 0 {
		t.Fatal(err, unread)
	}
	return m
}

func read(t *testing.T, archive string) (*Machine, []error, error) {
	t.Helper()
	h, err := host.FromArchive([]byte("-- sys/devices/ --\n-- proc/version --\nx\n" + archive))
	if err != nil {
		t.Fatal(err)
	}
	return ReadMachine(h)
}

// numaNode returns the files of a NUMA node with 1 MiB of memory times kib/1024.
func numaNode(id int, cpus, distances string, kib int) string {
	return fmt.Sprintf(`-- sys/devices/system/node/node%d/ --
cpulist: %s
distance: %s
-- sys/devices/system/node/node%d/meminfo --
Node %d MemTotal:       %d kB
Node %d MemFree:        1 kB
`, id, cpus, distances, id, id, kib, id)
}

func online(list string) string {
	return "-- sys/devices/system/node/online --\n" + list + "\n"
}

// two is a machine with two NUMA nodes of four CPUs and 1 GiB; node 0 has huge pages.
const two = `-- sys/devices/system/node/node0/hugepages/hugepages-2048kB/ --
nr_hugepages: 16
-- sys/devices/system/node/node0/hugepages/hugepages-1048576kB/ --
nr_hugepages: 1
`

func twoNodes() string {
	return online("0-1") + numaNode(0, "0-3", "10 21", 1<<20) + numaNode(1, "4-7", "21 10", 1<<20) + two
}

func devices(resource, id string, nodes ...int64) podres.Devices {
	return podres.Devices{Resource: resource, IDs: []string{id}, Topology: nodes}
}

func memory(kind string, bytes uint64, nodes ...int64) podres.Memory {
	return podres.Memory{Type: kind, Bytes: bytes, Topology: nodes}
}

func holding(name string, c podres.Container) podres.Pod {
	c.Name = "main"
	return podres.Pod{Namespace: "default", Name: name, Containers: []podres.Container{c}}
}

// show writes zones as text: resource capacity/allocatable/available.
func show(r *Result) string {
	var b strings.Builder
	for _, z := range r.Zones {
		fmt.Fprintf(&b, "%s", z.Name)
		for _, c := range z.Costs {
			fmt.Fprintf(&b, " %s=%d", strings.TrimPrefix(c.Name, "node-"), c.Value)
		}
		b.WriteString("\n")
		for _, q := range z.Resources {
			fmt.Fprintf(&b, "  %s %d/%d/%d\n", q.Name, q.Capacity.Value(), q.Allocatable.Value(), q.Available.Value())
		}
	}
	return b.String()
}

func static() *Kubelet {
	return &Kubelet{CPUManagerPolicy: "static", MemoryManagerPolicy: "Static", TopologyManagerPolicy: "single-numa-node", TopologyManagerScope: "pod"}
}

// TestZones has a case for each row of the tables in docs/topology.md.
func TestZones(t *testing.T) {
	const gib = 1 << 30
	for name, tt := range map[string]struct {
		archive  string
		a        podres.Allocatable
		pods     []podres.Pod
		excludes Excludes
		want     string
		unknown  []string
		claims   []string
		negative int
	}{
		"OneZoneAndPolicyNone": {
			archive: online("0") + numaNode(0, "0-7", "10", 1024),
			want:    "node-0 0=10\n  cpu 8/0/0\n",
		},
		"ReservedAndExclusiveCPUs": {
			archive: twoNodes(),
			a:       podres.Allocatable{CPUs: []int64{1, 2, 3, 5, 6, 7}},
			pods:    []podres.Pod{holding("a", podres.Container{CPUs: []int64{2, 3}}), holding("b", podres.Container{CPUs: []int64{7}})},
			want:    "node-0 0=10 1=21\n  cpu 4/3/1\nnode-1 0=21 1=10\n  cpu 4/3/2\n",
		},
		"ThreadsAreCountedNotCores": { // siblings 0,4 and 1,5
			archive: online("0") + numaNode(0, "0-7", "10", 1024),
			a:       podres.Allocatable{CPUs: []int64{1, 2, 3, 5, 6, 7}},
			pods:    []podres.Pod{holding("a", podres.Container{CPUs: []int64{1, 5}})},
			want:    "node-0 0=10\n  cpu 8/6/4\n",
		},
		"SharedCPUsOfOldKubelets": { // not allocatable, so that they do not count
			archive: online("0") + numaNode(0, "0-3", "10", 1024),
			a:       podres.Allocatable{CPUs: []int64{2, 3}},
			pods:    []podres.Pod{holding("a", podres.Container{CPUs: []int64{0, 1}})},
			want:    "node-0 0=10\n  cpu 4/2/2\n",
		},
		"OfflineCPUs": { // CPU 3 is offline; the kubelet read the CPUs before
			archive: online("0") + numaNode(0, "0-2,4", "10", 1024),
			a:       podres.Allocatable{CPUs: []int64{0, 1, 2, 3, 4}},
			want:    "node-0 0=10\n  cpu 4/4/4\n",
		},
		"IDsWithGaps": {
			archive: online("0,8") + numaNode(0, "0-1", "10 40", 1024) + numaNode(8, "2-3", "40 10", 1024),
			a:       podres.Allocatable{CPUs: []int64{0, 1, 2, 3}, Devices: []podres.Devices{devices("vendor/gpu", "g", 8)}},
			want:    "node-0 0=10 8=40\n  cpu 2/2/2\nnode-8 0=40 8=10\n  cpu 2/2/2\n  vendor/gpu 1/1/1\n",
		},
		"EightZones": {
			archive: online("0-7") + func() (all string) {
				for i := range 8 {
					all += numaNode(i, fmt.Sprint(i), "10 11 12 13 14 15 16 17", 1024)
				}
				return all
			}(),
			a: podres.Allocatable{CPUs: []int64{7}},
			want: func() (all string) {
				for i := range 8 {
					all += fmt.Sprintf("node-%d 0=10 1=11 2=12 3=13 4=14 5=15 6=16 7=17\n  cpu 1/%d/%d\n", i, i/7, i/7)
				}
				return all
			}(),
		},
		"ZoneWithoutCPUsAndZoneWithoutMemory": {
			archive: online("0-1") + numaNode(0, "", "10 20", 1024) + numaNode(1, "0-1", "20 10", 0),
			a:       podres.Allocatable{CPUs: []int64{0, 1}, Memory: []podres.Memory{memory("memory", 1<<20, 0), memory("memory", 0, 1)}},
			want:    "node-0 0=10 1=20\n  cpu 0/0/0\n  memory 1048576/1048576/1048576\nnode-1 0=20 1=10\n  cpu 2/2/2\n  memory 0/0/0\n",
		},
		"MemoryAndHugepages": {
			archive: twoNodes(),
			a: podres.Allocatable{CPUs: []int64{0}, Memory: []podres.Memory{
				memory("memory", gib/2, 0), memory("hugepages-2Mi", 16<<21, 0), memory("hugepages-1Gi", gib, 0), memory("hugepages-2Mi", 4<<21, 1),
			}},
			pods: []podres.Pod{holding("a", podres.Container{Memory: []podres.Memory{memory("memory", gib/4, 0), memory("hugepages-2Mi", 1<<21, 0)}})},
			want: "node-0 0=10 1=21\n  cpu 4/1/1\n  hugepages-1Gi 1073741824/1073741824/1073741824\n  hugepages-2Mi 33554432/33554432/31457280\n" +
				"  memory 1073741824/536870912/268435456\n" +
				// The kernel shows no huge pages of node 1: the capacity is what the kubelet has.
				"node-1 0=21 1=10\n  cpu 4/0/0\n  hugepages-2Mi 8388608/8388608/8388608\n",
		},
		"BlockOverTwoZones": { // fills node 0, which another pod holds a part of, then node 1
			archive: twoNodes(),
			a:       podres.Allocatable{Memory: []podres.Memory{memory("memory", 1000, 0), memory("memory", 1000, 1)}},
			pods: []podres.Pod{
				holding("large", podres.Container{Memory: []podres.Memory{memory("memory", 1200, 0, 1)}}),
				holding("small", podres.Container{Memory: []podres.Memory{memory("memory", 100, 0)}}),
			},
			want: "node-0 0=10 1=21\n  cpu 4/0/0\n  memory 1073741824/1000/0\nnode-1 0=21 1=10\n  cpu 4/0/0\n  memory 1073741824/1000/700\n",
		},
		"MoreMemoryThanThereIs": {
			archive:  online("0") + numaNode(0, "0", "10", 1024),
			a:        podres.Allocatable{Memory: []podres.Memory{memory("memory", 1000, 0)}},
			pods:     []podres.Pod{holding("a", podres.Container{Memory: []podres.Memory{memory("memory", 2000, 0)}})},
			want:     "node-0 0=10\n  cpu 1/0/0\n  memory 1048576/1000/0\n",
			negative: 1,
		},
		"DevicesOnEachSetOfZones": {
			archive: twoNodes(),
			a: podres.Allocatable{Devices: []podres.Devices{
				devices("v/x", "zero", 0), devices("v/x", "one", 1), devices("v/x", "both", 0), devices("v/x", "both", 1), devices("v/x", "pair", 0, 1),
				devices("v/x", "none"), devices("v/x", "minus", -1), devices("v/x", "away", 5), devices("v/y", "anywhere"),
			}},
			want: "node-0 0=10 1=21\n  cpu 4/0/0\n  v/x 3/3/3\nnode-1 0=21 1=10\n  cpu 4/0/0\n  v/x 3/3/3\n",
		},
		"DeviceOfTwoZonesIsTakenOnceFromEach": {
			archive: twoNodes(),
			a:       podres.Allocatable{Devices: []podres.Devices{devices("v/x", "both", 0), devices("v/x", "both", 1)}},
			pods:    []podres.Pod{holding("a", podres.Container{Devices: []podres.Devices{devices("v/x", "both", 0), devices("v/x", "both", 1)}})},
			want:    "node-0 0=10 1=21\n  cpu 4/0/0\n  v/x 1/1/0\nnode-1 0=21 1=10\n  cpu 4/0/0\n  v/x 1/1/0\n",
		},
		"DeviceThatIsNotAllocatable": {
			archive: online("0") + numaNode(0, "0", "10", 1024),
			a:       podres.Allocatable{Devices: []podres.Devices{devices("v/x", "well", 0)}},
			pods:    []podres.Pod{holding("a", podres.Container{Devices: []podres.Devices{devices("v/x", "ill", 0)}})},
			want:    "node-0 0=10\n  cpu 1/0/0\n  v/x 1/1/1\n",
			unknown: []string{"v/x/ill"},
		},
		"ResourcesOfAPodAsAWhole": { // Kubernetes 1.37; they include those of the containers
			archive: online("0") + numaNode(0, "0-7", "10", 1024),
			a:       podres.Allocatable{CPUs: []int64{0, 1, 2, 3, 4, 5, 6, 7}, Memory: []podres.Memory{memory("memory", 1000, 0)}},
			pods: []podres.Pod{{
				Name: "a", CPUs: []int64{2, 3, 4}, Memory: []podres.Memory{memory("memory", 300, 0)},
				Containers: []podres.Container{{CPUs: []int64{2, 3}, Memory: []podres.Memory{memory("memory", 100, 0)}}, {CPUs: []int64{2, 3}}},
			}},
			want: "node-0 0=10\n  cpu 8/8/5\n  memory 1048576/1000/700\n",
		},
		"PodWithLessThanItsContainers": { // which cannot be: the larger amount counts
			archive: online("0") + numaNode(0, "0", "10", 1024),
			a:       podres.Allocatable{Memory: []podres.Memory{memory("memory", 1000, 0)}},
			pods: []podres.Pod{{Name: "a", Memory: []podres.Memory{memory("memory", 100, 0)}, Containers: []podres.Container{
				{Memory: []podres.Memory{memory("memory", 300, 0)}}, {Memory: []podres.Memory{memory("memory", 100, 0)}},
			}}},
			want: "node-0 0=10\n  cpu 1/0/0\n  memory 1048576/1000/600\n",
		},
		"ResourcesOfAPodWhoseContainersShareThem": { // Kubernetes 1.37 lists them for the pod alone
			archive: twoNodes(),
			a: podres.Allocatable{CPUs: []int64{0, 1, 2, 3, 4, 5, 6, 7}, Memory: []podres.Memory{
				memory("memory", 1000, 0), memory("memory", 1000, 1), memory("hugepages-2Mi", 8<<20, 1),
			}},
			pods: []podres.Pod{{
				Name: "a", CPUs: []int64{2, 3, 4}, Memory: []podres.Memory{memory("memory", 1300, 1, 0), memory("hugepages-2Mi", 2<<20, 1)},
				Containers: []podres.Container{{}, {Memory: []podres.Memory{memory("memory", 200, 0, 1)}}, {}},
			}},
			want: "node-0 0=10 1=21\n  cpu 4/4/2\n  memory 1073741824/1000/0\n" +
				"node-1 0=21 1=10\n  cpu 4/4/3\n  hugepages-2Mi 8388608/8388608/6291456\n  memory 1073741824/1000/700\n",
		},
		"ContainersWithTheResourcesOfTheirPod": { // Kubernetes 1.36 lists those that containers share for each of them
			archive: online("0") + numaNode(0, "0-7", "10", 1024),
			a:       podres.Allocatable{CPUs: []int64{0, 1, 2, 3, 4, 5, 6, 7}, Memory: []podres.Memory{memory("memory", 1000, 0)}},
			pods: []podres.Pod{{Name: "a", Containers: []podres.Container{
				{CPUs: []int64{2, 3}, Memory: []podres.Memory{memory("memory", 300, 0)}},
				{CPUs: []int64{3, 2}, Memory: []podres.Memory{memory("memory", 300, 0)}},
				{CPUs: []int64{4}, Memory: []podres.Memory{memory("memory", 100, 0)}},
			}}},
			want: "node-0 0=10\n  cpu 8/8/5\n  memory 1048576/1000/600\n",
		},
		"EqualBlocksOfContainersWithOtherCPUs": {
			archive: online("0") + numaNode(0, "0-7", "10", 1024),
			a:       podres.Allocatable{CPUs: []int64{0, 1, 2, 3, 4, 5, 6, 7}, Memory: []podres.Memory{memory("memory", 1000, 0)}},
			pods: []podres.Pod{
				{Name: "a", Containers: []podres.Container{
					{CPUs: []int64{2}, Memory: []podres.Memory{memory("memory", 100, 0)}}, {CPUs: []int64{3}, Memory: []podres.Memory{memory("memory", 100, 0)}},
				}},
				{Name: "without CPUs", Containers: []podres.Container{{Memory: []podres.Memory{memory("memory", 100, 0)}}, {Memory: []podres.Memory{memory("memory", 100, 0)}}}},
			},
			want: "node-0 0=10\n  cpu 8/8/6\n  memory 1048576/1000/600\n",
		},
		"Claims": {
			archive: online("0") + numaNode(0, "0", "10", 1024),
			pods: []podres.Pod{holding("a", podres.Container{Claims: []podres.Claim{
				{Name: "c", Driver: "gpu.example.com", Pool: "n1", Device: "gpu-0"}, {Name: "without devices"},
			}})},
			want: "node-0 0=10\n  cpu 1/0/0\n", claims: []string{"gpu.example.com/n1/gpu-0"},
		},
		"Excluded": {
			archive:  twoNodes(),
			a:        podres.Allocatable{Devices: []podres.Devices{devices("v/x", "1", 0), devices("w/x", "1", 0), devices("w/y", "1", 0)}, Memory: []podres.Memory{memory("memory", 1, 0)}},
			excludes: Excludes{"*": {"memory", "v/*"}, "n1": {"w/y"}, "n2": {"w/x"}},
			want:     "node-0 0=10 1=21\n  cpu 4/0/0\n  w/x 1/1/1\nnode-1 0=21 1=10\n  cpu 4/0/0\n",
		},
		"KernelWithoutNUMA": {
			archive: "-- sys/devices/system/cpu/online --\n0-3\n-- proc/meminfo --\nMemTotal:  2048 kB\n-- sys/kernel/mm/hugepages/hugepages-64kB/ --\nnr_hugepages: 2\n",
			a:       podres.Allocatable{CPUs: []int64{0, 1}, Memory: []podres.Memory{memory("memory", 1<<20, 0), memory("hugepages-64Ki", 1<<17, 0)}},
			want:    "node-0 0=10\n  cpu 4/2/2\n  hugepages-64Ki 131072/131072/131072\n  memory 2097152/1048576/1048576\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Build(&Input{Node: "n1", Machine: machine(t, tt.archive), Kubelet: static(), Allocatable: &tt.a, Pods: tt.pods, Excludes: tt.excludes})
			if diff := cmp.Diff(tt.want, show(got)); diff != "" {
				t.Errorf("zones (-want +got):\n%s", diff)
			}
			if !slices.Equal(got.Unknown, tt.unknown) || !slices.Equal(got.Claims, tt.claims) || got.Negative != tt.negative {
				t.Errorf("unknown %v, claims %v, negative %d; want %v, %v, %d", got.Unknown, got.Claims, got.Negative, tt.unknown, tt.claims, tt.negative)
			}
		})
	}
}

// TestOrderHasNoEffect gives the same answers of the kubelet in other orders: the JSON must be the same.
func TestOrderHasNoEffect(t *testing.T) {
	a := podres.Allocatable{CPUs: []int64{0, 1, 2, 3, 4, 5}}
	for i := range 20 {
		a.Devices = append(a.Devices, devices(fmt.Sprint("v/", i%3), fmt.Sprint("d", i), int64(i%2)))
		a.Memory = append(a.Memory, memory(fmt.Sprintf("hugepages-%dMi", 1<<(i%3)), uint64(i), int64(i%2)))
	}
	var pods []podres.Pod
	for i := range 10 {
		pods = append(pods, holding(fmt.Sprint("p", i), podres.Container{
			CPUs: []int64{int64(i)}, Devices: []podres.Devices{devices(fmt.Sprint("v/", i%3), fmt.Sprint("d", i))},
			Memory: []podres.Memory{memory("hugepages-1Mi", 1, 0, 1), memory("hugepages-2Mi", 1, 1)},
		}))
	}
	random := rand.New(rand.NewPCG(1, 2))
	var first string
	for range 50 {
		random.Shuffle(len(a.CPUs), func(i, j int) { a.CPUs[i], a.CPUs[j] = a.CPUs[j], a.CPUs[i] })
		random.Shuffle(len(a.Devices), func(i, j int) { a.Devices[i], a.Devices[j] = a.Devices[j], a.Devices[i] })
		random.Shuffle(len(a.Memory), func(i, j int) { a.Memory[i], a.Memory[j] = a.Memory[j], a.Memory[i] })
		random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		data, err := json.Marshal(Build(&Input{Node: "n", Machine: machine(t, twoNodes()), Kubelet: static(), Allocatable: &a, Pods: pods}).Content)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = string(data)
		}
		if diff := cmp.Diff(first, string(data)); diff != "" {
			t.Fatalf("another order gives another object:\n%s", diff)
		}
	}
}

// TestQuantitiesAreDecimal: schedulers written for the original read numbers without binary suffixes.
func TestQuantitiesAreDecimal(t *testing.T) {
	a := podres.Allocatable{Memory: []podres.Memory{memory("memory", 1<<30, 0)}}
	r := Build(&Input{Machine: machine(t, twoNodes()), Kubelet: static(), Allocatable: &a})
	if got := r.Zones[0].Resources[1].Capacity.String(); got != "1073741824" {
		t.Errorf("capacity of memory is %s", got)
	}
}

// TestFingerprints compares with those of podfingerprint v0.3.0, which hack/fingerprint wrote.
func TestFingerprints(t *testing.T) {
	golden, err := os.ReadFile("testdata/fingerprints.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(golden)), "\n")
	if len(lines) < 10 || !strings.HasPrefix(lines[1], "pfp0v0017c50b124f287d020 ") { // that of a real node
		t.Fatalf("%d fingerprints, the second one %q", len(lines), lines[1])
	}
	for _, line := range lines {
		fields := strings.Fields(line)
		var pods []PodName
		for _, pod := range fields[1:] {
			namespace, name, _ := strings.Cut(pod, "/")
			pods = append(pods, PodName{namespace, name})
		}
		if got := Fingerprint(pods); got != fields[0] {
			t.Errorf("%v: %s, want %s", pods, got, fields[0])
		}
	}
}

func attributes(r *Result) map[string]string {
	all := map[string]string{}
	for _, a := range r.Attributes {
		all[a.Name] = a.Value
	}
	return all
}

func TestAttributes(t *testing.T) {
	m := machine(t, twoNodes()+"-- sys/devices/cpu_core/ --\ncpus: 0-3\n-- sys/devices/cpu_atom/ --\ncpus: 4-6\n-- sys/devices/cpu_lowpower/ --\ncpus: 7\n-- sys/devices/cpu_empty/ --\ntype: 4\n")
	k := static()
	k.TopologyManagerPolicyOptions = map[string]string{"max-allowable-numa-nodes": "16", "prefer-closest-numa-nodes": "true", "another": "x"}
	r := Build(&Input{Machine: m, Kubelet: k, Allocatable: &podres.Allocatable{}})
	want := map[string]string{
		"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod",
		"topologyManagerMaxNUMANodes": "16", "topologyManagerOptionPreferClosestNumaNodes": "true",
		"cpu_core": "0-3", "cpu_atom": "4-6", "cpu_lowpower": "7",
		"nodeTopologyPodsFingerprint": "pfp0v001ef46db3751d8e999", "nodeTopologyPodsFingerprintMethod": "with-exclusive-resources",
	}
	if diff := cmp.Diff(want, attributes(r)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	r = Build(&Input{Machine: machine(t, twoNodes()), Kubelet: static(), Allocatable: &podres.Allocatable{}, NoFingerprint: true})
	if diff := cmp.Diff([]string{"topologyManagerPolicy", "topologyManagerScope"}, slices.Sorted(maps.Keys(attributes(r)))); diff != "" {
		t.Errorf("without a fingerprint (-want +got):\n%s", diff)
	}
}

// TestMethodOfTheFingerprint: only with both static policies does the kubelet list what all pods hold.
func TestMethodOfTheFingerprint(t *testing.T) {
	a := podres.Allocatable{Devices: []podres.Devices{devices("v/x", "1", 0), devices("v/free", "1")}}
	pods := []podres.Pod{
		holding("cpus", podres.Container{CPUs: []int64{1}}),
		holding("memory", podres.Container{Memory: []podres.Memory{memory("memory", 1, 0)}}),
		holding("device", podres.Container{Devices: []podres.Devices{devices("v/x", "1", 0)}}),
		holding("unpublished-device", podres.Container{Devices: []podres.Devices{devices("v/free", "1")}}),
		holding("nothing", podres.Container{}),
		{Namespace: "default", Name: "pod-cpus", CPUs: []int64{2}, Containers: []podres.Container{{}}}, // Kubernetes 1.37
		{Namespace: "default", Name: "pod-memory", Memory: []podres.Memory{memory("memory", 1, 0)}},
	}
	names := func(list ...string) (out []PodName) {
		for _, n := range list {
			out = append(out, PodName{"default", n})
		}
		return out
	}
	every := names("cpus", "memory", "device", "unpublished-device", "nothing", "pod-cpus", "pod-memory")
	for _, tt := range []struct {
		cpu, memory, method string
		pods                []PodName
	}{
		{"static", "Static", "with-exclusive-resources", names("cpus", "memory", "device", "pod-cpus", "pod-memory")},
		{"static", "None", "all", every},
		{"none", "Static", "all", every},
		{"none", "None", "all", every},
	} {
		k := static()
		k.CPUManagerPolicy, k.MemoryManagerPolicy = tt.cpu, tt.memory
		got := attributes(Build(&Input{Machine: machine(t, twoNodes()), Kubelet: k, Allocatable: &a, Pods: pods}))
		if got["nodeTopologyPodsFingerprintMethod"] != tt.method || got["nodeTopologyPodsFingerprint"] != Fingerprint(tt.pods) {
			t.Errorf("CPU manager %s, memory manager %s: %v, want method %s of %v", tt.cpu, tt.memory, got, tt.method, tt.pods)
		}
	}
}

func TestPolicyWords(t *testing.T) {
	for _, tt := range []struct{ policy, scope, want string }{
		{"single-numa-node", "pod", "SingleNUMANodePodLevel"},
		{"single-numa-node", "container", "SingleNUMANodeContainerLevel"},
		{"restricted", "pod", "RestrictedPodLevel"},
		{"restricted", "container", "RestrictedContainerLevel"},
		{"best-effort", "pod", "BestEffortPodLevel"},
		{"best-effort", "container", "BestEffortContainerLevel"},
		{"none", "pod", "None"},
		{"none", "container", "None"},
		{"restricted", "unheard-of", "None"},
	} {
		k := &Kubelet{TopologyManagerPolicy: tt.policy, TopologyManagerScope: tt.scope}
		r := Build(&Input{Machine: &Machine{}, Kubelet: k, Allocatable: &podres.Allocatable{}})
		if !slices.Equal(r.TopologyPolicies, []string{tt.want}) {
			t.Errorf("%s, %s: %v, want %s", tt.policy, tt.scope, r.TopologyPolicies, tt.want)
		}
	}
}

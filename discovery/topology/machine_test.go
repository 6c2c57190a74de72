package topology

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDistancesAreByIDNotByPosition: the file has a number for each online node only.
func TestDistancesAreByIDNotByPosition(t *testing.T) {
	m := machine(t, online("0,2,8")+numaNode(0, "0", "10 20 80", 1)+numaNode(2, "1", "20 10 28", 1)+numaNode(8, "2", "80 28 10", 1)+numaNode(5, "3", "", 1))
	if len(m.Nodes) != 3 {
		t.Fatalf("%d nodes, want those that are online", len(m.Nodes))
	}
	if diff := cmp.Diff(map[int]int64{0: 20, 2: 10, 8: 28}, m.Nodes[1].Distances); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestWhatCannotBeReadIsAbsent: memory and distances are absent and reported; without CPUs there is no topology.
func TestWhatCannotBeReadIsAbsent(t *testing.T) {
	for name, tt := range map[string]struct {
		archive string
		unread  string // part of the only error
	}{
		"no distance":              {online("0") + "-- sys/devices/system/node/node0/ --\ncpulist: 0\n-- sys/devices/system/node/node0/meminfo --\nNode 0 MemTotal: 1 kB\n", "distance"},
		"distances of other nodes": {online("0") + numaNode(0, "0", "10 20", 1), "has 2 distances, but 1 NUMA nodes are online"},
		"no meminfo":               {online("0") + "-- sys/devices/system/node/node0/ --\ncpulist: 0\ndistance: 10\n", "meminfo"},
		"meminfo without a total":  {online("0") + "-- sys/devices/system/node/node0/ --\ncpulist: 0\ndistance: 10\n-- sys/devices/system/node/node0/meminfo --\nNode 0 MemFree: 1 kB\n", "no MemTotal"},
		"huge pages":               {online("0") + numaNode(0, "0", "10", 1) + "-- sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages (error EIO) --\n", "nr_hugepages"},
	} {
		m, unread, err := read(t, tt.archive)
		if err != nil || len(unread) != 1 || !strings.Contains(unread[0].Error(), tt.unread) || len(m.Nodes) != 1 {
			t.Errorf("%s: unread %v, error %v; want one about %q", name, unread, err, tt.unread)
		}
	}
	for name, archive := range map[string]string{
		"no CPU list":       online("0") + "-- sys/devices/system/node/node0/ --\ndistance: 10\n",
		"words":             online("0") + numaNode(0, "x", "10", 1),
		"half a range":      online("0") + numaNode(0, "0-", "10", 1),
		"an empty entry":    online("0") + numaNode(0, "0,,2", "10", 1),
		"a CPU twice":       online("0") + numaNode(0, "0-3,3", "10", 1),
		"no NUMA node":      online("") + numaNode(0, "0", "10", 1),
		"huge CPU list":     online("0") + numaNode(0, "0-999999999", "10", 1),
		"unreadable online": "-- sys/devices/system/node/online (error EACCES) --\n",
		"nothing at all":    "",
	} {
		if m, _, err := read(t, archive); err == nil {
			t.Errorf("%s: machine %v without an error", name, m)
		}
	}
}
